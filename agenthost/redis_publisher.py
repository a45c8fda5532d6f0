"""Publishes one task to Redis from an event loop: one connection, at most one message in flight.

All messages of the task mean the same ("look at the queue"), so requests that arrive while one is in flight share the next one.
The order is what makes this safe. A request sets ``_wanted``; it is cleared only when a message is written afterwards, and set
again if the connection is lost before Redis has confirmed that message. So for every request a message reaches Redis that was
written after it, as soon as Redis can be reached. Meanwhile one message is pending, however many were requested.

kombu's publisher takes 300 µs, waits for a Redis that hangs and therefore needs a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import kombu

from agenthost.redis_connection import RedisConnection, pack
from sessions_app.core.turns.wake_ups import Reports

_PATIENCE_SECONDS = 1.0
MOST_QUEUED = 1000
"""Of a longer queue the oldest messages are removed: no worker takes them, and the newest one would be enough."""


class RedisPublisher:
    """Publishes ``message()`` to the list ``key``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: kombu.Connection, key: str, message: Callable[[], bytes]) -> None:
        self._loop, self._key, self._message = loop, key, message
        self._reports = Reports()
        self._closed = False
        # Set by any thread:
        self._wanted = False
        self._flush_is_due = False
        # Used only in the loop:
        self._queue_is_long = False
        self._connection = RedisConnection(
            "wake-ups", broker, patience=_PATIENCE_SECONDS, opened=self._flush, answered=self._answered, lost=self._lost
        )

    # From any thread

    def start(self) -> None:
        """Connect, so that the first message does not have to wait for it."""
        self._loop.call_soon_threadsafe(self._connection.start)

    def request(self) -> bool:
        """Publish one soon. False if this publisher is closed. Never waits, never raises."""
        if self._closed:
            return False
        # In this order: a flush clears ``_flush_is_due`` before it reads ``_wanted``.
        self._wanted = True
        if self._flush_is_due:
            return True
        self._flush_is_due = True
        try:
            if asyncio._get_running_loop() is self._loop:
                self._loop.call_soon(self._flush)
            else:
                self._loop.call_soon_threadsafe(self._flush)
        except RuntimeError:
            self._closed = True  # The loop is closed.
            return False
        return True

    # In the loop

    async def close(self) -> None:
        """Publish what is pending, without waiting for the answer to the message before it, and disconnect."""
        self._closed = True
        if self._wanted and self._connection.is_open:
            self._connection.send(self._packed())
        await self._connection.close()

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self._wanted or not self._connection.is_open or self._connection.unanswered:
            return  # Called again when the connection is open, and when Redis has answered.
        self._wanted = False
        if self._queue_is_long:
            self._queue_is_long = False
            self._connection.send(self._packed(), pack("LTRIM", self._key, "0", str(MOST_QUEUED - 1)))
        else:
            self._connection.send(self._packed())

    def _packed(self) -> bytes:
        return pack("LPUSH", self._key, self._message())

    def _answered(self, answer: object) -> None:
        self._reports.published()
        if isinstance(answer, int):
            self._queue_is_long = answer > MOST_QUEUED
        if not self._connection.unanswered:
            self._flush()

    def _lost(self, error: BaseException) -> None:
        if self._connection.unanswered:
            self._wanted = True
        if self._wanted:
            self._reports.failed(error)
