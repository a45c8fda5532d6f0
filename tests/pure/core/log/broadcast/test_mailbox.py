"""The bounded queue between threads and loops."""

from __future__ import annotations

import asyncio
import threading

import orjson

from sessions_app.core.log.broadcast.mailbox import Mailbox


def payload(*numbers: int) -> bytes:
    return orjson.dumps([{"n": number} for number in numbers])


async def test_messages_arrive_in_order_and_all_that_are_there_at_once() -> None:
    box = Mailbox(10, 1000)
    box.put(payload(1, 2))
    box.put(payload(3))
    assert await box.take() == ([{"n": 1}, {"n": 2}, {"n": 3}], False)


async def test_a_receiver_hears_of_an_overflow_after_what_came_before_it() -> None:
    box = Mailbox(2, 1000)
    assert [box.put(payload(n)) for n in range(4)] == [True, True, False, False]
    assert await box.take() == ([{"n": 0}, {"n": 1}], True)
    assert box.put(payload(9))
    assert await box.take() == ([{"n": 9}], False)


async def test_what_comes_after_a_loss_is_kept() -> None:
    box = Mailbox(3, 1000, lost=True)
    box.put(payload(1))
    box.mark_lost()
    box.mark_lost()
    assert box.put(payload(2)) is False
    assert await box.take() == ([], True)
    assert box.put(payload(3))
    assert await box.take() == ([{"n": 1}], True)
    assert await box.take() == ([{"n": 3}], False)


async def test_bytes_are_bounded_but_one_message_always_fits() -> None:
    box = Mailbox(100, 20)
    assert box.put(payload(*range(50)))
    assert not box.put(payload(1))
    messages, lost = await box.take()
    assert (len(messages), lost) == (50, True)


async def test_one_at_a_time_the_loss_stands_at_its_place() -> None:
    box = Mailbox(1, 1000)
    box.put(payload(1, 2))
    box.put(payload(3))
    assert [await box.take_one() for _ in range(3)] == [{"n": 1}, {"n": 2}, None]


async def test_a_receiver_that_gives_up_passes_its_turn_on() -> None:
    box = Mailbox(10, 1000)
    first = asyncio.create_task(box.take())
    second = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    box.put(payload(1))
    # The first was woken by the message; it is cancelled before it runs.
    first.cancel()
    assert await asyncio.wait_for(second, 60) == ([{"n": 1}], False)


def test_a_receiver_whose_loop_has_ended_is_passed_over() -> None:
    box = Mailbox(10, 1000)
    ended = asyncio.new_event_loop()
    waiting = ended.create_task(box.take())
    ended.run_until_complete(asyncio.sleep(0))
    ended.close()
    box.put(payload(1))
    assert asyncio.run(asyncio.wait_for(box.take(), 60)) == ([{"n": 1}], False)
    del waiting


async def test_other_tasks_run_while_a_receiver_always_has_messages() -> None:
    box = Mailbox(10, 1000)
    stopped = False

    async def stop() -> None:
        nonlocal stopped
        stopped = True

    stopping = asyncio.create_task(stop())
    received = 0
    while not stopped and received < 100:
        box.put(payload(received))
        received += len((await box.take())[0])
    assert stopped
    await stopping


async def test_a_loop_waits_for_what_another_thread_puts() -> None:
    box = Mailbox(10_000, 1_000_000)
    received: list[int] = []

    def put() -> None:
        for number in range(2000):
            box.put(payload(number))

    thread = threading.Thread(target=put)
    thread.start()
    async with asyncio.timeout(90):
        while len(received) < 2000:
            messages, lost = await box.take()
            assert not lost
            received += [message["n"] for message in messages]
    thread.join()
    assert received == list(range(2000))


async def test_a_receiver_whose_loop_is_gone_keeps_nobody_from_hearing() -> None:
    box = Mailbox(10, 1000)
    gone = asyncio.new_event_loop()
    waiting = gone.create_task(box.take())
    await asyncio.to_thread(gone.run_until_complete, asyncio.wait([waiting], timeout=0.01))
    here = asyncio.create_task(box.take())
    await asyncio.sleep(0)
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be left alone
    gone.close()
    box.put(payload(5))
    assert await asyncio.wait_for(here, 60) == ([{"n": 5}], False)
