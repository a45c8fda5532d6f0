"""Takes the messages of a Celery consumer's queues from Redis in an event loop.

kombu takes them in Celery's thread, through a poller of its own, which costs 400 µs and five context switches for a wake-up that
the worker's loop needs. Here the loop waits for them itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

import hiredis
import kombu

from agenthost.redis_connection import RedisConnection, pack

log = logging.getLogger(__name__)

WAIT_SECONDS = 1
"""How long Redis waits for a message. So often the queues are asked for again, and so soon a silent connection is noticed."""


class RedisReceiver:
    """``received`` is called in ``loop`` with the key and the text of each message.

    A connection that is lost may lose a message too, so ``lost_some`` is called after each new one.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: kombu.Connection,
        received: Callable[[str, bytes], None],
        lost_some: Callable[[], None],
    ) -> None:
        self._loop, self._received, self._lost_some = loop, received, lost_some
        self._keys: Callable[[], Sequence[str]] = tuple
        self._started = self._stopped = self._is_failing = False
        self._connection = RedisConnection(
            "receiver",
            broker,
            patience=2 * WAIT_SECONDS + 1,
            opened=self._opened,
            answered=self._answered,
            lost=self._lost,
        )

    # From any thread

    def take(self, keys: Callable[[], Sequence[str]]) -> None:
        """Take messages from these keys from now on. ``keys`` is called in the loop, before each time that Redis waits."""
        self._keys = keys
        self._call(self._start)

    def stop(self) -> None:
        """Take no more messages. One that Redis sends at this moment is still received, within ``WAIT_SECONDS``."""
        self._call(self._stop)

    def _call(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(function)

    # In the loop

    def _start(self) -> None:
        if not self._started and not self._stopped:
            self._started = True
            self._connection.start()

    def _stop(self) -> None:
        self._stopped = True
        if not self._connection.unanswered:
            self._closing = self._loop.create_task(self._connection.close())

    def _lost(self, error: BaseException) -> None:
        if not self._is_failing:
            self._is_failing = True
            # What Redis replies names no secret; other errors may quote addresses.
            reason = str(error) if isinstance(error, hiredis.ReplyError) else type(error).__name__
            log.warning("wake_ups_not_received error=%s: turns start with the worker's sweep", reason)

    def _opened(self) -> None:
        self._wait()
        self._lost_some()

    def _wait(self) -> None:
        if self._stopped:
            self._stop()
        elif not self._connection.is_open or self._connection.unanswered:
            pass  # Called again when the connection is open, and when Redis has answered.
        elif keys := self._keys():
            self._connection.send(pack("BRPOP", *keys, str(WAIT_SECONDS)))
        else:
            self._loop.call_later(WAIT_SECONDS, self._wait)

    def _answered(self, answer: list[bytes] | None) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("wake_ups_received_again")
        if answer is not None:
            key, text = answer
            self._received(key.decode(), text)
        self._wait()
