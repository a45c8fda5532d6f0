"""Batches: transactions of optimistic calls (core/base/loop_calls.py) that arrive while another batch is in flight share the
next transaction, with its round trips, append and COMMIT.

A batch reads first: each call locks its session, in the order of the sessions' numbers. Then the calls decide, without
another read, and hand in their statements and events. The batch checks the callers' keys, runs all statements, appends the
events and commits; the barrier follows in the same round trip, and the next batch runs meanwhile on another connection.

A batch waits for no locked session: its call finds no row, and leaves. A call that leaves, because it is refused or needs a
second read, is repeated alone. If the batch fails, all its calls are repeated alone, so one bad request fails no other. If
it is unknown whether the batch was committed, none is repeated: each gets NotReady.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

from sessions_app.core.base import loop_calls, loop_connections, raw_sql
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.loop_calls import LoopCall, NeedsThread, Repeat
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Following, Statement
from sessions_app.core.log.journal import barriers, postgres
from sessions_app.core.log.journal.rows import Row, announcements
from sessions_app.core.log.journal.types import Stored

log = logging.getLogger(__name__)

MOST = 64
"""Calls in one batch. More would only wait longer for each other."""
_DECISION_SECONDS = 5.0
_AT_ONCE = 2
"""Batches of a loop at once: one that runs, and those that wait for their barriers. If there are more, their calls run alone."""


class Substitute:
    """What a call in a batch has instead of a connection."""

    vendor = "postgresql"
    in_atomic_block = True

    def __init__(self, member: Member) -> None:
        self._member = member

    def read(self, statements: Sequence[Statement]) -> list[Rows]:
        return self._member.read(statements)

    def __getattr__(self, name: str) -> Any:
        raise Repeat


class Member:
    """One call's part of a batch."""

    def __init__(self, batches: _Batches) -> None:
        loop = asyncio.get_running_loop()
        call = loop_calls.current()
        assert call is not None
        self.owner, self.assumptions = call.owner, call.assumptions
        self.reads: Sequence[Statement] = ()
        self.session: int | None = None
        """The number of the session that ``reads`` lock."""
        self.statements: Sequence[Statement] = ()
        self.rows: Sequence[Row] = ()
        self.stored: list[Stored] = []
        self.after_commit: Callable[[], object] = lambda: None
        self.answer: asyncio.Future[list[Rows]] = loop.create_future()
        self.decision: asyncio.Future[bool] = loop.create_future()
        """Whether the call stays in the batch."""
        self.done: asyncio.Future[None] = loop.create_future()
        self._batches = batches

    # In the call:

    def read(self, statements: Sequence[Statement]) -> list[Rows]:
        session = statements[0].params[-1]
        if self.reads or not isinstance(session, int):
            raise Repeat
        self.reads, self.session = statements, session
        self._batches.add(self)
        return loop_calls.wait_for(self.answer)

    def finish(self, statements: Sequence[Statement], rows: Sequence[Row], after_commit: Callable[[], object]) -> list[Stored]:
        """Store everything; returns when it is on disk. Repeat: nothing was stored. NotReady: that is unknown."""
        self.statements, self.rows, self.after_commit = statements, rows, after_commit
        self.decision.set_result(True)
        if not self.reads:
            self._batches.add(self)
        try:
            loop_calls.wait_for(self.done)
        except NotReady:
            loop_calls.settle()
            raise
        loop_calls.settle()
        return self.stored

    def leave(self) -> None:
        """The batch continues without this call. No effect after ``finish``."""
        if not self.decision.done():
            self.decision.set_result(False)

    # In the batch:

    @property
    def is_undecided(self) -> bool:
        return not self.decision.done()

    @property
    def stays(self) -> bool:
        """Whether its call has decided to stay, and was not cancelled since."""
        return not self.is_undecided and self.decision.result() and not self.done.done()

    def fail(self, error: BaseException) -> None:
        for future in (self.answer, self.done):
            if not future.done():
                future.set_exception(error)
                # The call waits for one of them only.
                future.exception()


def new_member() -> Member:
    """A part of the next batch of this loop."""
    loop = asyncio.get_running_loop()
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = _Batches()
    return Member(found)


class _Batches:
    """The batches of one loop."""

    def __init__(self) -> None:
        self._waiting: deque[Member] = deque()
        self._is_running = False
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, member: Member) -> None:
        self._waiting.append(member)
        if not self._is_running:
            self._start()

    def _start(self) -> None:
        self._is_running = True
        task = asyncio.get_running_loop().create_task(self._run(), name="journal-batch")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        batch = _Batch(self._take, self._next)
        # One owner, which gets at most half of the connections.
        pool = loop_connections.of_loop("batches", 2 * _AT_ONCE, {})
        try:
            await pool.run(LoopCall(batch.run, self, Context()))
        except (Exception, Repeat, NeedsThread) as error:
            log.debug("batch_failed error=%s", type(error).__name__)
        finally:
            batch.end()

    def _next(self) -> None:
        self._is_running = False
        if self._waiting:
            self._start()

    def _take(self) -> list[Member]:
        """The members of the next batch: those of each owner in turn, so that many of one delay no other.

        One for each session: a second turn of a session would make the batch fail.
        """
        by_owner: dict[Any, deque[Member]] = {}
        sessions: set[int] = set()
        for each in self._waiting:
            if each.session is None or each.session not in sessions:
                by_owner.setdefault(each.owner, deque()).append(each)
                if each.session is not None:
                    sessions.add(each.session)
        taken: dict[Member, None] = {}
        while by_owner and len(taken) < MOST:
            for owner, of_owner in list(by_owner.items()):
                if len(taken) < MOST:
                    taken[of_owner.popleft()] = None
                if not of_owner:
                    del by_owner[owner]
        self._waiting = deque(each for each in self._waiting if each not in taken)
        return list(taken)


class _Batch:
    """One batch, from its transaction's first statement to the barrier, as a call of its own."""

    def __init__(self, take: Callable[[], list[Member]], start_next: Callable[[], None]) -> None:
        self._take, self._start_next = take, start_next
        self._members: list[Member] = []
        self._is_next_started = self._is_committed = self._is_unknown = False

    def run(self) -> None:
        self._members = self._take()
        with raw_sql.implicit_transaction():
            staying = self._decided()
            if not staying:
                return
            statements = _with_checks(staying)
            rows = [row for each in staying for row in each.rows]
            committed = Following([], partial(self._committed, staying))
            try:
                appended, is_on_disk = postgres.finish(statements, rows, waiting=True, following=[committed])
            except BaseException:
                self._is_unknown = self._is_committed or not raw_sql.is_answered()
                raise
        if not is_on_disk:
            barriers.wait(appended.era)
        from sessions_app.core.log import broadcast

        broadcast.announce(announcements(rows, appended, [range(len(rows))])[0])
        lines = iter(appended.lines)
        for each in staying:
            each.stored = [next(lines).stored for _ in each.rows]
            if not each.done.done():
                each.done.set_result(None)

    def _decided(self) -> list[Member]:
        """The members that stay, after all have read and decided."""
        # In the order of locks. A call that was cancelled has left.
        readers = [each for each in self._members if each.session is not None and each.is_undecided]
        readers.sort(key=attrgetter("session"))
        if readers:
            answers = iter(raw_sql.rows_in_batch([statement for each in readers for statement in each.reads]))
            for each in readers:
                found = [next(answers) for _ in each.reads]
                if not each.answer.done():
                    each.answer.set_result(found)
            _, undecided = loop_calls.wait_for(asyncio.wait([each.decision for each in readers], timeout=_DECISION_SECONDS))
            assert not undecided, "a call in a batch decides without waiting"
        return [each for each in self._members if each.stays]

    def _committed(self, staying: Sequence[Member], _: list[Rows]) -> None:
        self._is_committed = True
        self._let_next_start()
        for each in staying:
            each.after_commit()

    def _let_next_start(self) -> None:
        if not self._is_next_started:
            self._is_next_started = True
            self._start_next()

    def end(self) -> None:
        """Fail the members that were not stored for certain, and let the next batch start."""
        for each in self._members:
            each.fail(NotReady() if self._is_committed or self._is_unknown else Repeat(batch_failed=True))
        self._let_next_start()


def _with_checks(members: Sequence[Member]) -> list[list[Statement]]:
    """Each member's statements behind the checks of what it assumed. A check that several have in common is run once."""
    checked: set[Statement] = set()
    found = []
    for each in members:
        new = [check for check in dict.fromkeys(each.assumptions) if check not in checked]
        checked.update(new)
        found.append([*new, *each.statements])
    return found


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batches] = WeakKeyDictionary()
