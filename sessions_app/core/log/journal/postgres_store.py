"""The writer's store for Postgres: its own connection in the worker's loop, statements in pipelines.

A flush of deltas is one statement. A flush with commit points is one round trip as well: the units' own statements, of
which the first one also locks the turns and raises unless all units can be stored, and the append, which raises if it
cannot store everything. They are one implicit transaction. If the first one raises, the flush is repeated in two round
trips: the first locks the turns and reports which units can be stored, the second stores those.

After a lost connection the outcome of an attempt is unknown. The store first terminates the old backend, so that it cannot
do anything later, and then queries what was stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from sessions_app.core.base import own_connection
from sessions_app.core.base.pipeline import Pipeline
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log.journal import barriers, postgres
from sessions_app.core.log.journal.joined_statements import joined
from sessions_app.core.log.journal.layout import Layout
from sessions_app.core.log.journal.postgres import Append, numbers
from sessions_app.core.log.journal.rows import Appended, AppendedRow, Row
from sessions_app.core.log.journal.store import (
    BadData,
    CheckedUnits,
    LayOut,
    Locked,
    Unavailable,
    UnitResult,
    Written,
    check_units,
)
from sessions_app.core.log.journal.types import Unit

logger = logging.getLogger(__name__)

_LOCK_TURNS = """
select id, fence, state, attention, pg_current_xact_id()::text from sessions_app_turn where id = any(%s::bigint[])
order by id for update skip locked
"""

_NOT_ALL = "turns"
# The same in one statement with what follows: raises if a unit's turn is locked, no longer its run's, or ends with attention.
_CHECK_TURNS = f"""
with w as (select * from unnest(%s::bigint[], %s::int[], %s::boolean[]) as w(turn, fence, ends)),
 l as materialized (select id, fence, state, attention from sessions_app_turn where id = any(%s::bigint[])
   order by id for update skip locked)
select w.turn, l.attention, pg_current_xact_id()::text,
 case when l.id is null or l.fence <> w.fence or l.state <> 'running' or (w.ends and l.attention)
 then journal_refuse('{_NOT_ALL}') end
from w left join l on l.id = w.turn
"""

# Sessions whose row, or a row of whose tool calls, is locked: a unit refers to the session and changes the calls.
_HELD = """
with s as materialized (select id from sessions_app_session where id = any(%s::bigint[]) for key share skip locked),
 c as materialized (select id from sessions_app_toolcall where turn_id = any(%s::bigint[]) for no key update skip locked)
select session_id from unnest(%s::bigint[]) as x(session_id) where session_id not in (select id from s)
union select session_id from sessions_app_toolcall where turn_id = any(%s::bigint[]) and id not in (select id from c)
"""

# Runs after the unit's own statements, so that calls which the run has just stored count as seen. Answering a call locks the
# turn too, so the result stays true until COMMIT.
_UNLESS_ANSWERED = """
select case when coalesce(bool_or(state = 'granted' or (state in ('denied', 'done') and not stored)), false)
 or not coalesce(bool_or(state in ('pending', 'review')), false) then journal_refuse('answered:' || %s::text) end
from sessions_app_toolcall where turn_id = %s
"""

_END_BACKEND = """
select count(pg_terminate_backend(pid)) from pg_stat_activity where pid = %s and backend_start = %s
"""

_MORE_KNOWN = 20_000
_ASK_AGAIN_SECONDS = 0.2


class _Attempt:
    """An attempt whose result is not known yet."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.results: list[UnitResult] = ["again"] * count
        self.good: list[int] = []
        self.layout: Layout | None = None
        self.append: Append | None = None
        self.is_whole = False
        """Whether it stores all its units or none; a flush of deltas may store some."""
        self.transaction = ""
        """The transaction's number, if it is known."""
        self.sent = False


def _statements(units: Sequence[Unit], check: Statement | None = None) -> Iterator[Statement]:
    """The units' statements in order. ``check`` is joined with the first ones."""
    checks = [] if check is None else [check]
    for index, unit in enumerate(units):
        if not unit.is_commit_point:
            continue
        yield from joined([*checks, *unit.statements])
        checks = []
        if unit.unless_answered:
            yield Statement(_UNLESS_ANSWERED, (index, unit.turn))


class PostgresStore:
    """Stores units in Postgres. Its connection uses generic plans without scans, no JIT, and a short lock timeout."""

    def __init__(self) -> None:
        self.era: int | None = None
        self._parameters = own_connection.connection_parameters(
            "plan_cache_mode=force_generic_plan",
            "enable_seqscan=off",
            "jit=off",
            f"lock_timeout={postgres.LOCK_TIMEOUT_MS}",
            "synchronous_commit=off",
        )
        self._connection: AsyncConnection[Any] | None = None
        self._backend: tuple[Any, ...] | None = None
        self._known: dict[int, tuple[int, int]] = {}

    async def open(self) -> None:
        await self._reconnect()

    async def close(self) -> None:
        await self._disconnect()

    async def barrier(self) -> int | None:
        return await barriers.passed_async()

    # --- attempts ---

    async def attempt(self, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        if self._connection is None or self._connection.closed:
            era = self.era
            await self._reconnect()
            if self.era != era:
                return Written.nothing(len(units))
        attempt = _Attempt(len(units))
        try:
            if any(unit.is_commit_point for unit in units):
                return await self._commit(attempt, units, lay_out, at_once=at_once)
            return await self._append_deltas(attempt, units, lay_out, at_once=at_once)
        except Exception as error:  # an edge: one unit's bad values must not stop the others
            if not self._is_lost(error):
                await self._roll_back()
                return await self._refused(attempt, error)
        return await self._after_loss(attempt)

    async def _append_deltas(self, attempt: _Attempt, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        attempt.good = list(range(len(units)))
        layout = attempt.layout = lay_out(units)
        append = attempt.append = Append(layout.rows)
        attempt.sent = True
        sql = postgres.APPEND_WITHOUT_WAITING if at_once else postgres.APPEND_AT_ONCE
        pipeline = Pipeline(self._running)
        pipeline.add(sql, append.parameters(at_least=1))
        pipeline.sync()
        answer = append.appended((await pipeline.rows_async())[0])
        results: dict[str, UnitResult] = {"stored": "stored", "stale": "stale", "missing": "missing"}
        for index, places in enumerate(layout.places):
            # All rows of a unit have the same session and fence, so they have the same status.
            attempt.results[index] = results.get(answer.lines[places[0]].status, "deferred") if places else "stored"
        return self._written(attempt, layout, answer)

    async def _commit(self, attempt: _Attempt, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        attempt.is_whole = True
        if not at_once and all(_fits_one_trip(unit) for unit in units):
            try:
                return await self._commit_in_one_trip(attempt, units, lay_out)
            except psycopg.Error as error:
                if error.diag.sqlstate != postgres.REFUSED or error.diag.message_detail != _NOT_ALL:
                    raise
            attempt.sent = False
        return await self._commit_checked(attempt, units, lay_out, at_once=at_once)

    async def _commit_in_one_trip(self, attempt: _Attempt, units: Sequence[Unit], lay_out: LayOut) -> Written:
        connection = self._running
        attempt.results, attempt.good = ["stored"] * len(units), list(range(len(units)))
        layout = attempt.layout = lay_out(units)
        append = attempt.append = Append(layout.rows)
        commits = [unit for unit in units if unit.is_commit_point]
        turns = [unit.turn for unit in commits]
        ends = "{" + ",".join("t" if unit.unless_attention else "f" for unit in commits) + "}"
        values = (numbers(turns), numbers([unit.fence for unit in commits]), ends, numbers(sorted(set(turns))))
        attempt.sent = True
        # Outside a transaction block, a group of a pipeline is one transaction.
        pipeline = Pipeline(connection)
        for statement in _statements(units, Statement(_CHECK_TURNS, values, is_check=True)):
            pipeline.add(statement.sql, statement.params)
        pipeline.add(postgres.APPEND, append.parameters())
        pipeline.sync()
        found, *_, answer = await pipeline.rows_async()
        attempt.transaction = found[0][2]
        attention = {turn: flag for turn, flag, *_ in found}
        for unit in commits:
            unit.attention = attention[unit.turn]
        return self._written(attempt, layout, append.appended(answer))

    async def _commit_checked(self, attempt: _Attempt, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:
        connection = self._running
        screened = await self._lock_turns(attempt, units, at_once=at_once)
        attempt.results, attempt.good = screened.results, screened.good
        good = [units[index] for index in screened.good]
        # After "answered" the run continues elsewhere, so its earlier units must be stored first.
        answered = "answered" in attempt.results
        if not good or not (answered or any(unit.is_commit_point for unit in good)):
            # No commit point is left; deltas are stored by the next attempt, without waiting for locks.
            await connection.execute("rollback")
            for index in screened.good:
                attempt.results[index] = "again"
            return Written(attempt.results)
        layout = attempt.layout = lay_out(good)
        append = attempt.append = Append(layout.rows)
        attempt.sent = True
        pipeline = Pipeline(connection)
        for statement in _statements(good):
            pipeline.add(statement.sql, statement.params)
        if layout.rows:
            pipeline.add(postgres.APPEND_WITHOUT_WAITING if at_once else postgres.APPEND, append.parameters())
        pipeline.add("commit")
        pipeline.sync()
        *_, answer, _ = [[], *await pipeline.rows_async()]
        return self._written(attempt, layout, append.appended(answer) if layout.rows else None)

    async def _lock_turns(self, attempt: _Attempt, units: Sequence[Unit], *, at_once: bool) -> CheckedUnits:
        connection = self._running
        wanted = {unit.turn for unit in units if unit.is_commit_point}
        turns_wanted = numbers(sorted(wanted))
        pipeline = Pipeline(connection)
        pipeline.add("begin")
        if at_once:
            pipeline.add(f"set local lock_timeout to {postgres.SHORTEST_LOCK_TIMEOUT_MS}")
            sessions = numbers(sorted({unit.session for unit in units if unit.is_commit_point}))
            pipeline.add(_HELD, (sessions, turns_wanted, sessions, turns_wanted))
        pipeline.add(_LOCK_TURNS, (turns_wanted,))
        pipeline.sync()
        *before, locked = await pipeline.rows_async()
        held = {session for (session,) in before[-1]} if at_once else set()
        turns = {}
        for turn, fence, state, attention, attempt.transaction in locked:
            turns[turn] = (fence, state, attention)
        absent = wanted - turns.keys()
        if absent:
            cursor = await connection.execute(
                "select id from sessions_app_turn where id = any(%s::bigint[])", (numbers(sorted(absent)),)
            )
            absent -= {turn for (turn,) in await cursor.fetchall()}
        return check_units(units, turns, absent, held)

    def _written(self, attempt: _Attempt, layout: Layout, answer: Appended | None) -> Written:
        if answer is not None and answer.era is not None:
            self.era = answer.era
        stored = [place for place, index in enumerate(attempt.good) if attempt.results[index] == "stored"]
        self._remember(layout, answer)
        if len(stored) != len(layout.units):
            layout = _only(layout, stored)
        return Written(attempt.results, layout, answer, self.era, attempt.transaction)

    def _remember(self, layout: Layout, answer: Appended | None) -> None:
        """Remember the last number of each session that was stored here, for ``_find`` after a lost connection."""
        if answer is None:
            return
        for row, line in zip(layout.rows, answer.lines, strict=True):
            if line.status == "stored" and row.fence is not None:
                self._known.pop(row.session, None)
                self._known[row.session] = (row.fence, line.seq)
        while len(self._known) > _MORE_KNOWN:
            del self._known[next(iter(self._known))]

    # --- refusals ---

    async def _refused(self, attempt: _Attempt, error: Exception) -> Written:
        """Nothing was stored: return or raise the reason."""
        if not isinstance(error, psycopg.Error):
            raise BadData(type(error).__name__) from None
        state = error.diag.sqlstate or ""
        if state == postgres.REFUSED:
            return await self._by_detail(attempt, error.diag.message_detail or "")
        if state in ("55P03", "40P01", "40001"):
            raise Locked from None
        if state[:2] in ("53", "57", "58") or state == "25006":
            logger.warning("journal_unavailable error=%s sqlstate=%s", type(error).__name__, state)
            raise Unavailable from None
        # The error's text may quote the data, which must not be logged.
        raise BadData(f"{type(error).__name__} {state} {error.diag.constraint_name or ''}".strip()) from None

    async def _by_detail(self, attempt: _Attempt, detail: str) -> Written:
        results: list[UnitResult] = ["again" if result == "answered" else result for result in attempt.results]
        for index in attempt.good:
            results[index] = "again"
        kind, _, number = detail.partition(":")
        if kind == "answered":
            results[attempt.good[int(number)]] = "answered"
            return Written(results)
        assert attempt.layout is not None
        assert attempt.append is not None
        named: dict[str, UnitResult] = {"stale": "stale", "missing": "missing", "skipped": "deferred"}
        lines = attempt.append.refused(detail).lines
        if any(line.status == "no era" for line in lines):
            await self.refresh()
            return Written(results)
        for status, result in named.items():
            for place in attempt.layout.units_of([row for row, line in enumerate(lines) if line.status == status]):
                results[attempt.good[place]] = result
        return Written(results)

    async def _roll_back(self) -> None:
        try:
            if self._running.info.transaction_status != TransactionStatus.IDLE:
                await self._running.rollback()
        except psycopg.Error:
            await self._disconnect()

    # --- losses ---

    def _is_lost(self, error: Exception) -> bool:
        if self._connection is None or self._connection.closed:
            return True
        if not isinstance(error, psycopg.OperationalError) or isinstance(error, psycopg.errors.PipelineAborted):
            return False
        state = error.diag.sqlstate
        return state is None or state[:2] == "08" or state in ("57P01", "57P02", "57P03", "57P05", "25P03")

    async def refresh(self) -> None:
        try:
            if self._connection is None or self._connection.closed:
                await self._reconnect()
            else:
                self.era = await self._present_era(self._connection)
        except psycopg.Error:
            await self._reconnect()

    async def _present_era(self, connection: AsyncConnection[Any]) -> int:
        await connection.execute(postgres.ENSURE_ERA)
        cursor = await connection.execute("select id from journal_era")
        ((era,),) = await cursor.fetchall()
        return int(era)

    async def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _reconnect(self) -> None:
        """Connect, and retry until it succeeds; callers have their own timeouts."""
        await self._disconnect()
        pause = 0.05
        while True:
            connection: AsyncConnection[Any] | None = None
            try:
                connection = await AsyncConnection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
                await self._end_old_backend(connection)
                cursor = await connection.execute("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
                backend = await cursor.fetchone()
                era = await self._present_era(connection)
            except psycopg.Error as error:
                if connection is not None:
                    await connection.close()
                logger.warning("journal_connection_failed error=%s", type(error).__name__)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
            else:
                self._connection, self._backend, self.era = connection, backend, era
                return

    async def _end_old_backend(self, connection: AsyncConnection[Any]) -> None:
        """Terminate the backend of the lost connection, which may still process what it was sent."""
        while self._backend is not None:
            cursor = await connection.execute(_END_BACKEND, self._backend)
            ((there,),) = await cursor.fetchall()
            if not there:
                return
            await asyncio.sleep(0.02)

    @property
    def _running(self) -> AsyncConnection[Any]:
        if self._connection is None:
            raise psycopg.OperationalError("not connected")
        return self._connection

    async def _after_loss(self, attempt: _Attempt) -> Written:
        era = self.era
        await self._reconnect()
        while True:
            if not attempt.sent or attempt.layout is None:
                return Written.nothing(attempt.count)
            try:
                return await self._found(attempt, attempt.layout, same_era=era == self.era)
            except psycopg.Error as error:
                await self._ask_again(error)

    async def _found(self, attempt: _Attempt, layout: Layout, *, same_era: bool) -> Written:
        """The result of an attempt whose connection was lost, from the database; its old backend is gone."""
        lines: list[AppendedRow | None] = [None] * len(layout.rows)
        for (session, fence), rows in layout.rows_by_run().items():
            wanted = [layout.rows[row] for row in rows]
            for row, line in zip(rows, await self._find(session, fence, wanted), strict=False):
                lines[row] = line
        if attempt.is_whole:
            # After a crash the transaction number may have been reused, so check its events if it had any. Without a number
            # the attempt was one round trip, and each of its units has events.
            by_number = attempt.transaction and (same_era or not layout.rows)
            whole = await self._status(attempt.transaction) == "committed" if by_number else None not in lines
            if not whole:
                return Written.nothing(attempt.count)
            for index in attempt.good:
                attempt.results[index] = "stored"
        else:
            for index, places in enumerate(layout.places):
                attempt.results[index] = "stored" if all(lines[row] is not None for row in places) else "again"
        landed = [line or AppendedRow("skipped", 0, 0, "") for line in lines]
        before: dict[int, int] = {}
        upto: dict[int, int] = {}
        for made, line in zip(layout.rows, landed, strict=True):
            if line.status == "stored":
                before[made.tenant] = min(before.get(made.tenant, line.seq - 1), line.seq - 1)
                upto[made.tenant] = max(upto.get(made.tenant, line.seq), line.seq)
        return self._written(attempt, layout, Appended(landed, before, upto, self.era) if landed else None)

    async def _find(self, session: int, fence: int | None, wanted: Sequence[Row]) -> list[AppendedRow]:
        """The stored rows of a run from the attempt: the newest events of its fence, if they have the same content."""
        known = self._known.get(session)
        beyond = known[1] if known is not None and known[0] == fence else 0
        cursor = await self._running.execute(
            "select seq, kind, data from event where session_id = %s and fence = %s and seq > %s order by seq desc limit %s",
            (session, fence, beyond, len(wanted)),
        )
        found = list(reversed(await cursor.fetchall()))
        if [(kind, data) for _, kind, data in found] != [(row.kind, row.data) for row in wanted]:
            return []
        cursor = await self._running.execute(
            "select coalesce(max(seq), 0) from event where session_id = %s and seq < %s", (session, found[0][0])
        )
        ((prev,),) = await cursor.fetchall()
        landed = []
        for seq, _, data in found:
            landed.append(AppendedRow("stored", seq, prev, data))
            prev = seq
        return landed

    async def _status(self, transaction: str) -> str | None:
        try:
            cursor = await self._running.execute("select pg_xact_status(%s::text::xid8)", (transaction,))
        except psycopg.errors.InvalidParameterValue:
            # The number has not been used yet: a crash lost the transaction and all trace of it.
            return None
        ((status,),) = await cursor.fetchall()
        return None if status is None else str(status)

    async def survived(self, written: Written) -> bool:
        while True:
            try:
                if written.layout is None or written.appended is None or not written.layout.rows:
                    return not written.transaction or await self._status(written.transaction) == "committed"
                # Stored in one transaction, so checking one row is enough; event numbers are never reused.
                index = next((i for i, line in enumerate(written.appended.lines) if line.status == "stored"), None)
                if index is None:
                    return True
                row, line = written.layout.rows[index], written.appended.lines[index]
                cursor = await self._running.execute(
                    "select count(*) from event where tenant_id = %s and seq = %s and session_id = %s",
                    (row.tenant, line.seq, row.session),
                )
                ((count,),) = await cursor.fetchall()
            except psycopg.Error as error:
                await self._ask_again(error)
            else:
                return bool(count)

    async def _ask_again(self, error: psycopg.Error) -> None:
        """Wait and reconnect. Nothing else may be stored before the earlier outcome is known, so the query is repeated."""
        logger.warning("journal_check_failed error=%s sqlstate=%s", type(error).__name__, error.diag.sqlstate or "")
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        await self._reconnect()


def _fits_one_trip(unit: Unit) -> bool:
    """Without events, only the transaction's number shows whether a unit was stored; with attention, the check would raise."""
    return bool(unit.happenings) and not (unit.unless_attention and unit.attention)


def _only(layout: Layout, units: Sequence[int]) -> Layout:
    """The layout with only some of its units; its rows and groups stay complete, including refused rows."""
    return Layout([layout.units[index] for index in units], layout.rows, layout.groups, [layout.places[i] for i in units])
