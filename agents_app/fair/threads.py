"""A thread pool with fair shares, for blocking functions."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from agents_app.fair.shares import FairShares, Shares

T = TypeVar("T")


class Pool(Protocol):
    """Runs blocking functions in threads. ``timeout`` counts from the function's start, without its time in the queue."""

    async def run(self, fair_key: Hashable, fn: Callable[[], T], timeout: float | None = None) -> T: ...


@dataclass(slots=True, eq=False)
class _Job:
    owner: Hashable
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    started: asyncio.Future[None]
    done: asyncio.Future[tuple[Any, BaseException | None]]
    abandoned: bool = False


class FairPool:
    """``threads`` daemon threads, started as needed; at most half of them for one owner (shares.py).

    ``limits``: smaller shares of single owners. ``at_end`` is called in each thread before it ends.

    A function cannot be interrupted: when its caller is cancelled or times out, the caller continues at once
    while the thread is occupied until the function returns. The threads are daemons so that such a function
    cannot keep the process alive.
    """

    def __init__(
        self,
        threads: int,
        limits: Mapping[Hashable, int] | None = None,
        *,
        name: str = "tool",
        at_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._lock = threading.Lock()
        self._shares: FairShares[_Job] = FairShares(Shares.half(threads), limits)
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._name, self._at_end = name, at_end
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    async def run(
        self, fair_key: Hashable, fn: Callable[[], T], timeout: float | None = None, *, wait_seconds: float | None = None
    ) -> T:
        """The function's result.

        TimeoutError: it ran longer than ``timeout`` seconds, or had no thread within ``wait_seconds`` and never ran.
        """
        loop = asyncio.get_running_loop()
        work = contextvars.copy_context()
        job = _Job(fair_key, lambda: work.run(fn), loop, loop.create_future(), loop.create_future())
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            at_once = self._shares.take(fair_key)
            if at_once:
                self._start(job)
            else:
                self._shares.wait(fair_key, job)
        try:
            if not at_once:
                await self._started(job, wait_seconds)
            async with asyncio.timeout(timeout):
                value, error = await job.done
        finally:
            self._forget(job)
        if error is not None:
            raise error
        result: T = value
        return result

    def close(self) -> None:
        """Accept no more functions. Running ones continue in their threads; waiting ones never start."""
        with self._lock:
            self._closed = True
            waiting = self._shares.waiting
            for job in waiting:
                self._shares.withdraw(job.owner, job)
            for _ in self._threads:
                self._work.put(None)
        for job in waiting:
            _tell(job, job.started.cancel)

    def join(self) -> None:
        """Wait until the threads of a closed pool have ended."""
        for thread in self._threads:
            thread.join()

    async def _started(self, job: _Job, wait_seconds: float | None) -> None:
        try:
            async with asyncio.timeout(wait_seconds):
                await job.started
        except TimeoutError:
            with self._lock:
                withdrawn = self._shares.withdraw(job.owner, job)
            # Otherwise it got its thread at the same moment.
            if withdrawn:
                raise

    def _forget(self, job: _Job) -> None:
        with self._lock:
            job.abandoned = True
            self._shares.withdraw(job.owner, job)

    def _start(self, job: _Job) -> None:
        """Start a job that has a slot. The caller holds the lock."""
        if self._idle:
            self._idle -= 1
        else:
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(job)

    def _serve(self) -> None:
        while (job := self._work.get()) is not None:
            value: Any = None
            error: BaseException | None = None
            try:
                # Its caller may have been cancelled meanwhile.
                if not job.abandoned:
                    value = job.work()
            # Any exception is the caller's; the thread must survive it.
            except BaseException as raised:
                error = raised
            with self._lock:
                self._idle += 1
                self._shares.give_back(job.owner)
                while not self._closed and (waiting := self._shares.next()) is not None:
                    self._start(waiting)
                    _tell(waiting, _settle, waiting.started, None)
            _tell(job, _settle, job.done, (value, error))
            del job, value, error
        self._at_end()


def _tell(job: _Job, fn: Callable[..., Any], *arguments: Any) -> None:
    try:
        job.loop.call_soon_threadsafe(fn, *arguments)
    except RuntimeError:
        # The loop was closed while the function ran, so no caller waits.
        return


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)
