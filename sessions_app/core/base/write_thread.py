"""Writes to SQLite: one thread with one connection, in which calls that wait at the same time share one COMMIT.

SQLite has one writer at a time, and each COMMIT waits for the disk. So hot requests, claims and the journal's units are called
in this thread, one after the other. Each transaction of a call is a savepoint of a shared one (``agenthost/sqlite``): a call
that fails rolls back alone. When all calls of a round have come to their COMMIT, the thread commits, and they continue. No
call is answered before that.

A call runs in a greenlet, so it can wait for the COMMIT while others run. If the COMMIT fails, every call is made again alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from django.db import connections
from greenlet import getcurrent, greenlet

from agents_app.fair.shares import FairShares, Shares
from sessions_app.core.base import supervision
from sessions_app.core.base.loop_calls import Repeat

T = TypeVar("T")

Wrapper = Any
"""``agenthost.sqlite.base.WriteThreadWrapper``, which this layer cannot import."""

ALIAS = "default"
MOST = 64
"""Calls in one round, at most half of them of one owner."""


def available() -> bool:
    """Whether the database has a connection for this thread."""
    return hasattr(connections.create_connection(ALIAS), "for_write_thread")


@dataclass(slots=True, eq=False)
class _Job:
    """A call, until its caller has the result."""

    owner: Hashable
    fn: Callable[[], Any]
    context: Context
    loop: asyncio.AbstractEventLoop
    started: asyncio.Future[None]
    done: asyncio.Future[Any]
    is_abandoned: bool = False


class _Member(greenlet):
    """One attempt of a call."""

    def __init__(self, job: _Job) -> None:
        super().__init__(self._call)
        self.job = job
        self.gr_context = job.context
        self.value: Any = None
        self.raised: BaseException | None = None
        self.has_committed = False

    def resume(self, error: BaseException | None) -> None:
        """Run it to its next COMMIT or to its end. ``error``: why the COMMIT that it waits for has failed."""
        if error is None:
            self.switch()
        else:
            self.throw(error)

    def _call(self) -> None:
        try:
            self.value = self.job.fn()
        # Any exception is the caller's; the thread must survive it.
        except BaseException as error:
            self.raised = error


def _wait_for_commit() -> None:
    """In a member: return when the shared transaction is on disk."""
    found = getcurrent()
    assert isinstance(found, _Member)
    assert found.parent is not None
    found.parent.switch()
    found.has_committed = True


class WriteThread:
    """The thread. ``limits``: smaller shares of single owners."""

    def __init__(self, limits: Mapping[Hashable, int]) -> None:
        self._shares: FairShares[_Job] = FairShares(Shares.half(MOST), limits)
        self._changed = threading.Condition()
        self._ready: deque[_Job] = deque()
        self._closed = False
        self._thread = supervision.thread(self._serve, "write", may_return=lambda: self._closed)
        self._thread.start()

    async def run(self, owner: Hashable, wait_seconds: float | None, context: Context, fn: Callable[[], T]) -> T:
        """The result of ``fn``, which is called in ``context``; what it has written is on disk.

        TimeoutError: it had no slot within ``wait_seconds``, and was not called. ``fn`` may be called a second time if
        nothing of the first was stored.
        """
        loop = asyncio.get_running_loop()
        job = _Job(owner, fn, context, loop, loop.create_future(), loop.create_future())
        with self._changed:
            if self._closed:
                raise RuntimeError("the write thread is closed")
            at_once = self._shares.take(owner)
            if at_once:
                self._add(job)
            else:
                self._shares.wait(owner, job)
        try:
            if not at_once:
                await self._started(job, wait_seconds)
            return cast(T, await job.done)
        finally:
            with self._changed:
                job.is_abandoned = True
                self._shares.withdraw(owner, job)

    async def _started(self, job: _Job, wait_seconds: float | None) -> None:
        try:
            async with asyncio.timeout(wait_seconds):
                await job.started
        except TimeoutError:
            with self._changed:
                withdrawn = self._shares.withdraw(job.owner, job)
            # Otherwise it got its slot at the same moment.
            if withdrawn:
                raise

    def close(self) -> None:
        """Accept no more calls; those that wait for a slot are cancelled. Returns when the thread has ended."""
        with self._changed:
            self._closed = True
            waiting = self._shares.waiting
            for job in waiting:
                self._shares.withdraw(job.owner, job)
            self._changed.notify()
        for job in waiting:
            _in_loop(job.loop, job.started.cancel)
        self._thread.join()

    def _add(self, job: _Job) -> None:
        """The caller holds the lock."""
        self._ready.append(job)
        self._changed.notify()

    # In the thread:

    def _serve(self) -> None:
        of_threads: Any = connections.create_connection(ALIAS)
        wrapper = of_threads.for_write_thread(_wait_for_commit)
        connections[ALIAS] = wrapper
        while jobs := self._next():
            _Round(wrapper).run(jobs, self._finished)
        wrapper.close()
        wrapper.end()

    def _next(self) -> list[_Job]:
        """The jobs of the next round; none if the thread ends."""
        with self._changed:
            while not self._ready and not self._closed:
                self._changed.wait()
            jobs = list(self._ready)
            self._ready.clear()
        return jobs

    def _finished(self, members: list[_Member]) -> None:
        """Hand out the results of these members, and give their slots to others."""
        results: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
        started: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
        with self._changed:
            for member in members:
                self._shares.give_back(member.job.owner)
                results.setdefault(member.job.loop, []).append((member.job.done, member.value, member.raised))
            while not self._closed and (job := self._shares.next()) is not None:
                self._add(job)
                started.setdefault(job.loop, []).append((job.started, None, None))
        for loop in results | started:
            _in_loop(loop, _settle, [*results.get(loop, ()), *started.get(loop, ())])


class _Round:
    """The calls that are made up to one COMMIT, and what they do after it."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper

    def run(self, jobs: list[_Job], finished: Callable[[list[_Member]], object]) -> None:
        members = [_Member(job) for job in jobs]
        again: list[_Job] = []
        resumed: list[tuple[_Member, BaseException | None]] = [(member, None) for member in members]
        while resumed:
            for member, error in resumed:
                # Its caller may have been cancelled before its first step.
                if not member.job.is_abandoned or member:
                    member.resume(error)
            failure = self._wrapper.end()
            for member, _ in resumed:
                if failure is None or member.has_committed or member.job in again:
                    # What a call has stored before cannot be repeated: only its present transaction fails.
                    continue
                if len(jobs) > 1:
                    again.append(member.job)
                elif member.dead and member.raised is None:
                    member.raised = failure
            finished([member for member, _ in resumed if not member and member.job not in again])
            resumed = [(member, Repeat() if member.job in again else failure) for member, _ in resumed if member]
        for job in again:
            self.run([job], finished)


def _settle(results: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for future, value, error in results:
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


def _in_loop(loop: asyncio.AbstractEventLoop, fn: Callable[..., Any], *arguments: Any) -> None:
    # The loop was closed while the call ran, so no caller waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(fn, *arguments)
