"""Wake-ups are published beside the requests that ask for them: a broker that hangs or fails costs nobody anything."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from sessions_app.core.turns.wake_ups import WakeUps


class Broker:
    """Publishes what its gate lets through; ``error`` is raised instead while it is set."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Semaphore(0), threading.Semaphore(0)
        self.error: Exception | None = None
        self.queues: list[str] = []
        self.published = threading.Semaphore(0)

    def publish(self, queue: str) -> None:
        self.reached.release()
        assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self.queues.append(queue)
        self.published.release()


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.error = None
    broker.gate.release(100)


def test_requests_while_one_is_published_share_the_next_one(broker: Broker) -> None:
    wake_ups = WakeUps(broker.publish)
    wake_ups.request("default")
    assert broker.reached.acquire(timeout=60)
    # The broker has the first one, which may wake a worker before these turns are committed.
    for _ in range(10):
        wake_ups.request("default")
    broker.gate.release(2)
    for _ in range(2):
        assert broker.published.acquire(timeout=60)
    assert broker.reached.acquire(timeout=60)
    # The ten were one wake-up, so this is the third.
    wake_ups.request("default")
    assert broker.reached.acquire(timeout=60)
    assert not broker.published.acquire(blocking=False)


def test_whoever_asks_does_not_wait_for_a_broker_that_hangs(broker: Broker) -> None:
    wake_ups = WakeUps(broker.publish)
    wake_ups.request("default")
    assert broker.reached.acquire(timeout=60)
    # These return although the broker has not answered the first one.
    for _ in range(10):
        wake_ups.request("default")
    assert not broker.published.acquire(blocking=False)


def test_a_wake_up_that_failed_is_published_when_the_broker_is_back(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sessions_app.core.turns.wake_ups")
    broker.error = OSError("password in the address")
    wake_ups = WakeUps(broker.publish, retry_seconds=0.001)
    wake_ups.request("default")
    broker.gate.release(3)
    for _ in range(4):
        assert broker.reached.acquire(timeout=60)
    broker.error = None
    # Nobody has asked again.
    broker.gate.release()
    assert broker.published.acquire(timeout=60)
    wake_ups.request("default")
    assert broker.reached.acquire(timeout=60)
    assert [record.getMessage() for record in caplog.records] == [
        "wake_ups_not_published error=OSError: turns start with the workers' sweep",
        "wake_ups_published_again",
    ]


def test_each_queue_has_a_pending_wake_up_of_its_own(broker: Broker) -> None:
    wake_ups = WakeUps(broker.publish)
    wake_ups.request("default")
    assert broker.reached.acquire(timeout=60)
    for _ in range(10):
        wake_ups.request("heavy")
        wake_ups.request("default")
    broker.gate.release(3)
    for _ in range(3):
        assert broker.published.acquire(timeout=60)
    assert broker.queues == ["default", "heavy", "default"]
    # The twenty were two.
    wake_ups.request("light")
    broker.gate.release()
    assert broker.published.acquire(timeout=60)
    assert broker.queues[3:] == ["light"]
