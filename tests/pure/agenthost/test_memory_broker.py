"""The in-process broker delivers tasks without polling."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from kombu import Connection, Consumer, Queue

from agenthost import memory_broker


class Listener:
    """Consumes one queue in a thread, as a worker does."""

    def __init__(self, name: str) -> None:
        self.queue = Queue(name, routing_key=name)
        self.received: list[tuple[object, float]] = []
        self.came = threading.Semaphore(0)
        self.returned = threading.Event()
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def _listen(self) -> None:
        def take(body: object, message: object) -> None:
            self.received.append((body, time.perf_counter()))
            message.ack()  # type: ignore[attr-defined]  # kombu's message
            self.came.release()

        with Connection(memory_broker.URL) as connection, Consumer(connection, [self.queue], callbacks=[take]):
            self._ready.set()
            while not self._stop.is_set():
                try:
                    connection.drain_events(timeout=30)
                except TimeoutError:
                    self.returned.set()

    def stop(self) -> None:
        self._stop.set()
        memory_broker.stop_waiting(enabled=True)
        self._thread.join(60)
        memory_broker.stop_waiting(enabled=False)
        assert not self._thread.is_alive()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener(f"test-{uuid4().hex}")
    yield listening
    listening.stop()


def send(listener: Listener, body: object) -> None:
    with Connection(memory_broker.URL) as connection, connection.Producer() as producer:
        producer.publish(body, routing_key=listener.queue.name, exchange="", declare=[listener.queue])


def test_a_message_is_delivered_at_once(listener: Listener) -> None:
    delays = []
    for number in range(20):
        began = time.perf_counter()
        send(listener, {"number": number})
        assert listener.came.acquire(timeout=60)
        delays.append(listener.received[-1][1] - began)
    assert [body for body, _ in listener.received] == [{"number": number} for number in range(20)]
    # The stock transport polls once a second.
    assert statistics.median(delays) < 0.25


def test_no_message_is_lost_between_check_and_wait(listener: Listener) -> None:
    senders = [
        threading.Thread(target=lambda: [send(listener, {}) for _ in range(50)])  # type: ignore[func-returns-value]
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(90)
    for _ in range(200):
        assert listener.came.acquire(timeout=60)


def test_waiting_consumers_return_when_waiting_is_turned_off(listener: Listener) -> None:
    send(listener, {})
    assert listener.came.acquire(timeout=60)
    memory_broker.stop_waiting(enabled=True)
    assert listener.returned.wait(25)
    memory_broker.stop_waiting(enabled=False)


def test_waiting_ends_with_its_timeout() -> None:
    with Connection(memory_broker.URL) as connection:
        queue = Queue(f"test-{uuid4().hex}")
        with Consumer(connection, [queue]), pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.05)
