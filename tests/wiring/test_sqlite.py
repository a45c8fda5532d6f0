"""SQLite's connections: threads that write wait for each other in the process, and nobody keeps the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections, transaction
from django.utils.timezone import now

from sessions_app.models import Session, Tenant

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connections['default'].vendor != 'sqlite'", reason="about SQLite's connections"),
]


@pytest.fixture
def other() -> Iterator[ThreadPoolExecutor]:
    """Another thread, whose connection waits for nobody: it fails at once if the lock is held."""

    def prepare() -> None:
        wrapper: Any = connections["default"]
        wrapper.settings_dict = {**wrapper.settings_dict, "OPTIONS": {**wrapper.settings_dict["OPTIONS"], "timeout": 0}}

    with ThreadPoolExecutor(1, initializer=prepare) as executor:
        yield executor
        executor.submit(connections.close_all).result()


def _write() -> None:
    with transaction.atomic():
        Tenant.objects.create(slug="by-the-other")


def _fail() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        raise ZeroDivisionError


def _fail_at_commit() -> None:
    """Foreign keys are checked at COMMIT."""
    with pytest.raises(IntegrityError), transaction.atomic():
        Session.objects.create(tenant_id=999, public_id="of-nobody", agent_name="a", created_at=now(), modified_at=now())


def _close_within() -> None:
    with transaction.atomic():
        connection.close()


@pytest.mark.parametrize("end", [_write, _fail, _fail_at_commit, _close_within])
def test_the_lock_is_free_after_a_transaction_however_it_ends(other: ThreadPoolExecutor, end: Callable[[], None]) -> None:
    end()
    Tenant.objects.filter(slug="by-the-other").delete()
    other.submit(_write).result()
    assert Tenant.objects.filter(slug="by-the-other").exists()


def test_a_thread_that_waits_too_long_gets_the_error_of_sqlite(other: ThreadPoolExecutor) -> None:
    with transaction.atomic(), pytest.raises(OperationalError, match="database is locked"):
        other.submit(_write).result()
    other.submit(_write).result()


def test_threads_that_write_at_the_same_time_all_succeed() -> None:
    start = threading.Barrier(8)

    def write(number: int) -> None:
        start.wait(60)
        for each in range(20):
            with transaction.atomic():
                Tenant.objects.create(slug=f"tenant-{number}-{each}")
        connections.close_all()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    assert Tenant.objects.count() == 160


def test_a_reader_does_not_wait_for_the_writer(other: ThreadPoolExecutor) -> None:
    with transaction.atomic():
        Tenant.objects.create(slug="not-yet-committed")
        assert other.submit(Tenant.objects.count).result() == 0
