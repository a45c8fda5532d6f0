"""What work costs beside other work on the same machine at the same time: a ratio holds on any machine, seconds do not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

_NUMBERS = "[" + "0," * 1_000_000 + "0]"


def least(work: Callable[[], object], tries: int = 3) -> float:
    """The CPU seconds of the cheapest of some tries: a collection of garbage can fall into one of them, not into all."""
    return min(_seconds(work) for _ in range(tries))


def beside(work: Callable[[], object], tries: int = 5) -> float:
    """How many times the CPU seconds of reading a million numbers, in the best of some tries: each is beside its own reading."""
    return min(_seconds(work) / _seconds(lambda: json.loads(_NUMBERS)) for _ in range(tries))


def reading_numbers() -> float:
    """The CPU seconds of reading a million numbers with the standard library: some 0.04 on a quiet machine."""
    return least(lambda: json.loads(_NUMBERS))


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
