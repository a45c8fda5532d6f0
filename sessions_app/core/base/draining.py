"""Whether this process is shutting down.

Set at SIGTERM and never reset. Streams then end with their current turn, and the readiness check fails, so that a load
balancer sends no new requests.
"""

from __future__ import annotations

import threading

_draining = threading.Event()


def start() -> None:
    _draining.set()


def is_draining() -> bool:
    return _draining.is_set()
