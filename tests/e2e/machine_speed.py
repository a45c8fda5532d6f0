"""Measures the current speed of this machine, to scale time limits in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMES = 20


def seconds(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return time.monotonic() - started


def bound(fault: float, baseline: Callable[[], object]) -> float:
    """A time limit: ``fault`` seconds, plus a multiple of the time that ``baseline`` takes now."""
    return fault + _TIMES * max(seconds(baseline) for _ in range(3))
