"""A connection to the broker is opened again whenever it is lost, and only used where it does what kombu's would."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import kombu
import pytest
from redis import Redis as Client

from agenthost import memory_broker
from agenthost.redis_connection import RedisConnection, can_connect, pack
from ops.services import Redis


class Log:
    """What a connection reports."""

    def __init__(self) -> None:
        self.opened = 0
        self.answers: list[Any] = []
        self.errors: list[str] = []

    def open(self) -> None:
        self.opened += 1


@asynccontextmanager
async def _connected(url: str, patience: float = 30) -> AsyncIterator[tuple[RedisConnection, Log]]:
    log = Log()
    connection = RedisConnection(
        "test",
        kombu.Connection(url),
        patience=patience,
        opened=log.open,
        answered=log.answers.append,
        lost=lambda error: log.errors.append(type(error).__name__),
    )
    connection.start()
    yield connection, log
    await connection.close()


async def _until(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.001)


async def test_answers_come_in_the_order_of_the_commands(own_redis: Redis) -> None:
    async with _connected(own_redis.url()) as (connection, log):
        await _until(lambda: log.opened)
        connection.send(pack("SET", "key", "value"), pack("GET", "key"))
        assert connection.unanswered == 2
        await _until(lambda: log.answers == [b"OK", b"value"])
        assert connection.unanswered == 0


async def test_a_refused_password_is_tried_again(own_redis: Redis) -> None:
    with Client.from_url(own_redis.url()) as client:
        password = client.config_get("requirepass")["requirepass"]
        client.config_set("requirepass", "another")
        async with _connected(own_redis.url()) as (_, log):
            await _until(lambda: len(log.errors) >= 2)
            assert not log.opened
            client.config_set("requirepass", password)
            await _until(lambda: log.opened)


async def test_it_comes_back_after_a_restart(own_redis: Redis) -> None:
    async with _connected(own_redis.url()) as (connection, log):
        await _until(lambda: log.opened)
        own_redis.kill()
        await _until(lambda: log.errors)
        assert not connection.is_open
        own_redis.start()
        await _until(lambda: log.opened == 2)


async def test_a_silent_redis_is_given_up_when_an_answer_is_missing(own_redis: Redis) -> None:
    async with _connected(own_redis.url(), patience=0.05) as (connection, log):
        await _until(lambda: log.opened)
        assert own_redis.pid is not None
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            connection.send(pack("PING"))
            await _until(lambda: log.errors)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        assert log.errors[0] == "TimeoutError"


async def test_a_loop_that_was_blocked_does_not_take_redis_for_dead(own_redis: Redis) -> None:
    async with _connected(own_redis.url(), patience=0.05) as (connection, log):
        await _until(lambda: log.opened)
        assert connection._open is not None
        assert connection._open._transport is not None
        descriptor = connection._open._transport.get_extra_info("socket").fileno()
        connection.send(pack("PING"))
        # The answer arrives at once and is not read: the loop does something else for twice the patience.
        blocked_until = time.monotonic() + 0.1
        while time.monotonic() < blocked_until or not select.select([descriptor], [], [], 0)[0]:
            pass
        await _until(lambda: log.answers)
        assert log.errors == []


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("redis://:secret@host:6380/2", True),
        ("rediss://host?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs=/ca.pem", True),
        ("rediss://host?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_path=/certificates", False),
        ("amqp://guest@host//", False),
        (memory_broker.URL, False),
    ],
)
def test_other_brokers_and_options_are_left_to_kombu(url: str, can: bool) -> None:  # a parameter
    assert can_connect(kombu.Connection(url)) is can
