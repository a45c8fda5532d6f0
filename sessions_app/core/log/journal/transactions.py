"""The journal's way in for whoever has a Django connection: web requests, claims, sweeps.

The events of a transaction are appended as its last statement, and COMMIT follows at once. What is on
disk is announced, nothing sooner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from django.conf import settings

from sessions_app.core.base import raw_sql
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log.journal import barriers, dialect
from sessions_app.core.log.journal.errors import CounterLocked, NoEra
from sessions_app.core.log.journal.rows import Row, announcements
from sessions_app.core.log.journal.types import Announcement, NewEvent, Stored

logger = logging.getLogger(__name__)


class Transaction:
    """An open transaction's events. ``stored`` is there once the transaction is over, in order of appending.

    ``waiting``: for a counter that somebody else holds, and whoever works in it for other locks too.
    """

    def __init__(self, *, waiting: bool) -> None:
        self.waiting = waiting
        self._events: list[NewEvent] = []
        self._statements: list[Statement] = []
        self._afterwards: list[Callable[[], object]] = []
        self.stored: list[Stored] = []

    def append(self, event: NewEvent) -> int:
        """Append the event when the transaction ends; the answer is its index in ``stored``."""
        self._events.append(event)
        return len(self._events) - 1

    def last(self, statements: Iterable[Statement]) -> None:
        """Run these when the transaction ends, before the append: nothing that follows needs their outcome.

        On Postgres they cost no round trip of their own.
        """
        self._statements.extend(statements)

    def write(self) -> None:
        """Run what was put ``last`` now, because what it wrote is to be read."""
        statements, self._statements = self._statements, []
        if statements:
            raw_sql.execute(statements)

    def after_commit(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` right after COMMIT, while the barrier is on its way.

        What it raises is logged; the transaction stands.
        """
        self._afterwards.append(fn)

    def _is_committed(self) -> None:
        for fn in self._afterwards:
            try:
                fn()
            except Exception as error:  # an edge: the transaction is over, whatever this is
                logger.error("what was to follow a transaction failed: %s", type(error).__name__)


def must_be_on_disk(event: NewEvent) -> bool:
    return event.happening.durable or settings.AGENTHOST_DURABLE_DELTAS


@contextmanager
def _in_an_era() -> Iterator[None]:
    """Of two that are the first to append after a crash of the database, one may be told to come again."""
    try:
        yield
    except NoEra:
        dialect.current().begin_era()
        raise NotReady from None


@contextmanager
def transaction(*, waiting: bool = True) -> Iterator[Transaction]:
    """``atomic`` with events. Without events it is a plain one; it never stands inside another.

    Raises MissingTail for a session without a tail, StaleFence for an event whose fence is old and, unless
    ``waiting``, CounterHeld when somebody is appending to the same tenant: all roll back. NotReady after COMMIT
    means that the outcome is unknown.
    """
    tx = Transaction(waiting=waiting)
    announced: list[Announcement] = []
    era: int | None = None
    with _in_an_era(), dialect.current().writing():
        yield tx
        if not tx._events:
            tx.write()
        else:
            rows = [Row.of(event) for event in tx._events]
            statements, tx._statements = tx._statements, []
            appended = dialect.current().finish(statements, rows, waiting=waiting)
            tx.stored = [line.stored for line in appended.lines]
            announced = announcements(rows, appended, [range(len(rows))])[0]
            if any(must_be_on_disk(event) for event in tx._events):
                era = appended.era
    asked = barriers.Barrier(era)
    tx._is_committed()
    asked.wait()
    if announced:
        from sessions_app.core.log import broadcast

        broadcast.announce(announced)


def create_counter(tenant_id: int) -> None:
    """A new tenant's counter and its own tail, in the caller's transaction."""
    dialect.current().create_counter(tenant_id)
    create_tail(-tenant_id)


def new_tail(session_id: int) -> Statement:
    """A new session's tail, for the transaction that makes the session."""
    return Statement("insert into session_tail(session_id, seq, prev, fence) values (%s, 0, 0, 0)", (session_id,))


def create_tail(session_id: int) -> None:
    raw_sql.execute([new_tail(session_id)])


def lock_counter(tenant_id: int, *, waiting: bool = True) -> None:
    """Take the tenant's counter in the open transaction: until its end nothing is appended for the tenant.

    The caller has its domain rows locked already, and ends the transaction soon. Unless ``waiting``,
    CounterHeld if somebody else has it.
    """
    if not dialect.current().lock_counter(tenant_id, waiting=waiting):
        raise CounterLocked([tenant_id])
