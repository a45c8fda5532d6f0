"""Figures of single runs, their goals, and their medians over several runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


_NOTHING = 1e-9
"""A difference of measured values may be this instead of 0."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value of one run, for one line of the table."""

    label: str
    unit: str
    ours: float
    floor: float | None = None
    at_most: float | None = None
    """Goals: the value itself, its distance from the floor, and its ratio to another checkout's (`--beside`)."""
    at_least: float | None = None
    over_floor: float | None = None
    beside_at_most: float | None = None
    beside_at_least: float | None = None
    decimals: int = 1

    def without_goals(self) -> Figure:
        return Figure(self.label, self.unit, self.ours, self.floor, decimals=self.decimals)


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
    def over_floor(self) -> float | None:
        found = [each.ours - each.floor for each in self.figures if each.floor is not None]
        return median(found) if found else None

    @property
    def spread(self) -> tuple[float, float]:
        return min(each.ours for each in self.figures), max(each.ours for each in self.figures)

    @property
    def goal(self) -> str:
        """The goal that a single installation can meet, as text; empty without one."""
        figure = self.figures[0]
        if figure.at_most is not None:
            return f"<= {figure.at_most:,g}"
        if figure.at_least is not None:
            return f">= {figure.at_least:,g}"
        return "" if figure.over_floor is None else f"<= floor + {figure.over_floor:,g}"

    @property
    def reached(self) -> bool | None:
        """Whether ours meets its goal; None without a goal."""
        figure = self.figures[0]
        if figure.at_most is not None:
            return self.ours <= figure.at_most
        if figure.at_least is not None:
            return self.ours >= figure.at_least
        if figure.over_floor is not None and self.over_floor is not None:
            return self.over_floor <= figure.over_floor
        return None


@dataclass(frozen=True, slots=True)
class Pair:
    """One line of a comparison: the figures of this checkout and of the other one, run by run."""

    ours: Result
    other: Result

    @property
    def ratios(self) -> list[float]:
        """This checkout's figure divided by the other's of the same run."""
        both = zip(self.ours.figures, self.other.figures, strict=False)
        return [mine.ours / its.ours for mine, its in both if abs(its.ours) > _NOTHING]

    @property
    def goal(self) -> str:
        figure = self.ours.figures[0]
        if figure.beside_at_most is not None:
            return f"<= {figure.beside_at_most:g} of it"
        if figure.beside_at_least is not None:
            return f">= {figure.beside_at_least:g} of it"
        return self.ours.goal

    @property
    def reached(self) -> bool | None:
        figure = self.ours.figures[0]
        if figure.beside_at_most is not None and self.ratios:
            return median(self.ratios) <= figure.beside_at_most
        if figure.beside_at_least is not None and self.ratios:
            return median(self.ratios) >= figure.beside_at_least
        return self.ours.reached


def collect(runs: Iterable[Sequence[Figure]]) -> list[Result]:
    """The figures of all runs by their label, in the order of the first run."""
    results: dict[str, Result] = {}
    for figures in runs:
        for figure in figures:
            results.setdefault(figure.label, Result()).figures.append(figure)
    return list(results.values())


def pairs(ours: Iterable[Sequence[Figure]], other: Iterable[Sequence[Figure]]) -> list[Pair]:
    """The lines that both have."""
    there = {result.figures[0].label: result for result in collect(other)}
    found = [(result, there.get(result.figures[0].label)) for result in collect(ours)]
    return [Pair(mine, its) for mine, its in found if its is not None]
