"""Commands that clean up on SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ends_by_signals() -> Iterator[None]:
    """SIGTERM raises SystemExit in the block, as SIGINT raises KeyboardInterrupt, so that what was begun is removed."""

    def leave(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
