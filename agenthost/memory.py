"""Settings of Python's garbage collector for a process that serves."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def freeze() -> None:
    """Exclude all current objects from garbage collection. With hundreds of runs, full collections took much CPU time.

    Collections are rare then, and what refers to itself in a circle stays in memory for long: nothing that each turn makes
    should. Without such circles a smaller threshold took as much memory, and only added pauses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@contextmanager
def without_collections() -> Iterator[None]:
    """For imports: nearly all that they create stays. Collections would visit it again and again, a sixth of a start's time."""
    were_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if were_enabled:
            gc.enable()
