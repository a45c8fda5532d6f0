"""The Redis broker: a channel reuses its client and recovers from an outage of Redis."""

from __future__ import annotations

import pytest
from kombu import Connection, Producer, Queue
from kombu.transport import redis as stock

from agenthost import redis_broker
from ops.services import Redis

QUEUE = Queue("wakes", routing_key="wakes", no_ack=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The clients that were made for commands."""
    clients: list[object] = []
    make = stock.Channel._create_client  # type: ignore[attr-defined]  # kombu's types leave it out

    def noted(channel: stock.Channel, asynchronous: bool = False) -> object:
        client: object = make(channel, asynchronous)
        if not asynchronous:
            clients.append(client)
        return client

    monkeypatch.setattr(stock.Channel, "_create_client", noted)
    return clients


def _publish(connection: Connection, *bodies: str) -> None:
    producer = Producer(connection.default_channel, routing_key=QUEUE.routing_key)
    for body in bodies:
        producer.publish(body, declare=[QUEUE])


def _taken(connection: Connection, count: int) -> list[object]:
    with connection.SimpleQueue(QUEUE) as queue:  # type: ignore[arg-type]  # it takes a queue as well as a name
        return [queue.get(timeout=30).payload for _ in range(count)]


def test_all_messages_of_a_channel_go_through_one_client(own_redis: Redis, made: list[object]) -> None:
    with Connection(own_redis.url()) as connection:
        assert isinstance(connection.default_channel, redis_broker.Channel)
        _publish(connection, "a", "b", "c")
        assert len(made) == 1
        assert _taken(connection, 3) == ["a", "b", "c"]


def test_tasks_sent_after_a_restart_of_redis_arrive(own_redis: Redis) -> None:
    with Connection(own_redis.url()) as connection:
        _publish(connection, "before")
        own_redis.kill()
        with pytest.raises(connection.recoverable_connection_errors):
            _publish(connection, "lost")
        own_redis.start()
        _publish(connection, "after")
    with Connection(own_redis.url()) as another:
        assert _taken(another, 1) == ["after"]
