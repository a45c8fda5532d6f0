"""Worker services: start, wake-up through Celery, stop and restart."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from agenthost import beat, worker_services
from agenthost.celery import app
from sessions_app.core.records import live_workers
from sessions_app.core.turns import tasks
from sessions_app.core.worker import housekeeping
from sessions_app.core.worker.worker import Worker


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Counts the wake-ups that reach the core."""
    came = threading.Semaphore(0)
    monkeypatch.setattr(tasks, "_service", tasks.Service(wake=came.release, keep_house=housekeeping.start))
    return came


@pytest.fixture
def consumer() -> Iterator[worker_services.Consumer]:
    consuming = worker_services.Consumer()
    consuming.start()
    yield consuming
    consuming.close()
    assert consuming.join(60)


def test_a_wake_up_reaches_the_worker_at_once(consumer: worker_services.Consumer, woken: threading.Semaphore) -> None:
    tasks.wake()
    assert woken.acquire(timeout=60)
    delays = []
    for _ in range(9):
        began = time.monotonic()
        tasks.wake()
        assert woken.acquire(timeout=60)
        delays.append(time.monotonic() - began)
    # Polling once a second would take half a second on average.
    assert statistics.median(delays) < 0.25


def test_after_the_last_request_of_a_burst_the_worker_is_woken(
    consumer: worker_services.Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, seen = 0, threading.Event()

    def wake() -> None:
        if requested == 300:
            seen.set()

    monkeypatch.setattr(tasks, "_service", tasks.Service(wake=wake, keep_house=housekeeping.start))
    for _ in range(300):
        requested += 1
        tasks.wake()
    assert seen.wait(60)


def test_it_can_be_started_again_after_it_was_stopped(woken: threading.Semaphore) -> None:
    for _ in range(2):
        consuming = worker_services.Consumer()
        consuming.start()
        tasks.wake()
        assert woken.acquire(timeout=60)
        consuming.close()
        assert consuming.join(60)


def test_it_stops_at_once_when_there_is_nothing_to_do() -> None:
    consuming = worker_services.Consumer()
    consuming.start()
    consuming.close()
    # Far from the half minute for which an idle consumer waits.
    assert consuming.join(15)


@pytest.mark.django_db(transaction=True)
def test_beat_starts_housekeeping(
    consumer: worker_services.Consumer, woken: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = threading.Event()
    monkeypatch.setattr(housekeeping._database, "_run", lambda _may_run: kept.set())
    monkeypatch.setitem(app.conf.beat_schedule["housekeeping"], "schedule", 0.1)
    periodic = beat.Beat()
    periodic.start()
    assert kept.wait(60)
    periodic.stop()


@pytest.mark.django_db(transaction=True)
def test_a_worker_looks_at_the_queue_when_it_starts_and_when_it_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that were queued before its start are not left to the sweep, which takes those that are older than two seconds."""
    looked = threading.Semaphore(0)
    monkeypatch.setattr(Worker, "wake", lambda _: looked.release())
    services = worker_services.WorkerServices()
    services.start()
    assert looked.acquire(timeout=60)
    while looked.acquire(timeout=1):
        pass
    tasks.wake()
    assert looked.acquire(timeout=60)
    assert services.stop(1.0)


@pytest.mark.django_db(transaction=True)
def test_worker_services_announce_themselves_while_they_run() -> None:
    services = worker_services.WorkerServices()
    services.start()
    # A thread at work on a long conversation gives way to the loop after this.
    assert sys.getswitchinterval() == pytest.approx(worker_services.SWITCH_SECONDS)
    assert live_workers.workers_alive() == 1
    assert services.stop(1.0)
    assert live_workers.workers_alive() == 0
    # Threads of pools that are kept for the process may stay; those that run turns must not.
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"celery", "beat", "runs", "leases"}
