"""Database work of loops: one tenant's calls that stand still, and everybody else's beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction
from pytest_django import Settings

from sessions_app.core.base import database
from sessions_app.models import Tenant

A, B = 1, 2


@pytest.fixture
async def eight(settings: Settings) -> AsyncIterator[None]:
    """Pools of eight threads, made anew."""
    await asyncio.to_thread(database.shut_down)
    settings.AGENTHOST_DATABASE_THREADS = 8
    yield
    await asyncio.to_thread(database.shut_down)


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.002)


@pytest.mark.usefixtures("eight")
async def test_calls_of_one_tenant_that_stand_still_hold_up_neither_another_tenants_nor_the_processs_own() -> None:
    go, standing = threading.Event(), threading.Semaphore(0)

    def stand() -> None:
        standing.release()
        assert go.wait(60)

    calls = [asyncio.create_task(database.run_for(A, stand)) for _ in range(20)]
    for _ in range(4):
        assert await asyncio.to_thread(standing.acquire, timeout=60)
    assert await database.run_for(B, lambda: "B's") == "B's"
    assert await database.run(lambda: "the process's own") == "the process's own"
    assert not standing.acquire(blocking=False), "half of the threads, and no more"
    go.set()
    await asyncio.gather(*calls)


@pytest.mark.usefixtures("eight")
async def test_one_kind_of_the_processs_own_work_that_stands_still_leaves_threads_for_the_others() -> None:
    go, standing = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        standing.release()
        assert go.wait(60)

    hanging = [asyncio.create_task(database.run(hang)) for _ in range(20)]
    for _ in range(4):
        assert await asyncio.to_thread(standing.acquire, timeout=60)
    assert await database.run(lambda: "swept") == "swept"
    go.set()
    await asyncio.gather(*hanging)


@pytest.mark.usefixtures("eight")
async def test_requests_and_calls_of_one_tenant_that_stand_still_leave_connections_for_others(settings: Settings) -> None:
    """Each holds a connection, of which there are as few as there are threads for calls."""
    settings.AGENTHOST_DATABASE_POOL_MAX = 8
    go, standing = threading.Event(), threading.Semaphore(0)

    def stand() -> None:
        standing.release()
        assert go.wait(60)

    tasks = [asyncio.create_task(database.run_for(A, stand)) for _ in range(20)]
    tasks += [asyncio.create_task(database.serve(A, None, copy_context(), stand)) for _ in range(20)]
    for _ in range(6):
        assert await asyncio.to_thread(standing.acquire, timeout=60)
    assert await database.run_for(B, lambda: "B's") == "B's"
    assert await database.serve(B, None, copy_context(), lambda: "B's request") == "B's request"
    assert not standing.acquire(blocking=False), "three quarters of the connections, and no more"
    go.set()
    await asyncio.gather(*tasks)


@pytest.mark.usefixtures("eight", "transactional_db")
async def test_a_call_whose_row_is_locked_is_done_later_and_frees_its_thread_between_the_tries(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    tenant = await database.run(lambda: Tenant.objects.create(slug="held"))
    locked, may_end, tries = threading.Event(), threading.Event(), []

    def hold() -> None:
        with transaction.atomic():
            Tenant.objects.select_for_update().get(pk=tenant.pk)
            locked.set()
            assert may_end.wait(60)

    def rename() -> str:
        tries.append(threading.get_ident())
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("set local lock_timeout to 20")
            Tenant.objects.filter(pk=tenant.pk).update(slug="renamed")
        return "done"

    holding = asyncio.create_task(database.run(hold))
    await seen(locked.is_set)
    renaming = [asyncio.create_task(database.keep_trying(A, rename)) for _ in range(8)]
    await seen(lambda: len(tries) > 16)
    # Of the same tenant, while twice as many wait as it has threads.
    assert await database.run_for(A, lambda: "meanwhile") == "meanwhile"
    may_end.set()
    assert await asyncio.gather(*renaming) == ["done"] * 8
    await holding


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("error", [OperationalError("gone away"), IntegrityError("twice")])
async def test_other_errors_are_not_tried_again(error: Exception) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise error

    with pytest.raises(type(error)):
        await database.keep_trying(A, fail)
    assert len(tries) == 1
