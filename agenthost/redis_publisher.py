"""Publishes one task to queues in Redis from an event loop: one connection, at most one message in flight for each queue.

All messages of a queue mean the same ("look at the queue"), so requests that arrive while one is in flight share the next one.
The order is what makes this safe. A request adds its queue to ``_wanted``; it is removed only when a message is written
afterwards, and added again if the connection is lost before Redis has confirmed that message. So for every request a message
reaches Redis that was written after it, as soon as Redis can be reached. Meanwhile one message of each queue is pending, however
many were requested.

kombu's publisher takes 300 µs, waits for a Redis that hangs and therefore needs a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import kombu

from agenthost.redis_connection import RedisConnection, pack
from sessions_app.core.turns.wake_ups import Reports

_PATIENCE_SECONDS = 1.0
MOST_QUEUED = 1000
"""Of a longer queue the oldest messages are removed: no worker takes them, and the newest one would be enough."""


class RedisPublisher:
    """Publishes to lists. ``message`` returns the list's key and a new message for a queue."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, broker: kombu.Connection, message: Callable[[str], tuple[str, bytes]]
    ) -> None:
        self._loop, self._message = loop, message
        self._reports = Reports()
        self._closed = False
        # Set by any thread:
        self._wanted: dict[str, None] = {}
        self._flush_is_due = False
        # Used only in the loop:
        self._in_flight: deque[str | None] = deque()
        """For each answer that Redis owes: the queue of the message; None: of another command."""
        self._long_queues: set[str] = set()
        self._connection = RedisConnection(
            "wake-ups", broker, patience=_PATIENCE_SECONDS, opened=self._flush, answered=self._answered, lost=self._lost
        )

    # From any thread

    def start(self) -> None:
        """Connect, so that the first message does not have to wait for it."""
        self._loop.call_soon_threadsafe(self._connection.start)

    def request(self, queue: str) -> bool:
        """Publish one soon. False if this publisher is closed. Never waits, never raises."""
        if self._closed:
            return False
        # In this order: a flush clears ``_flush_is_due`` before it reads ``_wanted``.
        self._wanted[queue] = None
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
        """Publish what is pending, without waiting for the answers to earlier messages, and disconnect."""
        self._closed = True
        if self._connection.is_open:
            self._publish(list(self._wanted))
        await self._connection.close()

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._wanted and self._connection.is_open:
            # The others are published when Redis has answered.
            self._publish([queue for queue in tuple(self._wanted) if queue not in self._in_flight])

    def _publish(self, queues: Sequence[str]) -> None:
        for queue in queues:
            # Before its message is written: another thread may want the next one at any time.
            del self._wanted[queue]
            key, text = self._message(queue)
            commands = [pack("LPUSH", key, text)]
            self._in_flight.append(queue)
            if queue in self._long_queues:
                self._long_queues.discard(queue)
                commands.append(pack("LTRIM", key, "0", str(MOST_QUEUED - 1)))
                self._in_flight.append(None)
            self._connection.send(*commands)

    def _answered(self, answer: object) -> None:
        self._reports.published()
        queue = self._in_flight.popleft()
        if queue is not None and isinstance(answer, int) and answer > MOST_QUEUED:
            self._long_queues.add(queue)
        self._flush()

    def _lost(self, error: BaseException) -> None:
        for queue in self._in_flight:
            if queue is not None:
                self._wanted[queue] = None
        self._in_flight.clear()
        if self._wanted:
            self._reports.failed(error)
