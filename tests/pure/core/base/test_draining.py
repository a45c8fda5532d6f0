"""The notice that the process begins to shut down."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sessions_app.core.base import draining


@pytest.fixture(autouse=True)
def _not_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "_draining", threading.Event())


async def test_listeners_are_called_in_their_loop_when_it_begins() -> None:
    called = asyncio.Event()
    with draining.listening(called.set):
        await asyncio.sleep(0)
        assert not called.is_set()
        # The signal may come in another thread.
        await asyncio.to_thread(draining.start)
        await asyncio.wait_for(called.wait(), 10)
    assert draining.is_draining()


async def test_a_late_listener_is_called_at_once() -> None:
    draining.start()
    called: list[int] = []
    with draining.listening(lambda: called.append(1)):
        assert called == [1]


async def test_a_listener_that_has_left_is_not_called() -> None:
    called: list[int] = []
    with draining.listening(lambda: called.append(1)):
        pass
    draining.start()
    await asyncio.sleep(0)
    assert called == []
