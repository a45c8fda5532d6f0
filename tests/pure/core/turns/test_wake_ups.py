"""Wake-ups are published beside the requests that ask for them: a broker that hangs or fails costs nobody anything."""

from __future__ import annotations

import logging
import threading

import pytest

from sessions_app.core.turns import wake_ups
from sessions_app.core.turns.wake_ups import WakeUps


class Broker:
    """Publishes what its gate lets through; ``error`` is raised instead while it is set."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Semaphore(0)
        self.error: Exception | None = None
        self.published = threading.Semaphore(0)

    def publish(self) -> None:
        self.reached.release()
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        self.published.release()


def test_whoever_asks_does_not_wait_for_a_broker_that_hangs() -> None:
    broker = Broker()
    requested = WakeUps(broker.publish)
    requested.request()
    assert broker.reached.acquire(timeout=60)
    for _ in range(10):
        requested.request()
    # All eleven were asked for while the broker held the first one.
    assert not broker.published.acquire(blocking=False)
    broker.gate.set()
    for _ in range(11):
        assert broker.published.acquire(timeout=60)


def test_pending_wake_ups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_ups, "MOST_PENDING", 3)
    broker = Broker()
    requested = WakeUps(broker.publish)
    requested.request()
    assert broker.reached.acquire(timeout=60)
    for _ in range(5):
        requested.request()
    assert requested.dropped == 2
    broker.gate.set()
    for _ in range(4):
        assert broker.published.acquire(timeout=60)


def test_a_backlog_that_the_sweep_has_dealt_with_is_not_published() -> None:
    broker = Broker()
    requested = WakeUps(broker.publish, max_age_seconds=-1)
    broker.gate.set()
    for _ in range(3):
        requested.request()
    while requested.dropped < 3:
        threading.Event().wait(0.001)
    assert not broker.reached.acquire(blocking=False)


def test_a_broker_that_fails_is_reported_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sessions_app.core.turns.wake_ups")
    broker = Broker()
    broker.gate.set()
    broker.error = OSError("password in the address")
    requested = WakeUps(broker.publish)
    for _ in range(3):
        requested.request()
        assert broker.reached.acquire(timeout=60)
    while requested._pending:
        threading.Event().wait(0.001)
    broker.error = None
    requested.request()
    assert broker.published.acquire(timeout=60)
    while len(caplog.records) < 2:
        threading.Event().wait(0.001)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "wake_ups_not_published error=OSError: turns start with the workers' sweep",
        "wake_ups_published_again",
    ]
