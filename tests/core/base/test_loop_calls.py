"""Synchronous functions on the event loop: they wait, fail and are cancelled as coroutines do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

import pytest

from sessions_app.core.base import log_context, loop_calls
from sessions_app.core.base.loop_calls import LoopCall, Repeat

T = TypeVar("T")


def call_of(fn: Callable[[], T], **given: Any) -> LoopCall[T]:
    return LoopCall(fn, "owner", copy_context(), **given)


async def run(fn: Callable[[], T]) -> T:
    return await loop_calls.run(call_of(fn))


async def test_the_loop_continues_while_a_call_waits() -> None:
    asked = asyncio.Event()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ask() -> str:
        asked.set()
        return "got " + loop_calls.wait_for(answer)

    waiting = asyncio.create_task(run(ask))
    await asked.wait()
    assert loop_calls.current() is None
    answer.set_result("it")
    assert await waiting == "got it"


async def test_a_call_that_waits_for_nothing_ends_at_once() -> None:
    assert await run(lambda: 5) == 5


async def test_errors_reach_the_call_and_its_caller() -> None:
    async def fail() -> None:
        raise ValueError("of the awaitable")

    def handle() -> str:
        try:
            loop_calls.wait_for(fail())
        except ValueError as error:
            return str(error)
        return ""

    assert await run(handle) == "of the awaitable"
    with pytest.raises(ValueError, match="of the awaitable"):
        await run(lambda: loop_calls.wait_for(fail()))


async def test_a_cancelled_call_cleans_up_with_further_waits_and_ends() -> None:
    started, seen = asyncio.Event(), list[str]()

    async def cleaned() -> None:
        seen.append("cleaned up")

    def call() -> None:
        try:
            started.set()
            loop_calls.wait_for(asyncio.Event().wait())
        finally:
            loop_calls.wait_for(cleaned())

    greenlet = call_of(call)
    task = asyncio.create_task(loop_calls.run(greenlet))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned up"]
    assert greenlet.dead


async def test_what_a_call_binds_for_its_log_lines_stays_in_it() -> None:
    both, lines = asyncio.Barrier(2), list[dict[str, str]]()

    def call(tenant: int) -> None:
        log_context.bind(tenant=tenant)
        loop_calls.wait_for(both.wait())
        log_context.bind(session=f"s{tenant}")
        loop_calls.wait_for(both.wait())
        lines.append(log_context.facts())

    await asyncio.gather(run(lambda: call(1)), run(lambda: call(2)))
    assert sorted(lines, key=lambda each: each["tenant"]) == [
        {"tenant": "1", "session": "s1"},
        {"tenant": "2", "session": "s2"},
    ]
    assert log_context.facts() == {}


async def test_each_call_handles_its_own_exception() -> None:
    """The exception that is being handled is not that of another call that ran in between."""
    both = asyncio.Barrier(2)

    def call(name: str) -> str:
        try:
            raise ValueError(name)
        except ValueError:
            loop_calls.wait_for(both.wait())
            try:
                raise KeyError
            except KeyError as error:
                return str(error.__context__)

    assert list(await asyncio.gather(run(lambda: call("a")), run(lambda: call("b")))) == ["a", "b"]


async def test_only_an_optimistic_call_is_repeated_instead_of_failing() -> None:
    error = ValueError()

    def failing() -> str:
        loop_calls.fail(error)
        return "answered"

    def settled() -> str:
        loop_calls.settle()
        return failing()

    assert await run(failing) == "answered"
    assert await loop_calls.run(call_of(settled, is_optimistic=True)) == "answered"
    with pytest.raises(Repeat):
        await loop_calls.run(call_of(failing, is_optimistic=True))
