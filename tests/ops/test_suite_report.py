"""What ops/test prints at its end, and what it prepares before several processes load the tests."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path

import pytest

from ops import compiled_tests, suite_report
from ops.suite_report import Report


def test_the_slowest_tests_of_all_runs_are_listed_slowest_first() -> None:
    report = Report()
    report.add_slowest([(float(seconds), f"tests/a.py::test_{seconds}") for seconds in range(10)], "one")
    report.add_slowest([(8.5, "tests/b.py::test_b")], "another")
    slowest = report.lines(limited=True)[1:11]
    assert [line.split()[0] for line in slowest] == ["9.0", "8.5", *(f"{seconds}.0" for seconds in range(8, 0, -1))]
    assert slowest[1].endswith("tests/b.py::test_b (another)")


def test_each_phase_has_its_own_time_also_if_it_ended_while_another_went_on() -> None:
    report = Report()
    with report.phase("first"):
        pass
    report.ended("beside it", time.monotonic() - 100, ago=60)
    phases = [line for line in report.lines(limited=False) if ": " in line and " s from " in line]
    assert [line.partition(": ")[2] for line in phases] == ["first", "beside it"]
    assert float(phases[1].split()[0]) == pytest.approx(40, abs=1)


@pytest.mark.parametrize(
    ("took", "limited", "cores", "said"),
    [(481, True, 2, True), (480, True, 2, False), (481, False, 2, False), (481, True, 4, False), (900, True, 1, True)],
)
def test_a_first_tier_over_its_limit_is_reported_on_two_cores(took: float, limited: bool, cores: int, said: bool) -> None:
    lines = suite_report.over_limit(took, limited=limited, cores=cores)
    assert bool(lines) == said
    assert all(line.startswith(f"TOO SLOW: the first tier took {took:.0f} s") for line in lines)


def test_tests_are_stale_until_they_are_compiled_and_when_they_changed(tmp_path: Path) -> None:
    module = tmp_path / "folder" / "test_a.py"
    module.parent.mkdir()
    module.write_text("")
    assert compiled_tests.number_stale(tmp_path) == 1
    compiled = compiled_tests.compiled_form(module)
    compiled.parent.mkdir()
    compiled.write_bytes(bytes(8) + importlib.util.source_hash(b"") + b"code")
    assert compiled_tests.number_stale(tmp_path) == 0
    module.write_text("x = 1")
    assert compiled_tests.number_stale(tmp_path) == 1


def test_this_tests_own_compiled_form_is_where_it_is_looked_for() -> None:
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        pytest.skip("nothing is compiled to disk here")
    assert not compiled_tests.is_stale(Path(__file__))
