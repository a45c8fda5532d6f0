"""What `ops/test` prints at its end: the slowest tests, the time of each phase, and whether the first tier kept its limit."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

LIMIT_SECONDS, LIMIT_CORES = 480, 2
"""How long the first tier may take, on a machine with so many cores that does nothing else (docs/decisions/0098)."""
SLOWEST = 10


class Report:
    """Collects while a run goes on. Phases may overlap."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._phases: list[tuple[str, float, float]] = []
        self._slowest: list[tuple[float, str, str]] = []

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.ended(title, began)

    def ended(self, title: str, began: float, ago: float = 0.0) -> None:
        """A phase that began at this time of the monotonic clock has ended so many seconds ago."""
        self._phases.append((title, began - self._began, time.monotonic() - ago - began))

    def add_slowest(self, tests: Iterable[tuple[float, str]], where: str) -> None:
        """Tests of one run of pytest with their seconds."""
        self._slowest += [(seconds, test, where) for seconds, test in tests]

    def lines(self, *, limited: bool) -> list[str]:
        """``limited``: this was the whole first tier, which has a limit."""
        slowest = sorted(self._slowest, reverse=True)[:SLOWEST]
        several = len({where for _, _, where in slowest}) > 1
        phases = [f"  {took:6.1f} s from {began:.0f} s on: {title}" for title, began, took in self._phases]
        took = time.monotonic() - self._began
        return [
            *([f"the {len(slowest)} slowest tests, with the fixtures that they were the first to use:"] if slowest else []),
            *(f"  {seconds:6.1f} s {test}" + (f" ({where})" if several else "") for seconds, test, where in slowest),
            "phases:",
            *phases,
            f"done in {took:.0f} s, with {_cpu_seconds():.0f} s of CPU",
            *over_limit(took, limited=limited),
        ]


def over_limit(took: float, *, limited: bool, cores: int | None = None) -> list[str]:
    """A line if the first tier took too long. It fails no test: other work of the machine may be the reason."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not limited or (cores or available) > LIMIT_CORES or took <= LIMIT_SECONDS:
        return []
    return [
        f"TOO SLOW: the first tier took {took:.0f} s; its limit on {LIMIT_CORES} cores is {LIMIT_SECONDS} s. If this machine had"
        " nothing else to do, make tests cheaper or mark variants as slow (docs/decisions/0098-time-of-the-first-tier.md)"
    ]


def _cpu_seconds() -> float:
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
