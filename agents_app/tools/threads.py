"""Threads for blocking tools, bounded and shared out fairly."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_KEPT_FOR_NEWCOMERS = 8


class Pool(Protocol):
    """Where blocking functions run. ``timeout`` counts from the function's start, not from the queue."""

    async def run(self, fair_key: Hashable, fn: Callable[[], T], timeout: float | None = None) -> T: ...


@dataclass(slots=True, eq=False)
class _Job:
    key: Hashable
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    started: asyncio.Future[None]
    done: asyncio.Future[tuple[Any, BaseException | None]]
    abandoned: bool = False


class FairPool:
    """``threads`` daemon threads, started as needed.

    A key has at most half of them (at least one) at a time, and one in eight is kept for keys that have
    none: so several greedy keys do not take all of them either. What is over that waits, and of those that
    wait the key with the fewest threads goes first. A function cannot be interrupted: when its caller
    is cancelled or out of time the caller goes on at once, while the thread stays taken until the
    function returns. The threads are daemons so that such a function cannot keep the process alive.
    """

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError("a pool has at least one thread")
        self._threads = threads
        self._share = max(1, threads // 2)
        self._for_all = threads - -(-threads // _KEPT_FOR_NEWCOMERS) if threads > 2 else threads
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._running: dict[Hashable, int] = {}
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._spawned = 0
        self._idle = 0
        self._closed = False

    async def run(self, fair_key: Hashable, fn: Callable[[], T], timeout: float | None = None) -> T:
        """The function's result; ``TimeoutError`` if it runs longer than ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        work = contextvars.copy_context()
        job = _Job(fair_key, lambda: work.run(fn), loop, loop.create_future(), loop.create_future())
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._waiting.setdefault(fair_key, deque()).append(job)
            self._start_what_fits()
        try:
            await job.started
            async with asyncio.timeout(timeout):
                value, error = await job.done
        finally:
            self._forget(job)
        if error is not None:
            raise error
        result: T = value
        return result

    def close(self) -> None:
        """Take nothing more. Functions that run go on in their threads; those that wait never start."""
        with self._lock:
            self._closed = True
            waiting = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            for _ in range(self._spawned):
                self._work.put(None)
        for job in waiting:
            _tell(job, job.started.cancel)

    def _forget(self, job: _Job) -> None:
        with self._lock:
            job.abandoned = True
            jobs = self._waiting.get(job.key)
            if jobs and job in jobs:
                jobs.remove(job)
                if not jobs:
                    del self._waiting[job.key]

    def _start_what_fits(self) -> None:
        """Called with the lock held."""
        while self._waiting and (busy := sum(self._running.values())) < self._threads:
            share = self._share if busy < self._for_all else 1
            ready = [key for key in self._waiting if self._running.get(key, 0) < share]
            if not ready:
                return
            key = min(ready, key=lambda key: self._running.get(key, 0))
            jobs = self._waiting.pop(key)
            job = jobs.popleft()
            if jobs:
                # Back at the end: keys with equally many threads take turns.
                self._waiting[key] = jobs
            self._running[key] = self._running.get(key, 0) + 1
            if self._idle:
                self._idle -= 1
            else:
                self._spawned += 1
                threading.Thread(target=self._serve, name=f"tool-{self._spawned}", daemon=True).start()
            self._work.put(job)

    def _serve(self) -> None:
        while (job := self._work.get()) is not None:
            _tell(job, _settle, job.started, None)
            value: Any = None
            error: BaseException | None = None
            try:
                # Its caller may have gone between the hand-over and this thread's turn.
                if not job.abandoned:
                    value = job.work()
            # Whatever it is, it is the caller's to judge; the thread must outlive it.
            except BaseException as raised:
                error = raised
            with self._lock:
                self._idle += 1
                left = self._running[job.key] - 1
                if left:
                    self._running[job.key] = left
                else:
                    del self._running[job.key]
                if not self._closed:
                    self._start_what_fits()
            _tell(job, _settle, job.done, (value, error))
            del job, value, error


def _tell(job: _Job, fn: Callable[..., Any], *arguments: Any) -> None:
    try:
        job.loop.call_soon_threadsafe(fn, *arguments)
    except RuntimeError:
        # The loop was closed while the function ran: nobody waits for it any more.
        return


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
