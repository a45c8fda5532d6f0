"""Wake-ups from an event loop: every request is followed by a message, whatever happens to Redis, and none waits."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import hiredis
import kombu
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis as Client

from agenthost import redis_connection, redis_publisher
from agenthost.redis_publisher import RedisPublisher
from ops.services import Redis

KEY = "wakes"


async def _until(condition: Callable[[], Any], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        await asyncio.sleep(0.001)


@asynccontextmanager
async def _publishing_to_queues(url: str, message: Callable[[str], tuple[str, bytes]]) -> AsyncIterator[RedisPublisher]:
    publisher = RedisPublisher(asyncio.get_running_loop(), kombu.Connection(url), message)
    publisher.start()
    yield publisher
    await publisher.close()


@asynccontextmanager
async def _publishing(url: str, message: Callable[[], bytes] = lambda: b"wake") -> AsyncIterator[RedisPublisher]:
    async with _publishing_to_queues(url, lambda _: (KEY, message())) as publisher:
        yield publisher


# --- the law of coalescing ---


class _Script:
    """A Redis that executes and answers what the test lets it, and loses connections when the test says so."""

    def __init__(self) -> None:
        self.executed: list[bytes] = []
        self.executes = self.answers = True
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    def change(self, *, executes: bool = True, answers: bool = True) -> None:
        self.executes, self.answers = executes, answers
        self._changed.set()
        self._changed = asyncio.Event()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        self.change()
        self.cut()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        self._writers.append(writer)
        parser = hiredis.Reader()
        with suppress(ConnectionError), closing(writer):
            while data := await reader.read(65536):
                parser.feed(data)
                while (command := parser.gets()) is not False:
                    while not self.executes:
                        await self._changed.wait()
                    if writer.transport.is_closing():
                        return
                    assert isinstance(command, list)
                    self.executed.append(command[2])
                    while not self.answers:
                        await self._changed.wait()
                    writer.write(b":1\r\n")


_COMMON = ("request default", "run")
_STEPS = st.lists(
    st.sampled_from([*_COMMON, *_COMMON, "request heavy", "freeze", "execute", "thaw", "cut"]),
    max_size=40,
)


@given(_STEPS)
def test_after_every_request_a_message_is_written_that_redis_executes(steps: list[str]) -> None:
    asyncio.run(_law(steps))


async def _law(steps: list[str]) -> None:
    script, events = _Script(), list[str]()

    def written(queue: str) -> tuple[str, bytes]:
        events.append(f"message {len(events)} {queue}")
        return queue, events[-1].encode()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_connection, "_FIRST_RETRY_SECONDS", 0.0001)
        patch.setattr(redis_connection, "_LAST_RETRY_SECONDS", 0.0001)
        async with script.running() as url, _publishing_to_queues(url, written) as publisher:
            for step in steps:
                match step:
                    case "request default" | "request heavy":
                        events.append(step)
                        assert publisher.request(step.removeprefix("request "))
                    case "run":
                        for _ in range(5):
                            await asyncio.sleep(0)
                    case "freeze":
                        script.change(executes=False)
                    case "execute":
                        script.change(answers=False)
                    case "thaw":
                        script.change()
                    case "cut":
                        script.cut()
            script.change()

            def lawful(queue: str) -> bool:
                last = max((at for at, event in enumerate(events) if event == f"request {queue}"), default=-1)
                later = [event.encode() for event in events[last + 1 :] if event.endswith(queue)]
                return last < 0 or any(message in script.executed for message in later)

            await _until(lambda: lawful("default") and lawful("heavy"))
            await _until(lambda: not publisher._connection.unanswered)
    requests = sum(event.startswith("request") for event in events)
    assert len(events) - requests <= requests + 4 * steps.count("cut")


async def test_requests_while_one_is_in_flight_share_the_next_message() -> None:
    script = _Script()
    async with script.running() as url, _publishing(url) as publisher:
        script.change(answers=False)
        publisher.request("default")
        await _until(lambda: len(script.executed) == 1)
        for _ in range(100):
            publisher.request("default")
            await asyncio.sleep(0)
        script.change()
        await _until(lambda: len(script.executed) == 2)
        publisher.request("default")
        await _until(lambda: len(script.executed) == 3)


async def test_requests_of_each_queue_share_messages_of_their_own() -> None:
    script = _Script()
    async with script.running() as url, _publishing_to_queues(url, lambda queue: (queue, queue.encode())) as publisher:
        script.change(answers=False)
        publisher.request("default")
        await _until(lambda: len(script.executed) == 1)
        for _ in range(100):
            publisher.request("heavy")
            publisher.request("default")
            await asyncio.sleep(0)
        script.change()
        publisher.request("light")
        await _until(lambda: len(script.executed) == 5)
    # Those of the heavy queue did not wait for the answer to the first one.
    assert script.executed[:2] == [b"default", b"heavy"]
    assert sorted(script.executed[2:]) == [b"default", b"heavy", b"light"]


# --- a real Redis ---


async def test_any_thread_may_ask(own_redis: Redis) -> None:
    numbers = iter(range(10**6))
    with Client.from_url(own_redis.url()) as client:
        async with _publishing(own_redis.url(), lambda: b"%d" % next(numbers)) as publisher:
            for _ in range(20):
                threads = [threading.Thread(target=publisher.request, args=("default",)) for _ in range(8)]
                for thread in threads:
                    thread.start()
                await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
                await _until(lambda: client.rpop(KEY) is not None)


async def test_the_database_of_the_url_is_used(own_redis: Redis) -> None:
    with Client.from_url(own_redis.url(3)) as client:
        async with _publishing(own_redis.url(3)) as publisher:
            publisher.request("default")
            await _until(lambda: client.llen(KEY) == 1)


async def test_what_was_asked_while_redis_was_down_is_one_message_after_its_restart(own_redis: Redis) -> None:
    async with _publishing(own_redis.url()) as publisher:
        publisher.request("default")
        with Client.from_url(own_redis.url()) as client:
            await _until(lambda: client.llen(KEY) == 1)
        own_redis.kill()
        for _ in range(100):
            assert publisher.request("default")
            await asyncio.sleep(0)
        own_redis.start()
        with Client.from_url(own_redis.url()) as client:
            # The restarted Redis has forgotten the first one.
            await _until(lambda: client.llen(KEY) >= 1, seconds=10)
            publisher.request("default")
            await _until(lambda: client.llen(KEY) == 2)


async def test_nobody_waits_for_a_frozen_redis(own_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_publisher, "_PATIENCE_SECONDS", 0.05)
    async with _publishing(own_redis.url()) as publisher:
        publisher.request("default")
        with Client.from_url(own_redis.url()) as client:
            await _until(lambda: client.llen(KEY) == 1)
        assert own_redis.pid is not None
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            for _ in range(1000):
                assert publisher.request("default")
                await asyncio.sleep(0)
            # The connection was given up, and the next one cannot be used either.
            await _until(lambda: not publisher._connection.is_open)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
        with Client.from_url(own_redis.url()) as client:
            await _until(lambda: client.llen(KEY) >= 2)


async def test_a_redis_that_refuses_gets_the_message_when_it_accepts_again(own_redis: Redis) -> None:
    with Client.from_url(own_redis.url()) as client:
        client.config_set("maxmemory", 1)
        async with _publishing(own_redis.url()) as publisher:
            publisher.request("default")
            await _until(lambda: publisher._reports._failing)
            assert client.llen(KEY) == 0
            client.config_set("maxmemory", 0)
            await _until(lambda: client.llen(KEY) == 1)


async def test_the_queue_does_not_grow_without_workers(own_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_publisher, "MOST_QUEUED", 5)
    numbers = iter(range(10**6))
    with Client.from_url(own_redis.url()) as client:
        async with _publishing(own_redis.url(), lambda: b"%d" % next(numbers)) as publisher:
            for number in range(20):
                publisher.request("default")
                await _until(lambda n=number: client.lindex(KEY, 0) == b"%d" % n)  # type: ignore[misc]
            # One more may be there until the next message is published.
            assert client.llen(KEY) <= 6


async def test_a_closed_publisher_publishes_what_is_pending_and_takes_no_more(own_redis: Redis) -> None:
    async with _publishing(own_redis.url()) as publisher:
        await _until(lambda: publisher._connection.is_open)
        publisher.request("default")
        publisher.request("default")
    assert not publisher.request("default")
    with Client.from_url(own_redis.url()) as client:
        await _until(lambda: client.llen(KEY) == 1)


def test_a_publisher_whose_loop_has_ended_takes_no_more() -> None:
    loop = asyncio.new_event_loop()
    publisher = RedisPublisher(loop, kombu.Connection("redis://127.0.0.1:1"), lambda _: (KEY, b"wake"))
    loop.close()
    assert not publisher.request("default")
