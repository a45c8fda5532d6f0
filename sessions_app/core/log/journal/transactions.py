"""Django transactions that append events: for web requests, claims and sweeps.

The events are appended by the transaction's last statement, directly before COMMIT. They are announced only after they are
on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from sessions_app.core.base import loop_calls, loop_connections, raw_sql
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.loop_calls import Repeat
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Following, Statement
from sessions_app.core.log.journal import barriers, batches, dialect
from sessions_app.core.log.journal.errors import CounterLocked, NoEra
from sessions_app.core.log.journal.rows import Row, announcements
from sessions_app.core.log.journal.types import Announcement, NewEvent, Stored

logger = logging.getLogger(__name__)


Follower = Callable[[int, Sequence[Happening], Any], list[Happening]]
"""Returns the events that follow from those of one session in a transaction. Gets what ``Transaction.know`` was told."""

_followers: dict[frozenset[Kind], Follower] = {}


def follow(kinds: frozenset[Kind], follower: Follower) -> None:
    """Call ``follower`` at the end of each transaction for every session with an event of these kinds."""
    _followers[kinds] = follower


class Transaction:
    """An open transaction and its events. ``stored`` has their positions after COMMIT, in the order of appending.

    ``waiting``: the transaction waits for locked counters, and its caller may wait for other locks too.
    """

    def __init__(self, *, waiting: bool) -> None:
        self.waiting = waiting
        self._events: list[NewEvent] = []
        self._statements: list[Statement] = []
        self._afterwards: list[Callable[[], object]] = []
        self._known: dict[int, Any] = {}
        self.stored: list[Stored] = []

    def know(self, session: int, row: Any) -> None:
        """Tell followers the locked row of a session, which they would read otherwise."""
        self._known[session] = row

    def append(self, event: NewEvent) -> int:
        """Append the event when the transaction ends; returns its index in ``stored``."""
        self._events.append(event)
        return len(self._events) - 1

    def last(self, statements: Iterable[Statement]) -> None:
        """Run these statements when the transaction ends, before the append. On Postgres they need no extra round trip."""
        self._statements.extend(statements)

    def write(self, queries: Sequence[Statement] = ()) -> list[Rows]:
        """Run the statements of ``last`` now, because the caller reads what they write.

        Returns the rows of ``queries``, which run after them. On Postgres that is one round trip.
        """
        statements, self._statements = self._statements, []
        return raw_sql.execute_and_read(statements, queries) if statements or queries else []

    def after_commit(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` right after COMMIT, in parallel to the barrier. Its errors are logged."""
        self._afterwards.append(fn)

    def _append_following(self) -> None:
        for kinds, follower in _followers.items():
            sessions = {event.session: event.tenant for event in self._events if event.happening.kind in kinds}
            for session, tenant in sessions.items():
                if session is not None:
                    happenings = [event.happening for event in self._events if event.session == session]
                    for happening in follower(session, happenings, self._known.get(session)):
                        self._events.append(NewEvent(tenant, session, happening))

    def _following(self) -> list[Following]:
        """What ``finish`` does after COMMIT, so that ``_run_after_commit`` has nothing left to do."""
        return [Following([], lambda _: self._run_after_commit())]

    def _run_after_commit(self) -> None:
        afterwards, self._afterwards = self._afterwards, []
        for fn in afterwards:
            try:
                fn()
            except Exception as error:  # an edge: the transaction is committed
                logger.error("after_commit_failed error=%s", type(error).__name__)


def must_be_on_disk(event: NewEvent) -> bool:
    return event.happening.durable or settings.AGENTHOST_DURABLE_DELTAS


@contextmanager
def _in_an_era() -> Iterator[None]:
    """Raise NotReady for NoEra: of two parallel appends right after a database crash, one must be repeated."""
    try:
        yield
    except NoEra:
        dialect.current().begin_era()
        raise NotReady from None


@contextmanager
def transaction(*, waiting: bool = True) -> Iterator[Transaction]:
    """``transaction.atomic`` with events; never nested in another transaction.

    Raises MissingTail for a session without a tail, StaleFence for an event with an old fence and, unless ``waiting``,
    CounterLocked while another transaction appends for the tenant: all roll back. NotReady after COMMIT means that the
    outcome is unknown.
    """
    if loop_calls.is_optimistic():
        with _in_batch() as tx:
            yield tx
        return
    tx = Transaction(waiting=waiting)
    announced: list[Announcement] = []
    era: int | None = None
    with _in_an_era(), dialect.current().writing():
        yield tx
        tx._append_following()
        if not tx._events:
            tx.write()
        else:
            rows = [Row.of(event) for event in tx._events]
            statements, tx._statements = tx._statements, []
            durable = any(must_be_on_disk(event) for event in tx._events)
            appended, is_on_disk = dialect.current().finish(
                [statements], rows, waiting=waiting, following=tx._following() if durable and loop_calls.current() else None
            )
            tx.stored = [line.stored for line in appended.lines]
            announced = announcements(rows, appended, [range(len(rows))])[0]
            if durable and not is_on_disk:
                era = appended.era
    barrier = barriers.Barrier(era)
    tx._run_after_commit()
    barrier.wait()
    if announced:
        from sessions_app.core.log import broadcast

        broadcast.announce(announced)


def append_for_each(
    write: Statement, kind: Kind, follow: Callable[[list[tuple[Any, ...]]], Following | None]
) -> list[tuple[Any, ...]]:
    """Run a write and append an event for each row that it returns, as a transaction of its own. Returns the rows.

    A row begins with ``id, tenant_id, session_id, fence, data``, and is the only one of its session. On Postgres this is one
    statement. ``follow`` gets the rows; its queries run after COMMIT, on the loop in the barrier's round trip, and must
    not use the database when they are received. Waits for no lock; errors are those of ``transaction``.
    """
    with _in_an_era():
        written, rows, appended = dialect.current().append_for_each(write, kind.value)
    if not rows:
        return []
    following = follow(written)
    if loop_calls.current() is not None:
        if dialect.current().follow(following or Following([], lambda _: None)) != appended.era:
            barriers.wait(appended.era)
    else:
        barrier = barriers.Barrier(appended.era)
        if following is not None:
            _received_in_thread(following)
        barrier.wait()
    from sessions_app.core.log import broadcast

    broadcast.announce(announcements(rows, appended, [range(len(rows))])[0])
    return written


def _received_in_thread(following: Following) -> None:
    try:
        following.received(raw_sql.rows_of_each(following.statements))
    except Exception as error:  # an edge: the transaction is committed
        logger.error("after_commit_failed error=%s", type(error).__name__)


@contextmanager
def _in_batch() -> Iterator[Transaction]:
    """The transaction of an optimistic call, as a part of this loop's next batch."""
    tx = Transaction(waiting=True)
    call = loop_calls.current()
    assert call is not None
    member = batches.new_member()
    # The member does not refer to it: what circles would stay in memory until the garbage collector looks.
    call.local[loop_connections.SUBSTITUTE] = batches.Substitute(member)
    try:
        yield tx
        if not tx._events:
            raise Repeat
        tx._append_following()
        rows = [Row.of(event) for event in tx._events]
        tx.stored = member.finish(tx._statements, rows, tx._run_after_commit)
    finally:
        del call.local[loop_connections.SUBSTITUTE]
        member.leave()


def create_counter(tenant_id: int) -> None:
    """Create a new tenant's counter and tail, in the caller's transaction."""
    dialect.current().create_counter(tenant_id)
    create_tail(-tenant_id)


def new_tail(session_id: int) -> Statement:
    """The statement that creates a new session's tail, for the transaction that creates the session."""
    return Statement("insert into session_tail(session_id, seq, prev, fence) values (%s, 0, 0, 0)", (session_id,))


def create_tail(session_id: int) -> None:
    raw_sql.execute([new_tail(session_id)])


def create_tail_if_missing(session_id: int) -> None:
    statement = new_tail(session_id)
    raw_sql.execute([Statement(f"{statement.sql} on conflict do nothing", statement.params)])


def lock_counter(tenant_id: int, *, waiting: bool = True) -> None:
    """Lock the tenant's counter in the open transaction: until its end nothing is appended for the tenant.

    The caller has locked its domain rows before, and ends the transaction soon. Raises CounterLocked if the counter is
    locked and the caller does not wait.
    """
    if not dialect.current().lock_counter(tenant_id, waiting=waiting):
        raise CounterLocked([tenant_id])
