"""CPU and memory of processes, read from /proc, and the medians of figures over several runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def available() -> bool:
    return (_PROC / "self" / "stat").exists()


def _fields(pid: int) -> list[str]:
    # The name in parentheses may contain blanks and parentheses.
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int(_fields(int(entry.name))[1]), []).append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = list(roots)
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU time of the processes and their descendants until now, with children that have ended."""
    total = 0
    for pid in _tree(roots):
        try:
            total += sum(int(value) for value in _fields(pid)[11:15])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / _TICKS


def resident_mib(roots: Iterable[int]) -> float:
    pages = 0
    for pid in _tree(roots):
        try:
            pages += int((_PROC / str(pid) / "statm").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value of one run, for one line of the table. ``at_most`` and ``at_least`` are the goals for ours."""

    label: str
    unit: str
    ours: float
    floor: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    decimals: int = 1


@dataclass(slots=True)
class Result:
    """One line of the table: its figures of all runs."""

    figures: list[Figure] = field(default_factory=list)

    @property
    def ours(self) -> float:
        return median(each.ours for each in self.figures)

    @property
    def floor(self) -> float | None:
        floors = [each.floor for each in self.figures if each.floor is not None]
        return median(floors) if floors else None

    @property
    def ratio(self) -> float | None:
        """The median of each run's own ratio: a disturbance affects both sides of a run."""
        ratios = [each.ours / each.floor for each in self.figures if each.floor]
        return median(ratios) if ratios else None

    @property
    def spread(self) -> tuple[float, float]:
        return min(each.ours for each in self.figures), max(each.ours for each in self.figures)

    @property
    def reached(self) -> bool | None:
        """Whether ours meets its goal; None without a goal."""
        figure = self.figures[0]
        if figure.at_most is not None:
            return self.ours <= figure.at_most
        return None if figure.at_least is None else self.ours >= figure.at_least


def collect(runs: Iterable[Sequence[Figure]]) -> list[Result]:
    """The figures of all runs by their label, in the order of the first run."""
    results: dict[str, Result] = {}
    for figures in runs:
        for figure in figures:
            results.setdefault(figure.label, Result()).figures.append(figure)
    return list(results.values())
