"""The writer's store for SQLite: stores units in the write thread (core/base/write_thread.py), with requests and claims.

Its COMMIT waits for the disk, so no barrier is needed, and the outcome of a COMMIT is always known.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from django.db import OperationalError, connection, transaction

from sessions_app.core.base import database
from sessions_app.core.base.raw_sql import execute
from sessions_app.core.log.journal import sqlite
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

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# These errors are about the file; SQLite's other operational errors are about the statement.
_AWAY = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
)


class _NotCommitted(Exception):
    """Rolls back the transaction, because a part of it could not be stored."""


class SqliteStore:
    """Units into SQLite, on the write thread's connection."""

    def __init__(self) -> None:
        self.era: int | None = None

    async def open(self) -> None:
        await database.run_on_loop(connection.ensure_connection)

    async def close(self) -> None:
        """Nothing to do: requests use the thread too."""

    async def barrier(self) -> int | None:
        return None

    async def refresh(self) -> None:
        """Nothing to do: SQLite has no eras."""

    async def survived(self, written: Written) -> bool:
        return bool(written.results)

    async def attempt(self, units: Sequence[Unit], lay_out: LayOut, *, at_once: bool) -> Written:  # noqa: ARG002 - no counter is ever held
        return await database.run_on_loop(self._attempt, units, lay_out)

    def _attempt(self, units: Sequence[Unit], lay_out: LayOut) -> Written:
        try:
            return self._store(units, lay_out)
        except OperationalError as error:
            code = getattr(error.__cause__, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in _BUSY:
                raise Locked from None
            if code in _AWAY:
                name = getattr(error.__cause__, "sqlite_errorname", "")
                logger.warning("journal_unavailable error=%s", name)
                connection.close()
                raise Unavailable from None
            raise BadData(type(error).__name__) from None
        except Exception as error:  # an edge: one unit's bad values must not stop the others
            # The error's text may quote the data, which must not be logged.
            raise BadData(type(error).__name__) from None

    def _store(self, units: Sequence[Unit], lay_out: LayOut) -> Written:
        written = Written.nothing(len(units))
        try:
            with sqlite.writing():
                screened = self._check_units(units)
                written.results = screened.results
                good = [index for index in screened.good if self._run_statements(units[index], index, screened.results)]
                layout = lay_out([units[index] for index in good])
                if not good:
                    raise _NotCommitted
                written.layout = layout
                written.appended = sqlite.append(layout.rows)
                refused = [row for row, line in enumerate(written.appended.lines) if line.status != "stored"]
                if refused:
                    raise _NotCommitted
        except _NotCommitted:
            self._refuse(written)
            written.layout = written.appended = None
        return written

    def _check_units(self, units: Sequence[Unit]) -> CheckedUnits:
        wanted = sorted({unit.turn for unit in units if unit.is_commit_point})
        turns: dict[int, tuple[int, str, bool]] = {}
        with connection.cursor() as cursor:
            for turn in wanted:
                cursor.execute("select fence, state, attention from sessions_app_turn where id = %s", (turn,))
                turns.update((turn, (fence, state, bool(attention))) for fence, state, attention in cursor.fetchall())
        return check_units(units, turns, set(wanted) - turns.keys())

    def _run_statements(self, unit: Unit, index: int, results: list[UnitResult]) -> bool:
        """Run the unit's statements; False, and nothing is changed, if a client has answered meanwhile."""
        if not unit.unless_answered:
            execute(unit.statements)
            return True
        try:
            with transaction.atomic():
                execute(unit.statements)
                if self._is_answered(unit.turn):
                    raise _NotCommitted
        except _NotCommitted:
            results[index] = "answered"
            return False
        return True

    def _is_answered(self, turn: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("select state, stored from sessions_app_toolcall where turn_id = %s", (turn,))
            rows = cursor.fetchall()
        news = any(state == "granted" or (state in ("denied", "done") and not stored) for state, stored in rows)
        return news or not any(state in ("pending", "review") for state, _ in rows)

    @staticmethod
    def _refuse(written: Written) -> None:
        """Nothing was committed: mark the refused units; the others are to be tried again without them."""
        named: dict[str, UnitResult] = {"stale": "stale", "missing": "missing"}
        good = [index for index, result in enumerate(written.results) if result == "stored"]
        for index, result in enumerate(written.results):
            # After "answered" the run continues elsewhere, so its earlier units must be stored first.
            if good and result in ("stored", "answered"):
                written.results[index] = "again"
        if written.layout is None or written.appended is None:
            return
        for place, rows in enumerate(written.layout.places):
            statuses = {written.appended.lines[row].status for row in rows}
            for status in statuses & named.keys():
                written.results[good[place]] = named[status]
