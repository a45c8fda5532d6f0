"""Barriers in the process's loop: who waits gets the era, whatever happens to the connection meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest
from django.db import connection

from ops.services import free_port
from sessions_app.core.base import own_connection
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import journal
from sessions_app.core.log.journal import barriers, loop_barriers
from sessions_app.core.log.journal.loop_barriers import LoopBarriers
from tests.core.log.adopted import Adopted, adopted_loop

from .conftest import WAIT, World


@pytest.fixture(autouse=True)
def _postgres_alone(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no barriers")


@pytest.fixture
def loop(transactional_db: None) -> Iterator[Adopted]:
    with adopted_loop() as made:
        yield made


def era(world: World) -> int:
    """The present era, which the first append makes."""
    world.tenant()
    with connection.cursor() as cursor:
        cursor.execute("select id from journal_era")
        return int(cursor.fetchone()[0])


async def passed() -> int | None:
    return await barriers.passed_async()


def backend_of(loop: Adopted) -> int:
    """The process of Postgres that runs the loop's barriers."""
    connected = barriers._of_loops[loop.loop]._connection
    assert connected is not None
    return connected.info.backend_pid


def is_there(backend: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_stat_activity where pid = %s", [backend])
        return bool(cursor.fetchone()[0])


def test_coroutines_and_threads_pass_without_a_thread_for_barriers(loop: Adopted, world: World) -> None:
    now = era(world)
    journal.close()
    assert loop.do(passed()) == now
    assert barriers.passed().result(WAIT) == now
    barriers.wait(now)
    journal.barrier()
    loop.do(journal.barrier_async())
    assert "journal-barrier" not in {thread.name for thread in threading.enumerate()}


def test_callers_that_wait_at_the_same_time_share_a_barrier(loop: Adopted, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now, sent = era(world), 0
    real = LoopBarriers._flush

    def count(self: LoopBarriers, pgconn: psycopg.pq.abc.PGconn) -> None:
        nonlocal sent
        sent += 1
        real(self, pgconn)

    async def many() -> set[int | None]:
        # Connected first, so that the first of the many does not wait for that.
        await passed()
        monkeypatch.setattr(LoopBarriers, "_flush", count)
        return set(await asyncio.gather(*(passed() for _ in range(100))))

    assert loop.do(many()) == {now}
    # The first begins at once, and all others wait for its end.
    assert sent == 2


def test_a_barrier_begins_after_its_caller_has_asked(loop: Adopted, world: World) -> None:
    """A barrier that is under way does not serve a caller whose commit came later."""

    async def one_after_the_other() -> tuple[bool, int | None]:
        await passed()
        first, second = barriers.passed_async(), barriers.passed_async()
        await first
        return second.done(), await second

    now = era(world)
    assert loop.do(one_after_the_other()) == (False, now)


def test_a_lost_connection_is_replaced(loop: Adopted, world: World) -> None:
    now = era(world)
    assert loop.do(passed()) == now
    backend = backend_of(loop)
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s::int)", [backend])
    assert loop.do(passed()) == now
    assert barriers.passed().result(WAIT) == now
    assert backend_of(loop) != backend


def test_who_waits_when_the_connection_is_lost_is_answered_after_a_retry(loop: Adopted, world: World) -> None:
    now = era(world)

    async def lose_it() -> int | None:
        await passed()
        asked = barriers.passed_async()
        # The answer of the barrier that is under way cannot arrive any more.
        with psycopg.connect(**own_connection.connection_parameters(), autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s::int)", [backend_of(loop)])
        return await asked

    assert loop.do(lose_it()) == now


class _Breaking:
    """Passes connections through to the database, and breaks the first one at the first bytes after ``breaks`` was set."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._target = (parameters["host"], int(parameters["port"]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.breaks, self.broken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, socket.create_connection(self._target) as server:
                    self._through(client, server)

    def _through(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for readable in select.select([client, server], [], [])[0]:
                if readable is client and self.breaks.is_set() and not self.broken.is_set():
                    # A notice without its end, as a backend may send one that dies; the barrier stays unread, which resets.
                    client.sendall(b"N\0\0\0\x50")
                    client.close()
                    self.broken.set()
                    return
                data = readable.recv(65536)
                if not data:
                    return
                (server if readable is client else client).sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT)


def test_a_connection_that_breaks_within_an_answer_is_replaced(loop: Adopted, world: World) -> None:
    """uvloop says once that a socket has an error, although what had arrived before has to be read first."""
    now = era(world)
    parameters = own_connection.connection_parameters()
    database = _Breaking(parameters)

    async def broken() -> int | None:
        made = LoopBarriers(loop.loop, {**parameters, "port": database.port})
        try:
            first = made.ask()
            assert first is not None
            assert await first == now
            database.breaks.set()
            second = made.ask()
            assert second is not None
            # The loop sees the notice and the reset at once.
            assert database.broken.wait(WAIT)
            return await asyncio.wait_for(second, WAIT)
        finally:
            await made.close()

    try:
        assert loop.do(broken()) == now
    finally:
        database.close()


def test_after_a_crash_the_era_is_another(loop: Adopted, world: World) -> None:
    before = era(world)
    assert loop.do(passed()) == before
    with connection.cursor() as cursor:
        cursor.execute("delete from journal_era")
    with pytest.raises(NotReady):
        barriers.wait(before)


def test_a_database_that_comes_back_in_time_answers_and_one_that_does_not_is_not_ready(
    loop: Adopted, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_barriers, "PAUSE_SECONDS", 0.01)
    now = era(world)
    parameters = own_connection.connection_parameters()
    away = {**parameters, "port": free_port()}
    tried = threading.Event()
    real = LoopBarriers._lost

    def lost(self: LoopBarriers, error: psycopg.Error) -> None:
        real(self, error)
        tried.set()

    monkeypatch.setattr(LoopBarriers, "_lost", lost)

    async def make() -> LoopBarriers:
        return LoopBarriers(loop.loop, away)

    made = loop.do(make())
    asked = made.ask_from_thread()
    assert asked is not None
    assert tried.wait(WAIT)
    away["port"] = parameters["port"]
    assert asked.result(WAIT) == now

    away["port"] = free_port()
    monkeypatch.setattr(loop_barriers, "TIMEOUT_SECONDS", 0.05)
    loop.loop.call_soon_threadsafe(made._disconnect)
    asked = made.ask_from_thread()
    assert asked is not None
    with pytest.raises(NotReady):
        asked.result(WAIT)
    monkeypatch.setattr(loop_barriers, "TIMEOUT_SECONDS", WAIT)
    away["port"] = parameters["port"]
    again = made.ask_from_thread()
    assert again is not None
    assert again.result(WAIT) == now
    loop.do(made.close())


def test_a_caller_that_gives_up_disturbs_nobody(loop: Adopted, world: World) -> None:
    now = era(world)

    async def give_up() -> int | None:
        first, second = barriers.passed_async(), barriers.passed_async()
        first.cancel()
        return await second

    assert loop.do(give_up()) == now


def test_who_waits_when_the_loop_is_released_is_served_and_later_callers_use_a_thread(loop: Adopted, world: World) -> None:
    now = era(world)
    journal.close()
    asked: list[Future[int | None]] = []

    async def ask() -> asyncio.Future[int | None]:
        asked.extend(await asyncio.gather(*(asyncio.to_thread(barriers.passed) for _ in range(3))))
        return barriers.passed_async()

    assert loop.do(passed()) == now
    backend = backend_of(loop)
    own = loop.do(ask())
    loop.release()
    assert own.result() == now
    assert [each.result(0) for each in asked] == [now] * 3
    until = time.monotonic() + WAIT
    while is_there(backend):
        assert time.monotonic() < until, "the connection is still there"
    assert barriers.passed().result(WAIT) == now
    assert loop.do(passed()) == now
    assert "journal-barrier" in {thread.name for thread in threading.enumerate()}


def test_blocking_code_in_the_loop_does_not_wait_for_itself(loop: Adopted, world: World) -> None:
    now = era(world)

    async def block() -> int | None:
        return barriers.passed().result(WAIT)

    assert loop.do(block()) == now
