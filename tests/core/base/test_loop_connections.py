"""Connections of calls on the loop: clean when they are used again, shared fairly, never waited for without a limit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from typing import Any

import psycopg
import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connection, transaction

from agenthost.postgres.base import LoopConnection
from sessions_app.core.base import database, loop_calls, loop_connections, raw_sql
from sessions_app.core.base.loop_calls import LoopCall
from sessions_app.core.base.loop_connections import LoopPool
from sessions_app.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)

ANN, BEN = 1, 2


@pytest.fixture
async def pool(on_postgres: bool) -> AsyncIterator[LoopPool]:
    """Four connections, of which one owner gets two."""
    if not on_postgres:
        pytest.skip("only Postgres has connections for loops")
    loop_connections.install()
    pool = LoopPool(4, {})
    yield pool
    pool.close()
    await asyncio.to_thread(database.shut_down)


async def run(pool: LoopPool, fn: Callable[[], Any], owner: int = ANN) -> Any:
    return await pool.run(LoopCall(fn, owner, copy_context()))


def backend() -> int:
    return int(raw_sql.rows("select pg_backend_pid()")[0][0])


async def test_a_call_keeps_its_connection_and_the_next_one_gets_it(pool: LoopPool) -> None:
    first, second = await run(pool, lambda: (backend(), backend()))
    assert first == second == await run(pool, backend)


async def test_calls_at_the_same_time_have_different_connections(pool: LoopPool) -> None:
    both = asyncio.Barrier(2)

    def call() -> tuple[int, int]:
        before = backend()
        loop_calls.wait_for(both.wait())
        return before, backend()

    (a, a_after), (b, b_after) = await asyncio.gather(run(pool, call), run(pool, call))
    assert a == a_after != b == b_after


async def test_the_loop_is_idle_while_a_statement_of_django_runs(pool: LoopPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg looks for other interruptions now and then, not all the time."""
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def noted(delay: float, *args: Any, **given: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *args, **given)

    def call() -> None:
        with connection.cursor() as cursor:
            monkeypatch.setattr(loop, "call_later", noted)
            cursor.execute("select pg_sleep(0.05)")

    await run(pool, call)
    assert timers
    assert min(timers) > 0


async def test_the_loops_own_code_may_not_use_django_s_connection(pool: LoopPool) -> None:
    await run(pool, backend)
    with pytest.raises(SynchronousOnlyOperation):
        Tenant.objects.count()

    async def in_between() -> None:
        Tenant.objects.count()

    # Nor what a call waits for, which is the loop's code.
    with pytest.raises(SynchronousOnlyOperation):
        await run(pool, lambda: loop_calls.wait_for(in_between()))


def leave_transaction() -> None:
    transaction.set_autocommit(False)
    Tenant.objects.create(slug="half")


def leave_failed() -> None:
    try:
        raw_sql.rows("select 1 / 0")
    finally:
        transaction.set_autocommit(False)


def leave_in_pipeline() -> None:
    connection.ensure_connection()
    connection.connection.pgconn.enter_pipeline_mode()
    connection.connection.pgconn.send_query_params(b"select 1", None)


@pytest.mark.parametrize("leave", [leave_transaction, leave_failed, leave_in_pipeline])
async def test_a_connection_that_a_call_leaves_in_use_is_not_used_again(pool: LoopPool, leave: Callable[[], None]) -> None:
    def call() -> int:
        used = backend()
        leave()
        return used

    try:
        used = await run(pool, call)
    except Exception:
        used = 0
    assert await run(pool, backend) != used
    assert await run(pool, Tenant.objects.count) == 0
    # The slot was given back.
    assert await asyncio.gather(*(run(pool, lambda: 1) for _ in range(10))) == [1] * 10


async def test_a_call_that_is_cancelled_while_its_statement_runs_stores_nothing(pool: LoopPool) -> None:
    began = asyncio.Event()

    def call() -> None:
        with transaction.atomic():
            Tenant.objects.create(slug="half")
            asyncio.get_running_loop().call_soon(began.set)
            raw_sql.rows("select pg_sleep(60)")

    task = asyncio.create_task(run(pool, call))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await run(pool, Tenant.objects.count) == 0


@pytest.mark.parametrize("connected", [True, False])
async def test_a_call_that_is_cancelled_at_any_wait_ends_at_once_and_its_connection_is_not_used_again(
    pool: LoopPool, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    original = loop_calls.wait_for
    waits_left = 0

    def wait_for(awaitable: Any) -> Any:
        nonlocal waits_left
        waits_left -= 1
        if waits_left == 0:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return original(awaitable)

    def call() -> None:
        with transaction.atomic(durable=True):
            raw_sql.rows("select 1")
            Tenant.objects.create(slug=f"tenant-{nth}")

    nth, ended = 0, False
    while not ended:
        nth += 1
        if connected:
            await run(pool, backend)
        else:
            pool.close()
            pool = LoopPool(4, {})
        waits_left = nth
        monkeypatch.setattr(loop_calls, "wait_for", wait_for)
        task = asyncio.create_task(run(pool, call))
        await asyncio.wait([task])
        monkeypatch.setattr(loop_calls, "wait_for", original)
        ended = waits_left > 0
        assert task.cancelled() is not ended, f"at wait {nth}"
        # Once the server has handled what was sent, the next transaction works.
        assert await run(pool, lambda: Tenant.objects.filter(slug="none").count()) == 0
    assert nth > 3
    pool.close()


async def test_without_a_free_connection_a_call_is_refused_in_time_and_others_are_served(pool: LoopPool) -> None:
    holds, may_end = asyncio.Barrier(3), asyncio.Event()

    def hold() -> None:
        backend()
        loop_calls.wait_for(holds.wait())
        loop_calls.wait_for(may_end.wait())

    holding = [asyncio.create_task(run(pool, hold)) for _ in range(2)]
    await holds.wait()
    # Half of the connections for one owner.
    with pytest.raises(loop_calls.NeedsThread):
        await run(pool, backend)
    assert await run(pool, backend, owner=BEN)
    may_end.set()
    await asyncio.gather(*holding)
    assert await run(pool, backend)


async def test_a_request_without_a_free_connection_is_answered_in_a_thread(pool: LoopPool) -> None:
    holds, may_end = asyncio.Event(), asyncio.Event()

    def hold() -> None:
        backend()
        holds.set()
        loop_calls.wait_for(may_end.wait())

    def ask() -> bool:
        return backend() > 0 and loop_calls.current() is None

    # One connection of the loop is all that one owner gets.
    holding = asyncio.create_task(database.serve_on_loop(ANN, 60, copy_context(), hold))
    await holds.wait()
    assert await database.serve_on_loop(ANN, 60, copy_context(), ask)
    may_end.set()
    await holding


async def test_an_owner_is_not_kept_out_of_batches_for_longer_because_it_found_no_connection(
    pool: LoopPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, may_end = asyncio.Event(), asyncio.Event()

    def hold() -> None:
        backend()
        holds.set()
        loop_calls.wait_for(may_end.wait())

    holding = asyncio.create_task(database.serve_on_loop(ANN, 60, copy_context(), hold))
    await holds.wait()
    monkeypatch.setattr(database, "_kept_out", {ANN: float("inf")})
    assert await database.serve_on_loop(ANN, 60, copy_context(), backend)
    assert database._kept_out == {ANN: float("inf")}
    may_end.set()
    await holding


@pytest.mark.parametrize("is_idle", [True, False])
async def test_a_connection_that_the_server_has_ended_is_replaced(pool: LoopPool, is_idle: bool) -> None:
    used = await run(pool, backend)
    if is_idle:
        await asyncio.to_thread(terminate, used)
    else:
        with pytest.raises(psycopg.OperationalError):
            await run(pool, lambda: _wrapped(lambda: raw_sql.rows("select pg_terminate_backend(pg_backend_pid())")))
    assert await run(pool, backend) != used


def _wrapped(fn: Callable[[], Any]) -> Any:
    """Raise psycopg's error instead of Django's."""
    try:
        return fn()
    except Exception as error:
        raise (error.__cause__ or error) from None


def terminate(pid: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 60000)", [pid])


async def test_without_the_database_a_request_is_answered_in_a_thread(pool: LoopPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose pool knows how long to wait for it, and reports that it is away."""

    def refuse(**_: Any) -> None:
        raise psycopg.OperationalError("away")

    monkeypatch.setattr(LoopConnection, "connect", refuse)
    answers = [await database.serve_on_loop(ANN, 60, copy_context(), lambda: (loop_calls.current(), backend())) for _ in range(2)]
    assert [in_call for in_call, _ in answers] == [None, None]
    assert all(pid for _, pid in answers)


async def test_a_closed_pool_closes_the_connections_in_use_when_their_calls_end(pool: LoopPool) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    def call() -> int:
        used = backend()
        entered.set()
        loop_calls.wait_for(may_end.wait())
        assert backend() == used
        return used

    task = asyncio.create_task(run(pool, call))
    await entered.wait()
    pool.close()
    may_end.set()
    used = await task
    assert await run(pool, backend) != used


async def test_a_call_that_gets_no_connection_frees_its_slot(pool: LoopPool, monkeypatch: pytest.MonkeyPatch) -> None:
    await run(pool, backend)
    with monkeypatch.context() as patch:
        patch.setattr(loop_connections, "_thread_wrapper", _broken)
        # The idle connection is not used, because the server has ended it.
        patch.setattr("agenthost.postgres.base.LoopDatabaseWrapper.is_usable", lambda _: False)
        for _ in range(8):
            with pytest.raises(ValueError, match="broken"):
                await run(pool, backend)
    assert await run(pool, backend)


def _broken() -> None:
    raise ValueError("broken")


# --- transactions without BEGIN ---


def lock(slug: str) -> list[tuple[Any, ...]]:
    return raw_sql.rows("select id from sessions_app_tenant where slug = %s for update", (slug,))


async def is_locked(slug: str) -> bool:
    def look() -> bool:
        free = "select id from sessions_app_tenant where slug = %s for update skip locked"
        return not raw_sql.rows(free, (slug,))

    return await asyncio.to_thread(database_call, look)


def database_call(fn: Callable[[], Any]) -> Any:
    try:
        return fn()
    finally:
        connection.close()


async def test_an_implicit_transaction_is_one(pool: LoopPool) -> None:
    await asyncio.to_thread(database_call, lambda: Tenant.objects.create(slug="ann"))
    seen = []

    def call() -> None:
        with raw_sql.implicit_transaction():
            number = raw_sql.rows("select pg_current_xact_id()")
            lock("ann")
            seen.append(loop_calls.wait_for(is_locked("ann")))
            assert raw_sql.rows("select pg_current_xact_id()") == number
            raw_sql.execute_and_commit([raw_sql.Statement("update sessions_app_tenant set slug = 'ben' where slug = 'ann'")])
            seen.append(loop_calls.wait_for(is_locked("ben")))

    await run(pool, call)
    assert seen == [True, False]
    assert len(pool._idle) == 1


@pytest.mark.parametrize("how", ["leaves", "raises", "fails", "cannot be sent"])
async def test_an_implicit_transaction_that_is_not_committed_stores_nothing(pool: LoopPool, how: str) -> None:
    await asyncio.to_thread(database_call, lambda: Tenant.objects.create(slug="ann"))

    def call() -> None:
        with raw_sql.implicit_transaction():
            raw_sql.rows("update sessions_app_tenant set slug = 'ben' where slug = 'ann' returning id")
            if how == "raises":
                raise ValueError
            if how == "fails":
                raw_sql.rows("select 1 / 0")
            if how == "cannot be sent":
                raw_sql.execute_and_commit([raw_sql.Statement("select %s::text", ("\0",))])

    if how == "leaves":
        await run(pool, call)
    else:
        with pytest.raises((ValueError, DatabaseError)):
            await run(pool, call)
    assert await asyncio.to_thread(database_call, lambda: list(Tenant.objects.values_list("slug", flat=True))) == ["ann"]
    # The connection is used again.
    assert len(pool._idle) == 1
    assert await run(pool, lambda: raw_sql.rows("select 1")) == [(1,)]


async def test_an_implicit_transaction_of_a_process_that_hangs_is_ended(pool: LoopPool) -> None:
    """Its locks would be held for ever: it does not count as idle."""
    await asyncio.to_thread(database_call, lambda: Tenant.objects.create(slug="ann"))

    def call() -> None:
        (limit,) = raw_sql.rows(
            "select current_setting('transaction_timeout'), current_setting('idle_in_transaction_session_timeout')"
        )
        assert limit[0] == limit[1] != "0"
        raw_sql.rows("set transaction_timeout = '3s'")
        with raw_sql.implicit_transaction():
            lock("ann")
            assert loop_calls.wait_for(is_locked("ann"))
            end = time.monotonic() + 60
            while loop_calls.wait_for(is_locked("ann")):
                assert time.monotonic() < end
                time.sleep(0.1)
            lock("ann")

    with pytest.raises(DatabaseError):
        await run(pool, call)
    assert pool._idle == []
