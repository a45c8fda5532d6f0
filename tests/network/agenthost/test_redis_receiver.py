"""Messages are taken from Redis in a loop: from the keys that are asked for now, and none after the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import kombu
import pytest
from redis import Redis as Client

from agenthost import redis_receiver
from agenthost.redis_receiver import RedisReceiver
from ops.services import Redis


class Taken:
    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.gaps = 0

    def take(self, key: str, text: bytes) -> None:
        self.messages.append((key, text))

    def gap(self) -> None:
        self.gaps += 1


async def _until(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.001)


@pytest.fixture
def taken() -> Taken:
    return Taken()


def _receiver(redis: Redis, taken: Taken) -> RedisReceiver:
    return RedisReceiver(asyncio.get_running_loop(), kombu.Connection(redis.url()), taken.take, taken.gap)


async def test_messages_come_from_all_keys_in_their_order(own_redis: Redis, taken: Taken) -> None:
    with Client.from_url(own_redis.url()) as client:
        client.lpush("low", "3")
        client.lpush("high", "1", "2")
        receiver = _receiver(own_redis, taken)
        receiver.take(lambda: ["high", "low"])
        await _until(lambda: len(taken.messages) == 3)
        assert taken.messages == [("high", b"1"), ("high", b"2"), ("low", b"3")]
        client.lpush("low", "4")
        await _until(lambda: taken.messages[-1] == ("low", b"4"))
    receiver.stop()
    await _until(lambda: not receiver._connection.is_open)


async def test_keys_may_change(own_redis: Redis, taken: Taken) -> None:
    keys: list[str] = []
    with Client.from_url(own_redis.url()) as client:
        client.lpush("one", "1")
        receiver = _receiver(own_redis, taken)
        receiver.take(lambda: keys)
        await _until(lambda: receiver._connection.is_open)
        assert taken.messages == []
        keys.append("one")
        await _until(lambda: taken.messages == [("one", b"1")])
    receiver.stop()
    await _until(lambda: not receiver._connection.is_open)


async def test_the_wait_that_is_under_way_is_the_last_one_after_stop(
    own_redis: Redis, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_receiver, "WAIT_SECONDS", 30)
    with Client.from_url(own_redis.url()) as client:
        client.ping()
        receiver = _receiver(own_redis, taken)
        receiver.take(lambda: ["one"])
        await _until(lambda: receiver._connection.unanswered)
        receiver.stop()
        client.lpush("one", "1", "2")
        await _until(lambda: not receiver._connection.is_open)
        # The first one was not lost, and the second one is another worker's.
        assert [text for _, text in taken.messages] + client.lrange("one", 0, -1)[::-1] == [b"1", b"2"]
        assert client.llen("one") == 1


async def test_a_lost_connection_is_reported_because_it_may_have_lost_a_message(own_redis: Redis, taken: Taken) -> None:
    receiver = _receiver(own_redis, taken)
    receiver.take(lambda: ["one"])
    await _until(lambda: taken.gaps == 1)
    own_redis.kill()
    await _until(lambda: not receiver._connection.is_open)
    own_redis.start()
    await _until(lambda: taken.gaps == 2)
    with Client.from_url(own_redis.url()) as client:
        client.lpush("one", "1")
        await _until(lambda: taken.messages == [("one", b"1")])
    receiver.stop()
    await _until(lambda: not receiver._connection.is_open)
