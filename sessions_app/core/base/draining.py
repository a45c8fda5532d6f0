"""Whether this process is going away.

Set once, at SIGTERM, and never taken back. A stream that would wait for later turns ends when its present
turn does, and whoever balances load is told to send nothing more here.
"""

from __future__ import annotations

import threading

_draining = threading.Event()


def start() -> None:
    _draining.set()


def is_draining() -> bool:
    return _draining.is_set()
