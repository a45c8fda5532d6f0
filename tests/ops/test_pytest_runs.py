"""Which tests a run of ops/test takes, and which one process runs together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ops import pytest_runs
from tests.paths import ROOT


def item(nodeid: str, *marks: str) -> pytest.Item:
    path = ROOT / nodeid.partition("::")[0]
    config = SimpleNamespace(rootpath=ROOT)
    found: Any = SimpleNamespace(
        nodeid=nodeid, path=path, config=config, get_closest_marker=lambda name: name if name in marks else None
    )
    return cast("pytest.Item", found)


def test_on_sqlite_a_test_runs_its_first_case_and_a_module_about_something_else_its_first_test() -> None:
    taken = pytest_runs.first_cases(
        [
            item("tests/core/test_a.py::test_one[x]"),
            item("tests/core/test_a.py::test_one[y]"),
            item("tests/core/test_a.py::test_two"),
            item("tests/core/test_b.py::test_one[x]"),
            item("tests/core/test_c.py::test_one", "any_database"),
            item("tests/core/test_c.py::test_two", "any_database"),
        ]
    )
    assert [each.nodeid.removeprefix("tests/core/test_") for each in taken] == [
        "a.py::test_one[x]",
        "a.py::test_two",
        "b.py::test_one[x]",
        "c.py::test_one",
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
