"""The figures of all runs as JSON, so that other programs can compare them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.benchmark.figures import Figure, collect


class Results:
    """What was measured so far, by row. The first server is this checkout's."""

    def __init__(self, described: str, roots: Sequence[Path]) -> None:
        self._described = described
        self._commits = [_commit(root) for root in roots]
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, row: str, found: Sequence[Sequence[Sequence[Figure]]]) -> None:
        """Add a row's figures: of each server, of each run."""
        ours, *others = [{each.figures[0].label: each for each in collect(runs)} for runs in found]
        self._rows[row] = []
        for label, result in ours.items():
            first = result.figures[0]
            line: dict[str, Any] = {"label": label, "unit": first.unit, "ours": [each.ours for each in result.figures]}
            if first.floor is not None:
                line["floor"] = [each.floor for each in result.figures]
            for other in others:
                if label in other:
                    line["other"] = [each.ours for each in other[label].figures]
            self._rows[row].append(line)

    def as_json(self) -> dict[str, Any]:
        return {"machine": self._described, "commits": self._commits, "rows": self._rows}


def _commit(root: Path) -> str:
    """The commit of a checkout, or an empty text if it is none of git's."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
