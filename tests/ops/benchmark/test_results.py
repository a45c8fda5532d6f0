"""The benchmark's figures as JSON."""

from __future__ import annotations

from ops.benchmark.figures import Figure
from ops.benchmark.installation import ROOT
from ops.benchmark.results import Results


def test_every_runs_figure_is_kept_with_its_floor_and_the_other_checkouts() -> None:
    results = Results("a machine", [ROOT, ROOT])
    ours = [[Figure("x", "ms", 1.0, 0.5)], [Figure("x", "ms", 2.0, 0.5)]]
    results.add("first-delta", [ours, [[Figure("x", "ms", 3.0)], [Figure("x", "ms", 4.0)]]])
    line = {"label": "x", "unit": "ms", "ours": [1.0, 2.0], "floor": [0.5, 0.5], "other": [3.0, 4.0]}
    assert results.as_json()["rows"] == {"first-delta": [line]}
    assert results.as_json()["machine"] == "a machine"


def test_a_folder_that_is_no_checkout_has_no_commit() -> None:
    assert Results("a machine", []).as_json()["commits"] == []
