"""A bounded queue that any thread can fill and any loop can wait on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import Any

import orjson

_A_TAKE = 256 * 1024
"""Bytes decoded at once; more would block the receiving loop for milliseconds."""


class Mailbox:
    """The queue of payloads (JSON arrays of messages) of one channel.

    Payloads that do not fit are dropped, and the receiver is notified at their place in the order. Payloads are decoded in the
    receiver's loop, so the transport only appends.
    """

    def __init__(self, capacity: int, max_bytes: int, *, lost: bool = False) -> None:
        self._capacity, self._max_bytes = capacity, max_bytes
        self._lock = threading.Lock()
        # None marks lost messages; never two in a row.
        self._payloads: deque[bytes | None] = deque([None] if lost else [])
        self._bytes = 0
        self._decoded: deque[dict[str, Any]] = deque()
        # With the thread of the loop.
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, int, asyncio.Future[None]]] = deque()
        self._last_take = time.monotonic()

    def put(self, payload: bytes) -> bool:
        """Add a payload; False if it was dropped."""
        with self._lock:
            fits = len(self._payloads) < self._capacity and self._bytes + len(payload) <= self._max_bytes
            if fits or not self._bytes:
                self._payloads.append(payload)
                self._bytes += len(payload)
                put = True
            else:
                self._note_loss()
                put = False
        self._wake()
        return put

    def mark_lost(self) -> None:
        """Record that messages for this channel may have been lost."""
        with self._lock:
            self._note_loss()
        self._wake()

    def idle_seconds(self) -> float:
        """The time since the last receive; 0 while a receiver waits."""
        with self._lock:
            return 0.0 if self._waiters else time.monotonic() - self._last_take

    async def take(self) -> tuple[list[dict[str, Any]], bool]:
        """Wait for messages and return all of them, up to a limit, and whether some were lost after them.

        Other tasks of the loop run at least once, even if messages are waiting.
        """
        if self._has_news():
            await asyncio.sleep(0)
        while True:
            lost = False
            popped: list[bytes] = []
            size = 0
            with self._lock:
                self._last_take = time.monotonic()
                messages = list(self._decoded)
                self._decoded.clear()
                while self._payloads and size < _A_TAKE and not lost:
                    payload = self._payloads.popleft()
                    if payload is None:
                        lost = True
                    else:
                        popped.append(payload)
                        size += len(payload)
                self._bytes -= size
            for payload in popped:
                messages += orjson.loads(payload)
            if messages or lost:
                return messages, lost
            await self._wait()

    async def take_one(self) -> dict[str, Any] | None:
        """Wait for one message; None where messages were lost."""
        while True:
            with self._lock:
                self._last_take = time.monotonic()
                if self._decoded:
                    return self._decoded.popleft()
                if self._payloads:
                    payload = self._payloads.popleft()
                    if payload is None:
                        return None
                    self._bytes -= len(payload)
                    self._decoded.extend(orjson.loads(payload))
                    continue
            await self._wait()

    def _note_loss(self) -> None:
        if not self._payloads or self._payloads[-1] is not None:
            self._payloads.append(None)

    def _has_news(self) -> bool:
        return bool(self._decoded or self._payloads)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        waiter = loop, threading.get_ident(), woken
        with self._lock:
            if self._has_news():
                return
            self._waiters.append(waiter)
        try:
            await woken
        except BaseException:
            with self._lock:
                was_woken = waiter not in self._waiters
                if not was_woken:
                    self._waiters.remove(waiter)
            if was_woken and self._has_news():
                # This receiver is cancelled before it could read: wake the next one.
                self._wake()
            raise

    def _wake(self) -> None:
        while True:
            with self._lock:
                if not self._waiters:
                    return
                loop, thread, woken = self._waiters.popleft()
            try:
                if thread == threading.get_ident():
                    _set(woken)
                else:
                    loop.call_soon_threadsafe(_set, woken)
            except RuntimeError:
                continue  # That loop is closed: its receiver is gone.
            return


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
