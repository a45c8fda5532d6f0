"""Group commit for a worker: stores the units of all its runs together and announces them in order.

When idle, a unit is flushed immediately; during a flush, units collect for the next one. Flushes that have only deltas are
spaced out by a few milliseconds, because under load a flush costs more than its content; a unit that a caller waits for is
flushed immediately (docs/decisions/0007).

A flush is limited in bytes, and tenants have equal shares of it (fair_queue.py). The queue is limited too: a run with too
much unsent text waits, and does not read its model's stream meanwhile.

Units of a session keep their order. Durable units are announced and answered after a barrier, which runs in parallel to the
next flush. Deltas are announced as soon as they are stored, unless their session has something that waits for the barrier.

Everything here runs in one loop. A store (store.py) does the database's part.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import connections

from sessions_app.core.base import metrics, supervision
from sessions_app.core.base.errors import NotReady
from sessions_app.core.log import broadcast
from sessions_app.core.log.journal.entries import READY, Entry, StoredFlush, size_of
from sessions_app.core.log.journal.errors import BadUnit, WriterClosed
from sessions_app.core.log.journal.fair_queue import FairQueue
from sessions_app.core.log.journal.layout import Layout, lay_out
from sessions_app.core.log.journal.postgres_store import PostgresStore
from sessions_app.core.log.journal.rows import announcements
from sessions_app.core.log.journal.sqlite_store import SqliteStore
from sessions_app.core.log.journal.store import BadData, Locked, Store, Unavailable, UnitResult, Written
from sessions_app.core.log.journal.types import Announcement, Outcome, Unit

logger = logging.getLogger(__name__)

UNSENT_BYTES = 256 * 1024
"""How much text of one session may wait to be stored before its run must wait."""
UNSENT_BYTES_IN_ALL = 64 * 1024 * 1024
"""The same for all sessions together: if many have unsent text, each may have less than ``UNSENT_BYTES``."""

_MOST_UNITS = 2000
_FLUSH_BYTES = 256 * 1024
"""A flush of this size takes about 10 ms, during which all other deltas wait. Only its last unit may exceed it."""
_CLOSE_SECONDS = 10.0
_SPACING, _LONGEST_SPACING = 0.005, 0.012
"""Seconds between two flushes if the second one has only deltas: more under load, which the size of the last flush shows."""
_UNITS_UNDER_LOAD = 20
"""A flush of this many units is followed by the longest pause, a smaller one by its share of it."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1
_AWAY_PAUSE = 0.5
_UNCONFIRMED_SECONDS = 0.5
"""Deltas do not wait for a barrier, but one follows after this time: until then they are kept, in case a crash loses them."""

# The groups of sessions in a flush, in the order of their numbers: sessions with durable units; sessions without, but with
# something that still waits for the barrier; all others.
_DURABLE, _FOLLOWING, _FREE = range(3)


@dataclass(slots=True)
class _Group:
    """The entries of one attempt. ``at_once``: they belong to one tenant, and the attempt does not wait for locked rows."""

    entries: list[Entry]
    at_once: bool = False


def _tenants_of(entries: Iterable[Entry]) -> dict[int, int]:
    return {entry.unit.session: entry.unit.tenant for entry in entries}


def _all(groups: Iterable[_Group]) -> Iterator[Entry]:
    return itertools.chain.from_iterable(group.entries for group in groups)


def _store() -> Store:
    return PostgresStore() if connections["default"].vendor == "postgresql" else SqliteStore()


class Writer:
    """The worker process's writer. All methods run in the worker's loop."""

    def __init__(self) -> None:
        self._store = _store()
        self._all_durable: bool = settings.AGENTHOST_DURABLE_DELTAS
        self._era: int | None = None
        self._tickets = itertools.count()
        self._queue = FairQueue()
        self._parked: list[Entry] = []
        self._parked_sessions: dict[int, int] = {}
        self._park_pause = _FIRST_PAUSE
        self._held: dict[int, int] = {}
        """Sessions that wait for a locked row, and their tenants."""
        self._failed_runs: dict[tuple[int, int], str] = {}
        self._unsent: dict[int, int] = {}
        self._room: dict[int, list[asyncio.Future[None]]] = {}
        self._unconfirmed: list[StoredFlush] = []
        self._last_record: dict[int, StoredFlush] = {}
        self._on_stale: Callable[[int], object] = lambda turn: None  # noqa: ARG005
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._last_flush = float("-inf")
        self._last_units = 0
        self._confirm = asyncio.Event()
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._check_again = False
        self._closed = False
        self._busy = False
        self._quiet = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # --- for runs ---

    async def start(self) -> None:
        """Connect and start; units that were submitted before wait until then."""
        await self._store.open()
        self._era = self._store.era
        self._tasks = [
            supervision.task(self._write_forever(), "journal-writer"),
            supervision.task(self._confirm_forever(), "journal-confirm"),
        ]

    def on_stale(self, callback: Callable[[int], object]) -> None:
        """Set the callback for deltas that were refused because another run has the session; it gets the turn's row number."""
        self._on_stale = callback

    async def submit(self, unit: Unit) -> Outcome:
        """Store the unit atomically; its durable parts are on disk when this returns.

        Raises BadUnit if the database refuses its data, WriterClosed if the writer was closed before.
        """
        return await self.queue(unit)

    def queue(self, unit: Unit) -> asyncio.Future[Outcome]:
        """``submit`` for a caller that does something else before it waits: the unit has its place in the order now."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._take(unit, future)
        return future

    def put(self, unit: Unit) -> Awaitable[None]:
        """Queue deltas. Await the result before sending more: it waits until the session's unsent text is small enough."""
        self._take(unit, None)
        if self._closed or self._unsent.get(unit.session, 0) < self._most_unsent():
            return READY
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.setdefault(unit.session, []).append(room)
        return room

    def put_at_once(self, unit: Unit) -> bool:
        """``put`` for a caller that cannot wait; False, and nothing is queued, if it would have to."""
        if self._closed or self._unsent.get(unit.session, 0) >= self._most_unsent():
            return False
        self._take(unit, None)
        return True

    async def close(self) -> None:
        """Store the queued units, for at most some seconds, and stop."""
        if self._closed:
            return
        self._wake.set()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self._queue or self._parked or self._busy or self._unconfirmed:
                    self._quiet.clear()
                    if self._unconfirmed:
                        self._confirm.set()
                    await self._quiet.wait()
        except TimeoutError:
            logger.warning("journal_writer_closed units_not_stored=%s", len(self._queue) + len(self._parked))
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        for entry in [*self._queue, *self._parked, *(entry for record in self._unconfirmed for entry in record.waiting)]:
            self._fail(entry, WriterClosed())
        for session in list(self._room):
            self._make_room(session)
        await self._store.close()

    # --- the queue ---

    def _take(self, unit: Unit, future: asyncio.Future[Outcome] | None) -> None:
        durable = self._all_durable or bool(unit.statements)
        # A reader waits for the first delta of a part; later ones may be delayed.
        opens = False
        for happening in unit.happenings:
            opens = opens or happening.join is None
            durable = durable or happening.durable
        entry = Entry(unit, size_of(unit), durable, next(self._tickets), future)
        if self._closed:
            self._fail(entry, WriterClosed())
            return
        session = unit.session
        self._unsent[session] = self._unsent.get(session, 0) + self._queue.add(entry)
        if opens or entry.future is not None:
            self._hurry.set()
        self._wake.set()

    def _sent(self, entry: Entry) -> None:
        """The entry is done: subtract it from its session's unsent text."""
        session = entry.unit.session
        self._held.pop(session, None)
        left = self._unsent.get(session, 0) - entry.size
        if left > 0:
            self._unsent[session] = left
        else:
            self._unsent.pop(session, None)
        if session in self._room and left < self._most_unsent():
            self._make_room(session)

    def _most_unsent(self) -> int:
        return min(UNSENT_BYTES, UNSENT_BYTES_IN_ALL // max(1, len(self._unsent)))

    def _make_room(self, session: int) -> None:
        for room in self._room.pop(session, ()):
            if not room.done():
                room.set_result(None)

    def _answer(self, entry: Entry, outcome: Outcome) -> None:
        if entry.future is not None and not entry.future.done():
            entry.future.set_result(outcome)

    def _fail(self, entry: Entry, error: Exception) -> None:
        if entry.future is not None and not entry.future.done():
            entry.future.set_exception(error)

    def _park(self, entries: Iterable[Entry]) -> None:
        """Let these entries wait because a row is locked; later entries of their sessions wait too."""
        for entry in entries:
            if not self._parked:
                asyncio.get_running_loop().call_later(self._park_pause, self._unpark)
                self._park_pause = min(self._park_pause * 2, _LONGEST_PAUSE)
            self._parked.append(entry)
            session = entry.unit.session
            self._parked_sessions[session] = min(entry.ticket, self._parked_sessions.get(session, entry.ticket))

    def _unpark(self) -> None:
        parked, self._parked, self._parked_sessions = self._parked, [], {}
        self._queue.put_back(parked)
        self._wake.set()

    def _must_wait(self, entry: Entry) -> bool:
        parked = self._parked_sessions.get(entry.unit.session)
        return parked is not None and parked < entry.ticket

    def _next_batch(self) -> list[Entry]:
        batch: list[Entry] = []
        for entry in self._queue.take(_MOST_UNITS, _FLUSH_BYTES):
            if self._must_wait(entry):
                self._park([entry])
            else:
                batch.append(entry)
        return batch

    # --- writing ---

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._busy = True
            while self._queue or self._check_again:
                if self._check_again:
                    self._check_again = False
                    await self._store.refresh()
                    self._queue.put_back(await self._recover_lost())
                await self._space_flushes()
                batch = self._next_batch()
                self._last_units = len(batch)
                if batch:
                    await self._flush(batch)
            self._busy = False
            self._quiet.set()

    async def _space_flushes(self) -> None:
        """Pause after the last flush so that deltas collect; a unit that a caller waits for ends the pause."""
        loop = asyncio.get_running_loop()
        spacing = max(_SPACING, _LONGEST_SPACING * min(1.0, self._last_units / _UNITS_UNDER_LOAD))
        left = self._last_flush + spacing - loop.time()
        if left > 0 and not self._hurry.is_set():
            ended = loop.call_later(left, self._hurry.set)
            await self._hurry.wait()
            ended.cancel()
        self._hurry.clear()
        self._last_flush = loop.time()

    def _groups(self, batch: Sequence[Entry]) -> deque[_Group]:
        """One group for all tenants, then one for each tenant with a row that was locked for long."""
        together: list[Entry] = []
        alone: dict[int, list[Entry]] = {}
        held = set(self._held.values())
        for entry in batch:
            if entry.unit.tenant in held:
                alone.setdefault(entry.unit.tenant, []).append(entry)
            else:
                together.append(entry)
        groups = deque(_Group(entries, at_once=True) for entries in alone.values())
        if together:
            groups.appendleft(_Group(together))
        return groups

    async def _flush(self, batch: Sequence[Entry]) -> None:
        groups = self._groups(batch)
        while groups:
            group = groups.popleft()
            entries = self._without_failed(group.entries)
            if not entries:
                continue
            tenants = list(dict.fromkeys(entry.unit.tenant for entry in entries))
            began = time.monotonic()
            try:
                lay_out = partial(self._lay_out, {entry.unit.session for entry in entries if entry.durable})
                written = await self._store.attempt([entry.unit for entry in entries], lay_out, at_once=group.at_once)
            except Locked:
                metrics.FLUSHES_FAILED.labels("locked").inc()
                if group.at_once:
                    self._held.update(_tenants_of(entries))
                    self._park(entries)
                    continue
                # One tenant has a locked row. Attempts per tenant show which one, and do not wait for it again.
                for tenant in reversed(tenants):
                    theirs = [entry for entry in entries if entry.unit.tenant == tenant]
                    groups.appendleft(_Group(theirs, at_once=True))
                continue
            except BadData as error:
                metrics.FLUSHES_FAILED.labels("refused").inc()
                half = len(entries) // 2
                if half:
                    groups.extendleft(_Group(part, group.at_once) for part in (entries[half:], entries[:half]))
                else:
                    self._fail_run(entries[0], error.code)
                continue
            except Unavailable:
                metrics.FLUSHES_FAILED.labels("database_away").inc()
                self._queue.put_back([*entries, *_all(groups)])
                await asyncio.sleep(_AWAY_PAUSE)
                return
            metrics.FLUSH_SECONDS.observe(time.monotonic() - began)
            metrics.FLUSH_UNITS.observe(len(entries))
            if group.at_once:
                self._held.update(
                    _tenants_of(entry for entry, result in zip(entries, written.results, strict=True) if result == "deferred")
                )
            again = self._handle_results(entries, written)
            if self._store.era != self._era:
                # Units that a crash has lost come before those that follow them.
                lost = await self._recover_lost()
                self._queue.put_back([*lost, *again, *_all(groups)])
                return
            if again:
                groups.appendleft(_Group(again, group.at_once))
        if not self._parked:
            self._park_pause = _FIRST_PAUSE

    def _without_failed(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries without those whose run has failed and those that follow a parked one."""
        wanted = []
        for entry in entries:
            if self._must_wait(entry):
                self._park([entry])
            elif entry.run in self._failed_runs:
                self._fail_run(entry, self._failed_runs[entry.run])
            else:
                wanted.append(entry)
        return wanted

    def _fail_run(self, entry: Entry, code: str) -> None:
        """The database refuses this unit: fail its run, because later events would follow a gap."""
        if entry.run not in self._failed_runs:
            logger.error("unit_not_stored turn_row=%s reason=%s", entry.unit.turn, code)
            while len(self._failed_runs) >= 1000:
                del self._failed_runs[next(iter(self._failed_runs))]
            self._failed_runs[entry.run] = code
        self._sent(entry)
        self._fail(entry, BadUnit(code))

    def _lay_out(self, durable: AbstractSet[int], units: Sequence[Unit]) -> Layout:
        """``durable``: the sessions with durable units in this flush."""

        def group_of(session: int) -> int:
            if session in durable:
                return _DURABLE
            return _FOLLOWING if session in self._last_record else _FREE

        return lay_out(units, group_of, 3)

    def _handle_results(self, entries: Sequence[Entry], written: Written) -> list[Entry]:
        """Handle the result of each entry; returns those to be tried again."""
        by_result: dict[UnitResult, list[Entry]] = {}
        for entry, result in zip(entries, written.results, strict=True):
            by_result.setdefault(result, []).append(entry)
        for entry in by_result.get("stale", ()):
            self._sent(entry)
            if entry.future is None:
                asyncio.get_running_loop().call_soon(self._on_stale, entry.unit.turn)
            self._answer(entry, "stale")
        for entry in by_result.get("answered", ()):
            self._sent(entry)
            self._answer(entry, "answered")
        for entry in by_result.get("missing", ()):
            self._fail_run(entry, "missing tail")
        self._park(by_result.get("deferred", ()))
        if stored := by_result.get("stored"):
            self._stored(stored, written)
        return by_result.get("again", [])

    def _stored(self, entries: list[Entry], written: Written) -> None:
        """Announce what does not wait for the barrier, and keep the rest for it."""
        layout = written.layout
        assert layout is not None
        for place, entry in enumerate(entries):
            if entry.future is not None:
                entry.unit.stored = layout.stored(place, written.appended)
            self._sent(entry)
        made: list[list[Announcement]] = [[], [], []]
        if written.appended is not None:
            made = announcements(layout.rows, written.appended, layout.groups)
        waiting = [entry for entry in entries if entry.durable]
        sessions = {item.session for each in made[_DURABLE] for item in each.items}
        record = StoredFlush(written, entries, waiting, made[_DURABLE], sessions)
        at_once = [each for each in made[_FOLLOWING] if not self._follow(each)] + made[_FREE]
        for entry in entries:
            if not entry.durable:
                self._answer(entry, "stored")
        if written.era is None:
            self._confirmed(record)
        else:
            self._unconfirmed.append(record)
            for session in record.sessions:
                self._last_record[session] = record
            if waiting or record.announcements:
                self._confirm.set()
            elif self._confirm_timer is None:
                loop = asyncio.get_running_loop()
                self._confirm_timer = loop.call_later(_UNCONFIRMED_SECONDS, self._confirm_soon)
        if at_once:
            broadcast.announce(at_once)

    def _follow(self, announcement: Announcement) -> bool:
        """Announce this after the waiting announcements of its sessions; False if none are waiting."""
        sessions = [item.session for item in announcement.items]
        leaders = {id(leader) for session in sessions if (leader := self._last_record.get(session)) is not None}
        last = next((each for each in reversed(self._unconfirmed) if id(each) in leaders), None)
        if last is None:
            return False
        last.followers.append(announcement)
        for session in sessions:
            self._last_record[session] = last
            last.sessions.add(session)
        return True

    # --- the barrier ---

    def _confirm_soon(self) -> None:
        self._confirm_timer = None
        self._confirm.set()

    async def _confirm_forever(self) -> None:
        while True:
            await self._confirm.wait()
            self._confirm.clear()
            batch = list(self._unconfirmed)
            if not batch:
                continue
            try:
                era = await self._store.barrier()
            except NotReady:
                self._confirm.set()
                await asyncio.sleep(_AWAY_PAUSE)
                continue
            there = {id(record) for record in self._unconfirmed}
            for record in batch:
                # A record that is gone was handled by the writing task, after a crash.
                if id(record) not in there:
                    continue
                if record.written.era == era:
                    self._unconfirmed.remove(record)
                    self._confirmed(record)
                else:
                    self._check_again = True
                    self._wake.set()
            self._quiet.set()

    def _confirmed(self, record: StoredFlush) -> None:
        """The flush is on disk: send its announcements and followers, and answer its callers."""
        for session in record.sessions:
            if self._last_record.get(session) is record:
                del self._last_record[session]
        if record.announcements or record.followers:
            broadcast.announce([*record.announcements, *record.followers])
        for entry in record.waiting:
            self._answer(entry, "stored")

    async def _recover_lost(self) -> list[Entry]:
        """After a database crash, check which unconfirmed flushes were lost; returns their entries, to be stored again."""
        self._era = self._store.era
        lost: list[Entry] = []
        for record in list(self._unconfirmed):
            if record.written.era == self._era:
                continue
            if await self._store.survived(record.written):
                record.written.era = self._era
                continue
            if record not in self._unconfirmed:
                continue
            self._unconfirmed.remove(record)
            for session in record.sessions:
                if self._last_record.get(session) is record:
                    del self._last_record[session]
            unanswered = {id(entry) for entry in record.waiting}
            for entry in record.entries:
                again = entry if id(entry) in unanswered else Entry(entry.unit, entry.size, entry.durable, entry.ticket)
                self._unsent[entry.unit.session] = self._unsent.get(entry.unit.session, 0) + entry.size
                lost.append(again)
        if lost:
            logger.warning("database_crash_lost_units count=%s: they are stored again", len(lost))
        if self._unconfirmed:
            self._confirm.set()
        return lost
