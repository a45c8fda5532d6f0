"""Which tests a run of ops/test takes, and which one process runs together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops import pytest_runs
from tests import conftest
from tests.paths import ROOT


def item(nodeid: str, shape: str = "") -> pytest.Item:
    path = ROOT / nodeid.partition("::")[0]
    config = SimpleNamespace(rootpath=ROOT)
    found: Any = SimpleNamespace(
        nodeid=nodeid,
        path=path,
        config=config,
        callspec=SimpleNamespace(params={"server": shape} if shape else {}),
    )
    return cast("pytest.Item", found)


def test_on_sqlite_a_module_about_the_database_runs_the_first_case_of_each_test_and_others_their_first_test() -> None:
    taken = pytest_runs.first_cases(
        [
            item("tests/core/log/test_a.py::test_one[x]"),
            item("tests/core/log/test_a.py::test_one[y]"),
            item("tests/core/log/test_a.py::test_two"),
            item("tests/core/turns/test_b.py::test_one[x]"),
            item("tests/core/turns/test_b.py::test_one[y]"),
            item("tests/core/turns/test_b.py::test_two"),
        ]
    )
    assert [each.nodeid.rpartition("/")[2] for each in taken] == [
        "test_a.py::test_one[x]",
        "test_a.py::test_two",
        "test_b.py::test_one[x]",
    ]


def test_files_that_share_servers_come_first_and_are_run_by_one_process() -> None:
    files = [
        "tests/core/test_a.py",
        "tests/e2e/chat/test_cuts.py",
        "tests/e2e/test_aap_v3_meta.py",
        "tests/e2e/test_mcp.py",
        "tests/faults/test_outages.py",
        "tests/pure/test_b.py",
    ]
    assert [pytest_runs.unit_of(file) for file in files[1:5]] == [
        "tests/e2e/chat/",
        pytest_runs.SHARED_SERVER,
        # It has servers of its own.
        "tests/e2e/test_mcp.py",
        "tests/faults/",
    ]
    order = pytest_runs.mixed(files)
    assert sorted(files, key=lambda file: order[file])[:3] == [files[4], files[2], files[1]]


def test_the_shared_server_changes_its_shape_once() -> None:
    items = [
        item(f"tests/{file}::test_one", shape=shape)
        for file in ("e2e/test_aap_v3_meta.py", "pure/test_b.py", "e2e/test_aap_v3_turns.py", "faults/test_outages.py")
        for shape in ("embedded", "production")
    ]
    pytest_runs.sort(items)
    assert [pytest_runs.file_of(each) for each in items[:2]] == ["tests/faults/test_outages.py"] * 2
    shared = [each for each in items if "e2e" in each.nodeid]
    assert items[2:6] == shared
    assert [each.callspec.params["server"] for each in shared] == ["embedded"] * 2 + ["production"] * 2  # type: ignore[attr-defined]


def test_of_variants_the_first_case_is_in_the_first_tier() -> None:
    slow: list[str] = []

    def case(nodeid: str, *marks: str) -> Any:
        found: Any = item(nodeid)
        found.get_closest_marker = lambda name: name if name in marks else None
        found.add_marker = lambda _mark: slow.append(nodeid)
        return found

    conftest.pytest_collection_modifyitems(
        [
            case("tests/pure/test_a.py::test_one[x]", "variants", "slow"),
            case("tests/pure/test_a.py::test_one[y]", "variants"),
            case("tests/pure/test_a.py::test_one[z]", "variants"),
            case("tests/pure/test_a.py::test_two[x]"),
            case("tests/pure/test_a.py::test_two[y]"),
        ]
    )
    assert slow == ["tests/pure/test_a.py::test_one[z]"]
