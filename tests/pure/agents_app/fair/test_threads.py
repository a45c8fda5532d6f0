"""The pool for blocking tools: bounded, fair, and quick to let its callers go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from agents_app.fair.threads import FairPool


class Gate:
    """A function that blocks its thread until told, and says when it began."""

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


async def test_a_function_runs_in_a_thread_and_its_result_or_error_comes_back() -> None:
    pool = FairPool(2)
    assert await pool.run("a", threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", lambda: 1 // 0)
    # No coroutine can raise it as it is.
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run("a", lambda: next(iter(())))
    assert await pool.run("a", lambda: "still here") == "still here"
    pool.close()


async def test_one_key_has_at_most_half_of_the_threads_and_others_do_not_wait_for_it() -> None:
    pool = FairPool(4)
    gates = [Gate() for _ in range(5)]
    greedy = [asyncio.create_task(pool.run("greedy", gate)) for gate in gates]
    await seen(lambda: sum(gate.began.is_set() for gate in gates) == 2)
    assert await pool.run("modest", lambda: "served") == "served"
    assert sum(gate.began.is_set() for gate in gates) == 2
    for gate in gates:
        gate.go.set()
    assert await asyncio.gather(*greedy) == ["through"] * 5
    pool.close()


async def test_many_greedy_keys_leave_a_thread_for_one_that_has_none() -> None:
    pool = FairPool(4)
    gates = [Gate() for _ in range(6)]
    greedy = [asyncio.create_task(pool.run(f"greedy {number % 2}", gate)) for number, gate in enumerate(gates)]
    await seen(lambda: sum(gate.began.is_set() for gate in gates) == 3)
    assert await pool.run("modest", lambda: "served") == "served"
    assert sum(gate.began.is_set() for gate in gates) == 3
    for gate in gates:
        gate.go.set()
    assert await asyncio.gather(*greedy) == ["through"] * 6
    pool.close()


async def test_of_those_that_wait_the_key_with_the_fewest_threads_goes_first() -> None:
    pool = FairPool(2)
    order: list[str] = []
    first, second = Gate(), Gate()
    running = [asyncio.create_task(pool.run("a", first)), asyncio.create_task(pool.run("b", second))]
    await seen(lambda: first.began.is_set() and second.began.is_set())
    waiting = [asyncio.create_task(pool.run(key, lambda key=key: order.append(key))) for key in ("a", "a", "c")]  # type: ignore[misc]
    await asyncio.sleep(0)
    second.go.set()
    await waiting[2]
    assert order == ["c"]
    first.go.set()
    await asyncio.gather(*running, *waiting)
    pool.close()


async def test_a_cancelled_caller_goes_on_at_once_while_the_thread_stays_taken() -> None:
    pool = FairPool(1)
    gate = Gate()
    task = asyncio.create_task(pool.run("a", gate))
    await seen(gate.began.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = asyncio.create_task(pool.run("b", lambda: "after"))
    await asyncio.sleep(0)
    assert not after.done()
    gate.go.set()
    assert await after == "after"
    pool.close()


async def test_what_was_cancelled_while_it_waited_never_runs() -> None:
    pool = FairPool(1)
    gate = Gate()
    ran: list[int] = []
    first = asyncio.create_task(pool.run("a", gate))
    second = asyncio.create_task(pool.run("a", lambda: ran.append(1)))
    await seen(gate.began.is_set)
    second.cancel()
    await asyncio.wait({second})
    gate.go.set()
    await first
    assert await pool.run("a", lambda: "last") == "last"
    assert ran == []
    pool.close()


async def test_time_counts_from_the_start_of_the_function_not_from_the_queue() -> None:
    pool = FairPool(1)
    gate = Gate()
    first = asyncio.create_task(pool.run("a", gate))
    second = asyncio.create_task(pool.run("a", lambda: "ran", timeout=1))
    await seen(gate.began.is_set)
    done, _ = await asyncio.wait({second}, timeout=1.5)
    assert not done
    gate.go.set()
    assert await first == "through"
    assert await second == "ran"
    pool.close()


async def test_a_function_out_of_time_is_given_up() -> None:
    pool = FairPool(2)
    gate = Gate()
    with pytest.raises(TimeoutError):
        await pool.run("a", gate, timeout=0.05)
    gate.go.set()
    pool.close()


async def test_closing_refuses_new_work_and_frees_those_that_wait() -> None:
    pool = FairPool(1)
    gate = Gate()
    first = asyncio.create_task(pool.run("a", gate))
    second = asyncio.create_task(pool.run("a", lambda: None))
    await seen(gate.began.is_set)
    pool.close()
    with pytest.raises(asyncio.CancelledError):
        await second
    with pytest.raises(RuntimeError):
        await pool.run("a", lambda: None)
    gate.go.set()
    assert await first == "through"


async def test_many_small_functions_of_many_keys_all_come_back() -> None:
    pool = FairPool(4)
    found = await asyncio.gather(*(pool.run(number % 7, lambda number=number: number) for number in range(500)))  # type: ignore[misc]
    assert found == list(range(500))
    pool.close()
