"""Work on long conversations: where it is done, how much at once, and what becomes of it when nobody waits any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest

from agents_app.runtime import long_work
from agents_app.runtime.messages import Message, ToolSchema

LONG_TEXT = "x" * (long_work.LONG + 1)


class Gate:
    """Blocks its thread until told, and says when it began."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.began.set()
        assert self.go.wait(120)
        return "through"


async def seen(condition: Callable[[], bool]) -> None:
    """Until another thread has come so far."""
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - what is waited for happens outside the loop
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    "value",
    [
        LONG_TEXT,
        [Message("user", LONG_TEXT)],
        [Message("user", "short")] * (long_work.LONG // 1024 + 1),
        [Message("user", [{"type": "text", "text": "x" * 1000}] * 600)],
        [Message("assistant", [{"type": "tool_use", "toolCallId": "c", "name": "write", "input": {"deep": [LONG_TEXT]}}])],
        [Message("assistant", "short", provider_data=LONG_TEXT)],
        [ToolSchema("look", "Looks.", {"enum": ["x" * 100] * 6000})],
        [(1, "user", LONG_TEXT, None)],
    ],
    ids=["text", "message", "many messages", "blocks", "arguments", "provider data", "tools", "rows"],
)
async def test_what_is_long_is_worked_on_outside_the_loop(value: object) -> None:
    assert await long_work.call("a", threading.get_ident, "short", value) != threading.get_ident()


async def test_what_is_short_stays_in_the_loop() -> None:
    messages = [Message("user", "x" * 1000), Message("assistant", [{"type": "text", "text": "y" * 1000}])] * 100
    assert await long_work.call("a", threading.get_ident, messages, ["z"] * 1000) == threading.get_ident()


async def test_one_owner_has_one_thread_and_another_does_not_wait_for_it() -> None:
    gates = [Gate() for _ in range(3)]
    greedy = [asyncio.create_task(long_work.call("greedy", gate, LONG_TEXT)) for gate in gates]
    try:
        await seen(gates[0].began.is_set)
        assert await long_work.call("modest", lambda: "served", LONG_TEXT) == "served"
        assert [gate.began.is_set() for gate in gates] == [True, False, False]
    finally:
        for gate in gates:
            gate.go.set()
    assert await asyncio.gather(*greedy) == ["through"] * 3


async def test_no_more_than_two_conversations_are_worked_on_at_once() -> None:
    gates = [Gate() for _ in range(4)]
    each = [asyncio.create_task(long_work.call(owner, gate, LONG_TEXT)) for owner, gate in enumerate(gates)]
    try:
        await seen(lambda: sum(gate.began.is_set() for gate in gates) == long_work.THREADS)
        gates[0].go.set()
        await seen(gates[2].began.is_set)
        assert not gates[3].began.is_set()
    finally:
        for gate in gates:
            gate.go.set()
    assert await asyncio.gather(*each) == ["through"] * 4


@pytest.mark.parametrize("waits", [False, True], ids=["in its thread", "waiting for one"])
async def test_a_caller_that_is_cancelled_goes_on_at_once(waits: bool) -> None:
    first, second = Gate(), Gate()
    calls = [asyncio.create_task(long_work.call("a", gate, LONG_TEXT)) for gate in (first, second)]
    try:
        await seen(first.began.is_set)
        cancelled, stays = (calls[1], calls[0]) if waits else (calls[0], calls[1])
        cancelled.cancel()
        async with asyncio.timeout(90):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        assert not first.go.is_set()
    finally:
        first.go.set()
        second.go.set()
    assert await stays == "through"


async def test_an_error_comes_back_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        await long_work.call("a", partial(divmod, 1, 0), LONG_TEXT)
