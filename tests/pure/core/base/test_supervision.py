"""What must not end: the process says why, without words that could be somebody's, and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest

from sessions_app.core.base import supervision

WORDS = "words of a row"


async def _raises() -> None:
    await asyncio.sleep(0)
    raise ValueError(WORDS)


async def _returns() -> None:
    await asyncio.sleep(0)


async def _waits_for_what_is_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    await future


@pytest.mark.parametrize(
    ("work", "why"),
    [(_raises, "ValueError"), (_returns, "it returned"), (_waits_for_what_is_cancelled, "CancelledError")],
)
async def test_a_task_that_ends_by_itself_ends_the_process(
    work: Callable[[], object], why: str, process_ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    task = supervision.task(work(), "example")  # type: ignore[arg-type]  # each is a coroutine function
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert process_ends == [supervision.EXIT_CODE]
    process_ends.clear()
    assert "task 'example' ended unexpectedly" in caplog.text
    assert why in caplog.text
    assert WORDS not in caplog.text


async def test_a_task_that_is_cancelled_ends_nothing(process_ends: list[int]) -> None:
    task = supervision.task(asyncio.sleep(3600), "example")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert process_ends == []


async def test_what_is_to_happen_instead_leaves_the_process(process_ends: list[int], caplog: pytest.LogCaptureFixture) -> None:
    told: list[BaseException | None] = []
    task = supervision.task(_raises(), "example", instead=told.append)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [type(error) for error in told] == [ValueError]
    assert process_ends == []
    assert "task_ended" in caplog.text
    assert WORDS not in caplog.text


def _raise() -> None:
    raise ValueError(WORDS)


@pytest.mark.parametrize(
    ("work", "may_return", "codes"),
    [(_raise, True, [supervision.EXIT_CODE]), (int, False, [supervision.EXIT_CODE]), (int, True, [])],
)
def test_a_thread_that_ends_by_itself_ends_the_process(
    work: Callable[[], object], may_return: bool, codes: list[int], process_ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    thread = supervision.thread(work, "example", may_return=lambda: may_return)
    thread.start()
    thread.join(60)
    assert process_ends == codes
    process_ends.clear()
    assert ("thread 'example' ended unexpectedly" in caplog.text) == bool(codes)
    assert WORDS not in caplog.text


async def test_all_tasks_of_a_loop_end_and_none_is_cancelled_before_it_has_begun() -> None:
    """anyio wraps a coroutine in a task: if that task never begins, the coroutine is never awaited, which is a warning."""
    ended: list[str] = []

    async def child(name: str) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(name)

    async def parent() -> None:
        async with anyio.create_task_group() as group:
            try:
                await asyncio.sleep(3600)
            finally:
                # The child is new when the parent is cancelled.
                group.start_soon(child, "of the group")

    started = [asyncio.create_task(parent()), asyncio.create_task(child("a task"))]
    await asyncio.sleep(0)
    started.append(asyncio.create_task(child("a new task")))
    await supervision.end_tasks(10)
    assert all(task.done() for task in started)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert sorted(ended) == ["a new task", "a task", "of the group"]


async def test_a_task_that_does_not_end_is_left_after_a_time_limit() -> None:
    let = asyncio.Event()

    async def refuses() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await let.wait()

    task = asyncio.create_task(refuses())
    await supervision.end_tasks(0.05)
    assert not task.done()
    assert task.cancelling() == 1
    let.set()
    await asyncio.wait([task])
