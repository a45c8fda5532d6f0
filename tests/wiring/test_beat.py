"""Beat: one process has the periodic duties at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from agenthost import beat
from agenthost.celery import HOUSEKEEPING, app

pytestmark = pytest.mark.django_db(transaction=True)


class Published:
    """The tasks that were published, by the thread that did."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, threading.Thread]] = []
        self.failing = False

    def apply(self, entry: Any, **_: Any) -> None:
        if self.failing:
            raise ConnectionRefusedError("redis://:hush@nowhere")
        self.tasks.append((entry.task, threading.current_thread()))

    def next_from(self, *among: beat.Beat) -> beat.Beat:
        """The beat that publishes the next task."""
        seen = len(self.tasks)
        wait_for(lambda: len(self.tasks) > seen)
        task, thread = self.tasks[seen]
        assert task == HOUSEKEEPING
        return next(each for each in among if each._thread is thread)

    def counted(self, tasks: int) -> Counter[threading.Thread]:
        """How many of the next tasks each thread publishes."""
        seen = len(self.tasks)
        wait_for(lambda: len(self.tasks) >= seen + tasks)
        return Counter(thread for _, thread in self.tasks[seen:])


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Published:
    seen = Published()
    monkeypatch.setattr(beat, "LOOK_SECONDS", 0.02)
    monkeypatch.setitem(app.conf.beat_schedule["housekeeping"], "schedule", 0.02)
    monkeypatch.setattr(beat._Scheduler, "apply_async", seen.apply)
    return seen


@pytest.fixture
def start() -> Iterator[Callable[..., beat.Beat]]:
    started: list[beat.Beat] = []

    def start(*, apart: bool = False) -> beat.Beat:
        started.append(beat.Beat(apart=apart))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def postgres() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only Postgres has several processes")


def end_sessions_that_hold_locks() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and pid <> pg_backend_pid()"
            " and database = (select oid from pg_database where datname = current_database())"
        )


def test_the_only_process_starts_housekeeping_each_period(published: Published, start: Callable[..., beat.Beat]) -> None:
    only = start()
    for _ in range(3):
        assert published.next_from(only) is only


@pytest.mark.usefixtures("postgres")
def test_of_several_workers_one_has_the_duties(published: Published, start: Callable[..., beat.Beat]) -> None:
    first, second, third = start(), start(), start()
    holder = published.next_from(first, second, third)
    assert set(published.counted(20)) == {holder._thread}


@pytest.mark.usefixtures("postgres")
def test_when_the_worker_with_the_duties_ends_another_one_has_them(published: Published, start: Callable[..., beat.Beat]) -> None:
    first = start()
    assert published.next_from(first) is first
    second = start()
    first.stop()
    assert published.next_from(first, second) is second


@pytest.mark.usefixtures("postgres")
def test_a_worker_without_its_connection_gives_the_duties_up_and_one_has_them_again(
    published: Published, start: Callable[..., beat.Beat], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = start(), start()
    published.next_from(first, second)
    caplog.set_level("INFO", "agenthost.beat")
    end_sessions_that_hold_locks()
    wait_for(lambda: {"beat_left_duties", "beat_has_duties"} <= set(caplog.messages))
    assert published.next_from(first, second) in (first, second)


@pytest.mark.usefixtures("postgres")
def test_workers_leave_the_duties_to_a_process_of_the_role_beat(published: Published, start: Callable[..., beat.Beat]) -> None:
    worker = start()
    assert published.next_from(worker) is worker
    apart, spare = start(apart=True), start(apart=True)
    wait_for(lambda: published.next_from(worker, apart, spare) in (apart, spare))
    # Also a worker that starts later.
    later = start()
    holder = published.next_from(worker, later, apart, spare)
    assert set(published.counted(20)) == {holder._thread}
    apart.stop()
    wait_for(lambda: published.next_from(worker, later, apart, spare) is spare)
    spare.stop()
    assert published.next_from(worker, later, apart, spare) in (worker, later)


def test_a_broker_that_is_down_is_reported_without_its_address(
    published: Published, start: Callable[..., beat.Beat], caplog: pytest.LogCaptureFixture
) -> None:
    published.failing = True
    only = start()
    wait_for(lambda: "duty_not_published duty=housekeeping error=ConnectionRefusedError" in caplog.messages)
    assert "hush" not in caplog.text
    published.failing = False
    assert published.next_from(only) is only
