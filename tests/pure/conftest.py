"""Pure tests: no database, no network, no other process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import rest_framework.compat  # noqa: F401 - imports urllib3, which once binds a socket to detect IPv6

_DATABASE_FIXTURES = {"db", "transactional_db", "django_db_setup"}


class _Watch:
    """Records what a pure test must not use. An audit hook cannot be removed, so there is one per process."""

    def __init__(self) -> None:
        self.watching = False
        self.used: list[str] = []

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.watching:
            return
        if event == "subprocess.Popen" or (event in ("socket.connect", "socket.bind") and isinstance(arguments[1], tuple)):
            self.used.append(f"{event} {arguments[:2]}")


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
