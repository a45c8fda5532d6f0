"""The notice that the process begins to shut down."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from types import ModuleType

import pytest


@pytest.fixture
def draining() -> ModuleType:
    """The module in a copy of its own, because a process never stops draining."""
    spec = importlib.util.find_spec("sessions_app.core.base.draining")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_listeners_are_called_in_their_loop_when_it_begins(draining: ModuleType) -> None:
    called = asyncio.Event()
    with draining.listening(called.set):
        await asyncio.sleep(0)
        assert not called.is_set()
        # The signal may come in another thread.
        await asyncio.to_thread(draining.start)
        await asyncio.wait_for(called.wait(), 60)
    assert draining.is_draining()


async def test_a_late_listener_is_called_at_once(draining: ModuleType) -> None:
    draining.start()
    called: list[int] = []
    with draining.listening(lambda: called.append(1)):
        assert called == [1]


def test_a_signal_while_a_stream_registers_does_not_block(draining: ModuleType) -> None:
    def interrupted() -> None:
        with draining._lock:
            draining.start()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


async def test_a_listener_that_has_left_is_not_called(draining: ModuleType) -> None:
    called: list[int] = []
    with draining.listening(lambda: called.append(1)):
        pass
    draining.start()
    await asyncio.sleep(0)
    assert called == []
