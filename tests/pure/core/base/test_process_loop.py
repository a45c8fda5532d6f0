"""Loops that carry a process's connections: which one is used, and what is closed with it."""

from __future__ import annotations

import asyncio
import os
import threading

from sessions_app.core.base import process_loop


async def test_connections_of_a_released_loop_are_closed_in_it() -> None:
    here = asyncio.get_running_loop()
    closed: list[asyncio.AbstractEventLoop] = []

    async def close() -> None:
        closed.append(asyncio.get_running_loop())

    assert not process_loop.attach(here, close)
    process_loop.adopt()
    try:
        assert process_loop.attach(here, close)
    finally:
        await process_loop.release()
    assert closed == [here]
    assert not process_loop.attach(here, close)
    await process_loop.release()
    assert closed == [here]


async def test_the_loop_of_the_process_is_the_first_that_was_adopted_and_is_still_there() -> None:
    async def adopt() -> asyncio.AbstractEventLoop:
        process_loop.adopt()
        return asyncio.get_running_loop()

    others = [asyncio.new_event_loop() for _ in range(2)]
    first, second = [await asyncio.to_thread(loop.run_until_complete, adopt()) for loop in others]
    assert process_loop.current() is first
    await asyncio.to_thread(first.run_until_complete, process_loop.release())
    assert process_loop.current() is second
    await asyncio.to_thread(second.run_until_complete, process_loop.release())
    assert process_loop.current() is None
    for loop in others:
        loop.close()


async def test_only_code_that_runs_in_a_loop_is_in_it() -> None:
    here = asyncio.get_running_loop()
    assert process_loop.is_running_in(here)
    assert not process_loop.is_running_in(None)
    assert not await asyncio.to_thread(process_loop.is_running_in, here)


async def test_a_forked_process_has_no_loop() -> None:
    def fork() -> int:
        child = os.fork()
        if not child:
            os._exit(0 if process_loop.current() is None else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    process_loop.adopt()
    try:
        assert fork() == 0
        assert process_loop.current() is asyncio.get_running_loop()
    finally:
        await process_loop.release()


async def test_a_loop_that_hangs_is_silent_and_one_that_waits_is_not() -> None:
    assert not await asyncio.to_thread(process_loop.silent, 0.01)
    process_loop.adopt()
    try:
        assert not await asyncio.to_thread(process_loop.silent, 30.0)
        found: list[bool] = []
        watcher = threading.Thread(target=lambda: found.append(process_loop.silent(0.05)))
        watcher.start()
        # The loop does nothing else meanwhile.
        watcher.join()
        assert found == [True]
    finally:
        await process_loop.release()
