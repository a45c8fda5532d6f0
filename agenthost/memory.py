"""Settings of Python's garbage collector for a process that serves."""

from __future__ import annotations

import gc


def freeze() -> None:
    """Exclude all current objects from garbage collection. With hundreds of runs, full collections took much CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
