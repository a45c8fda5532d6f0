"""Pure tests: no database, no network, no other process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

_DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup"}


# They may still be at work for a test of a server in the same process; no pure test starts one.
_THREADS_OF_EARLIER_TESTS = {"wake-ups", "ask-for-housekeeping", "rates-probe"}


class _Watch:
    """Records what a pure test must not use. An audit hook cannot be removed, so there is one per process."""

    def __init__(self) -> None:
        self.watching = False
        self.used: list[str] = []

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watching or event not in ("subprocess.Popen", "socket.connect", "socket.bind"):
            return
        if threading.current_thread().name in _THREADS_OF_EARLIER_TESTS:
            return
        # Connecting to a Unix socket is allowed, and so is urllib3, which binds a socket once, when it is imported.
        if event == "subprocess.Popen" or (isinstance(arguments[1], tuple) and not _is_called_by("urllib3.util.connection")):
            self.used.append(f"{event} {arguments[:2]}")


def _is_called_by(module: str) -> bool:
    """Whether the audited call comes from this module."""
    return sys._getframe(2).f_globals.get("__name__") == module


_watch = _Watch()
sys.addaudithook(_watch.hook)


@pytest.fixture(autouse=True)
def _uses_no_database_network_or_process(request: pytest.FixtureRequest) -> Iterator[None]:
    needed = _DATABASE_FIXTURES & set(request.fixturenames)
    assert not needed, f"a test in tests/pure uses {', '.join(needed)}; move it to tests/core or tests/faces"
    _watch.used.clear()
    _watch.watching = True
    yield
    _watch.watching = False
    assert not _watch.used, f"a test in tests/pure used {_watch.used}; move it to tests/network or tests/wiring"
