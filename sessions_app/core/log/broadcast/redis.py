"""The pub/sub transport over Redis: one connection per process, in the process's loop.

The connection uses RESP3 (Redis 6 or newer), so it can both subscribe and publish. It is implemented here because redis-py's
asynchronous client takes about twice the CPU per message (docs/decisions/0006); redis-py parses the URL, and hiredis parses
and packs messages. Nothing waits for Redis: while it is unreachable, messages are dropped and counted, and feeds read the
journal.

The loop is the one that the process has adopted (core.base.process_loop), so that what this loop announces and receives
changes no thread (docs/decisions/0047). A process without one has a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import random
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, cast

import hiredis
from redis.connection import SSLConnection, parse_url

from sessions_app.core.base import process_loop, supervision
from sessions_app.core.log.broadcast.pubsub import Deliver, Interrupted

if sys.platform == "win32":  # There is no uvloop for Windows.
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 1.0
_PING_SECONDS = 1.0
_ANSWER_SECONDS = 1.0
"""Seconds of a responsive loop without an answer to a ping after which Redis counts as down."""
_CHECK_SECONDS = 0.25
_LATE_SECONDS = 0.1
"""A timer that is later than this shows that the loop was blocked: an answer may be unread, or the ping unsent."""
_FIRST_RETRY_SECONDS = 0.05
_LAST_RETRY_SECONDS = 1.0
_OUTBOX_BYTES = 4 * 1024 * 1024


def database_number(url: str) -> int:
    return int(_address(url).get("db", 0))


class RedisPubSub:
    """Starts on first use. Reconnects forever, and subscribes to all topics again before it is up.

    When its loop is released, the connection is closed; the next use starts it again elsewhere.
    """

    def __init__(self, url: str, deliver: Deliver, interrupted: Interrupted) -> None:
        self._address = _address(url)
        self._deliver, self._interrupted = deliver, interrupted
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._stopped = False
        self._has_moved = False
        self._up = False
        self._down = False  # Neither up nor down while the first connection is being opened.
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._flush_is_due = False
        # Used only in its loop:
        self._topics: set[str] = set()
        self._connection: _Connection | None = None
        self._pending_subscriptions: list[Future[bool]] = []
        self._runner: asyncio.Task[None] | None = None

    # From any thread

    def publish(self, topic: str, payload: bytes) -> bool:
        if self._down or self._closed:
            return False
        command = _packed("PUBLISH", topic, payload)
        with self._lock:
            if self._outbox and self._outbox_bytes + len(command) > _OUTBOX_BYTES:
                return False
            self._outbox.append(command)
            self._outbox_bytes += len(command)
            is_due, self._flush_is_due = self._flush_is_due, True
        if process_loop.is_running_in(self._loop):
            self._flush()
            return True
        return is_due or self._call(self._flush)

    def may_have_subscribers(self, topic: str) -> bool:  # noqa: ARG002  # other processes' subscriptions are not known here
        return True

    def subscribe(self, topic: str) -> Future[bool]:
        pending: Future[bool] = Future()
        if not self._call(self._subscribe, topic, pending):
            _settle(pending, subscribed=False)
        return pending

    def unsubscribe(self, topic: str) -> None:
        self._call(self._unsubscribe, topic)

    def up(self) -> bool:
        if self._loop is None:
            self._call(lambda: None)
        return self._up

    def tried(self) -> bool:
        return self.up() or self._down or self._closed

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread, loop = self._thread, self._loop
        atexit.unregister(self.close)
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop)
        if thread is not None and thread.is_alive():
            thread.join(_CONNECT_SECONDS)

    def _call(self, fn: Callable[..., None], *args: object) -> bool:
        """Run ``fn`` in the connection's loop, in the order of these calls."""
        loop = self._loop
        if loop is None or self._closed:
            loop = self._start()
            if loop is None:
                return False
        try:
            if process_loop.is_running_in(loop):
                loop.call_soon(self._run, loop, fn, *args)
            else:
                loop.call_soon_threadsafe(self._run, loop, fn, *args)
        except RuntimeError:
            return False  # Closed at this moment.
        return True

    def _run(self, loop: asyncio.AbstractEventLoop, fn: Callable[..., None], *args: object) -> None:
        if loop is self._loop:
            fn(*args)
        else:
            # The loop was released after this call.
            self._call(fn, *args)

    def _start(self) -> asyncio.AbstractEventLoop | None:
        with self._lock:
            if self._loop is None and not self._closed:
                loop = process_loop.current()
                if loop is not None and process_loop.attach(loop, self._leave):
                    loop.call_soon_threadsafe(self._begin)
                else:
                    loop = new_event_loop()
                    self._thread = supervision.thread(partial(self._main, loop), "broadcast", may_return=lambda: self._stopped)
                    self._thread.start()
                    # A daemon thread would be killed in the middle of its work at exit.
                    atexit.register(self.close)
                self._loop = loop
            return None if self._closed else self._loop

    # In an adopted loop

    def _begin(self) -> None:
        # Not if the loop was released before this call.
        if self._runner is None and process_loop.is_running_in(self._loop):
            self._runner = supervision.task(self._keep_connected(), "broadcast")

    async def _leave(self) -> None:
        """The loop ends. Announcements until the connection is up elsewhere may be lost, which listeners learn then."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])
        with self._lock:
            self._runner, self._loop = None, None
            self._up = self._down = self._flush_is_due = False
            self._has_moved = True
        self._settle(subscribed=False)

    # In a thread with its own loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        self._runner = loop.create_task(self._keep_connected())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(self._runner)
        finally:
            self._up = False
            with self._lock:
                self._closed = True
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    # In either loop

    def _stop(self) -> None:
        self._stopped = True
        self._up = False
        if self._runner is not None:
            self._runner.cancel()

    async def _keep_connected(self) -> None:
        retry = _FIRST_RETRY_SECONDS
        while True:
            connection = _Connection(self._deliver, self._flush)
            began = time.monotonic()
            try:
                try:
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        await self._connect(connection)
                except Exception as error:
                    if isinstance(error, TimeoutError) and time.monotonic() - began > _CONNECT_SECONDS + _LATE_SECONDS:
                        # The loop was blocked, which says nothing about Redis.
                        continue
                    # Any other error: feeds read the journal meanwhile, and the next attempt may succeed.
                    self._went_down(error)
                else:
                    retry = _FIRST_RETRY_SECONDS
                    self._came_up()
                    self._went_down(await connection.watch())
            finally:
                self._connection = None
                connection.abort()
                await asyncio.wait([connection.lost])
            await asyncio.sleep(retry * random.uniform(0.5, 1.0))  # noqa: S311  # so that processes do not reconnect all at once
            retry = min(retry * 2, _LAST_RETRY_SECONDS)

    async def _connect(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        address = self._address
        if "path" in address:
            await loop.create_unix_connection(lambda: connection, address["path"])
        else:
            await loop.create_connection(
                lambda: connection,
                address.get("host", "localhost"),
                address.get("port", 6379),
                ssl=await asyncio.to_thread(_ssl_context, address) if address.get("connection_class") is SSLConnection else None,
            )
        hello: list[str] = ["HELLO", "3"]
        if "password" in address:
            hello += ["AUTH", address.get("username") or "default", address["password"]]
        await connection.ask(*hello, "SETNAME", "agenthost-broadcast")
        # From here on, new subscriptions are sent directly, after these.
        self._connection = connection
        await asyncio.gather(*connection.subscribe(self._topics))
        self._settle(subscribed=True)

    def _came_up(self) -> None:
        was_down, self._down, self._up = self._down, False, True
        self._flush()
        has_moved, self._has_moved = self._has_moved, False
        if was_down:
            log.info("redis_pubsub_up: announcements arrive again")
        if was_down or has_moved:
            self._interrupted()

    def _went_down(self, error: BaseException | None) -> None:
        was_down, self._down, self._up = self._down, True, False
        with self._lock:
            self._outbox.clear()
            self._outbox_bytes = 0
        self._settle(subscribed=False)
        if not was_down:
            log.warning("redis_pubsub_down: streams poll the journal until Redis is back (%s)", error)
            self._interrupted()

    def _subscribe(self, topic: str, pending: Future[bool]) -> None:
        self._topics.add(topic)
        if self._connection is not None:
            (ack,) = self._connection.subscribe([topic])
            ack.add_done_callback(lambda done: _settle(pending, subscribed=not done.cancelled() and done.exception() is None))
        elif self._down:
            _settle(pending, subscribed=False)
        else:
            self._pending_subscriptions.append(pending)

    def _settle(self, *, subscribed: bool) -> None:
        """Resolve the subscriptions that were requested while the first connection was being opened."""
        pending, self._pending_subscriptions = self._pending_subscriptions, []
        for future in pending:
            _settle(future, subscribed=subscribed)

    def _unsubscribe(self, topic: str) -> None:
        self._topics.discard(topic)
        if self._connection is not None:
            self._connection.unsubscribe(topic)

    def _flush(self) -> None:
        connection = self._connection
        if not self._up or connection is None or connection.clogged:
            with self._lock:
                self._flush_is_due = False
            return
        with self._lock:
            commands, self._outbox = self._outbox, []
            self._outbox_bytes = 0
            self._flush_is_due = False
        connection.publish(commands)


class _Connection(asyncio.Protocol):
    """One connection. Answers are matched to commands by their order."""

    def __init__(self, deliver: Deliver, unclogged: Callable[[], None]) -> None:
        self._deliver, self._unclogged = deliver, unclogged
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        # None: a PUBLISH, whose answer is ignored. Messages arrive in between and are not answers.
        self._expected: deque[asyncio.Future[Any] | None] = deque()
        self._received_something = False
        self._refusal_logged = False
        self.clogged = False
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    # Commands

    def ask(self, *words: str) -> asyncio.Future[Any]:
        (answer,) = self._send(words, 1)
        return answer

    def subscribe(self, topics: Iterable[str]) -> list[asyncio.Future[Any]]:
        """One future per topic. If Redis refuses one, the connection is closed."""
        topics = list(topics)
        return self._send(("SUBSCRIBE", *topics), len(topics)) if topics else []

    def unsubscribe(self, topic: str) -> None:
        self._send(("UNSUBSCRIBE", topic), 1)

    def publish(self, commands: list[bytes]) -> None:
        if commands and self._transport is not None:
            self._expected.extend([None] * len(commands))
            self._transport.write(b"".join(commands))

    async def watch(self) -> BaseException | None:
        """Wait until the connection is lost, and return the reason. A silent connection is pinged, then closed."""
        while not self.lost.done():
            self._received_something = False
            await asyncio.wait([self.lost], timeout=_PING_SECONDS)
            if not self._received_something and not self.lost.done() and not await self._answers():
                self._give_up(TimeoutError("no answer"))
        return self.lost.result()

    async def _answers(self) -> bool:
        """Ping, and wait for an answer. A loop that was blocked meanwhile is given the time again."""
        answer = self.ask("PING")
        left = _ANSWER_SECONDS
        while left > 0 and not self.lost.done():
            began = time.monotonic()
            await asyncio.wait([self.lost, answer], timeout=_CHECK_SECONDS)
            if self._received_something:
                return True
            late = time.monotonic() - began > _CHECK_SECONDS + _LATE_SECONDS
            # A little counts even then: a loop that is blocked for ever must not keep a dead connection.
            left -= _CHECK_SECONDS / 20 if late else _CHECK_SECONDS
        return False

    def abort(self) -> None:
        if self._transport is None:
            self._lose(None)
        else:
            self._transport.abort()

    def _send(self, words: tuple[str, ...], answers: int) -> list[asyncio.Future[Any]]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in range(answers)]
        for future in futures:
            # If the caller was cancelled, the error is not needed.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._transport is None or self.lost.done():
            for future in futures:
                future.set_exception(ConnectionError("not connected"))
        else:
            self._expected.extend(futures)
            self._transport.write(_packed(*words))
        return futures

    # Called by asyncio's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.lost.done():
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received_something = True
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                if isinstance(reply, hiredis.PushNotification):
                    if reply[0] == b"message":
                        self._deliver(reply[1].decode(), reply[2])
                        continue
                    if reply[0] not in {b"subscribe", b"unsubscribe"}:
                        continue
                self._answer(reply)
        except hiredis.ProtocolError as error:
            self._give_up(error)

    def pause_writing(self) -> None:
        self.clogged = True

    def resume_writing(self) -> None:
        self.clogged = False
        self._unclogged()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc)

    def _answer(self, reply: object) -> None:
        if not self._expected:
            self._give_up(hiredis.ProtocolError("an unexpected answer"))
            return
        asked = self._expected.popleft()
        if asked is None:
            if isinstance(reply, hiredis.ReplyError) and not self._refusal_logged:
                self._refusal_logged = True
                log.warning("redis_publish_refused: %s", reply)
        elif isinstance(reply, hiredis.ReplyError):
            if not asked.done():
                asked.set_exception(reply)
            self._give_up(reply)
        elif not asked.done():
            asked.set_result(reply)

    def _give_up(self, error: BaseException) -> None:
        self._lose(error)
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, error: BaseException | None) -> None:
        if not self.lost.done():
            self.lost.set_result(error or ConnectionError("the connection was closed"))
        while self._expected:
            future = self._expected.popleft()
            if future is not None and not future.done():
                future.set_exception(ConnectionError("the connection was lost"))


def _settle(pending: Future[bool], *, subscribed: bool) -> None:
    """Resolve a subscription, unless its caller was cancelled."""
    with contextlib.suppress(InvalidStateError):
        pending.set_result(subscribed)


def _address(url: str) -> dict[str, Any]:
    return dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


def _packed(*words: str | bytes) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub says a tuple of one word
    return packed


def _ssl_context(address: dict[str, Any]) -> ssl.SSLContext:
    """The options that redis-py's URLs have, with its defaults."""
    context = ssl.create_default_context(cafile=address.get("ssl_ca_certs"))
    if address.get("ssl_certfile"):
        context.load_cert_chain(address["ssl_certfile"], address.get("ssl_keyfile"))
    if str(address.get("ssl_check_hostname", "true")).lower() in {"false", "0", "no"}:
        context.check_hostname = False
    if address.get("ssl_cert_reqs", "required") in {"none", "optional"}:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE if address["ssl_cert_reqs"] == "none" else ssl.CERT_OPTIONAL
    return context
