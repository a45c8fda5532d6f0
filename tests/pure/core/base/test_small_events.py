"""The event and the queue that take little memory."""

from __future__ import annotations

import asyncio

from sessions_app.core.base.small_events import SmallEvent, SmallQueue


async def test_setting_the_event_wakes_all_that_wait() -> None:
    event = SmallEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    event.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [True, True]
    assert await event.wait()


async def test_a_cleared_event_has_to_be_set_again() -> None:
    event = SmallEvent()
    event.set()
    event.clear()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    assert await waiting


async def test_a_queue_gives_its_items_in_order() -> None:
    queue = SmallQueue[int]()
    queue.put_nowait(1)
    queue.put_nowait(2)
    assert (queue.qsize(), queue.empty()) == (2, False)
    assert [await queue.get(), await queue.get()] == [1, 2]
    assert queue.empty()


async def test_a_queue_wakes_the_task_that_waits_for_an_item() -> None:
    queue = SmallQueue[int]()
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.put_nowait(1)
    queue.put_nowait(2)
    assert await taking == 1
    assert await queue.get() == 2


async def test_a_cancelled_task_takes_no_item() -> None:
    queue = SmallQueue[int]()
    taking = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    taking.cancel()
    queue.put_nowait(1)
    await asyncio.wait([taking])
    assert taking.cancelled()
    assert await queue.get() == 1
