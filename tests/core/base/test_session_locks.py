"""Locks that one process of the deployment holds at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from sessions_app.core.base.session_locks import Lock, SessionLocks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make() -> Iterator[Callable[..., SessionLocks]]:
    made: list[SessionLocks] = []

    def make(idle_seconds: float = 60.0) -> SessionLocks:
        made.append(SessionLocks(idle_seconds))
        return made[-1]

    yield make
    for locks in made:
        locks.close()


@pytest.fixture
def postgres() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only Postgres has several processes")


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end


def end_sessions_that_hold_locks() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()"
            " and database = (select oid from pg_database where datname = current_database())"
        )


@pytest.mark.usefixtures("postgres")
def test_one_holds_a_lock_until_it_releases_it(make: Callable[..., SessionLocks]) -> None:
    first, second = make(), make()
    assert first.hold(Lock.DUTIES)
    assert first.hold(Lock.DUTIES)
    assert not second.hold(Lock.DUTIES)
    assert not second.is_free(Lock.DUTIES)
    assert second.hold(Lock.HOUSEKEEPING)
    # However often it was asked for.
    first.release(Lock.DUTIES)
    assert second.is_free(Lock.DUTIES)
    assert second.hold(Lock.DUTIES)
    assert not first.hold(Lock.DUTIES)


@pytest.mark.usefixtures("postgres")
def test_looking_at_a_lock_takes_it_from_nobody(make: Callable[..., SessionLocks]) -> None:
    first, second, third = make(), make(), make()
    assert first.is_free(Lock.BEAT_ROLE)
    assert second.is_free(Lock.BEAT_ROLE)
    assert third.hold(Lock.BEAT_ROLE)


@pytest.mark.usefixtures("postgres")
def test_a_lock_ends_with_its_connection(make: Callable[..., SessionLocks]) -> None:
    first, second = make(), make()
    assert first.hold(Lock.DUTIES)
    end_sessions_that_hold_locks()
    until(lambda: second.hold(Lock.DUTIES))
    # The first notices when it asks, and asks again with a new connection.
    assert not first.hold(Lock.DUTIES)
    second.close()
    until(lambda: first.hold(Lock.DUTIES))


@pytest.mark.usefixtures("postgres")
def test_who_does_not_ask_for_long_loses_its_locks(make: Callable[..., SessionLocks]) -> None:
    hanging, other = make(1.0), make()
    assert hanging.hold(Lock.DUTIES)
    until(lambda: other.hold(Lock.DUTIES))
    assert not hanging.hold(Lock.DUTIES)


def test_on_sqlite_the_one_process_holds_all_locks(make: Callable[..., SessionLocks]) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("for SQLite")
    locks = make()
    assert locks.hold(Lock.DUTIES)
    assert locks.is_free(Lock.BEAT_ROLE)
    locks.release(Lock.DUTIES)
    locks.close()
