"""How fast this machine is just now: a bound in seconds means nothing without it."""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMES = 20


def seconds(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def bound(fault: float, usual: Callable[[], object]) -> float:
    """What a fault may cost: ``fault`` seconds of waiting for it, and what the machine needs for the usual."""
    return fault + _TIMES * max(seconds(usual) for _ in range(3))
