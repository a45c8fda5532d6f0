"""Changes many rows while the server runs: in batches, one transaction each, which a killed `migrate` continues. Not a migration."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from django.db import NotSupportedError, OperationalError, transaction
from django.db.migrations.operations.base import Operation, OperationCategory

from sessions_app.core.base import database

FIRST_ROWS, LEAST_ROWS, MOST_ROWS = 1000, 50, 20_000
AIM_SECONDS = 0.1
"""How long a batch should take: shorter than any lock timeout of the server's processes."""
PAUSE = 0.5
"""Pause after a batch, as a share of the batch's time, so that the server's own statements have the database, too."""
REPORT_SECONDS = 5.0
LOCK_TRIES, LOCK_SECONDS = 60, 1.0

_TABLE = "create table if not exists migration_progress (name varchar(200) primary key, position bigint not null)"
"""Not a model's, because the first migrations need it, too. A finished change keeps its row: ``migrate`` may be killed
before it has recorded the migration."""

Change = Callable[[Any, int, int], None]


class InBatches(Operation):
    """Calls ``change(connection, after, upto)`` for all rows of ``table``, by ranges of ids: ``after`` < id <= ``upto``.

    Its migration has ``atomic = False``. Each batch is one transaction, together with the id that it has reached: a batch
    is done once, also if ``migrate`` is killed and runs again. It is the last operation of its migration. Rows that the
    previous release inserts meanwhile may be left out: code that reads the result copes with them.
    """

    category = OperationCategory.PYTHON
    reduces_to_sql = False
    reversible = True
    atomic = False
    elidable = False

    def __init__(self, name: str, table: str, change: Change, undo: Callable[[Any], None] | None = None) -> None:
        self.name, self.table, self.change, self.undo = name, table, change, undo

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return self.__class__.__name__, [self.name, self.table, self.change, self.undo], {}

    def describe(self) -> str:
        return f"Change rows of {self.table} in batches: {self.name}"

    def state_forwards(self, app_label: str, state: Any) -> None:
        pass

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if connection.in_atomic_block:
            raise NotSupportedError(f"{self.name}: rows are changed in batches: set atomic = False on its migration")
        _Work(connection, self).run()

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        connection = schema_editor.connection
        if self.undo is not None:
            self.undo(connection)
        with connection.cursor() as cursor:
            cursor.execute(_TABLE)
            cursor.execute("delete from migration_progress where name = %s", [self.name])


class _Work:
    """One run over the table, from where an earlier run was interrupted."""

    def __init__(self, connection: Any, operation: InBatches) -> None:
        self._connection, self._operation = connection, operation
        self._size = FIRST_ROWS
        self._position = self._done = 0
        self._at_end = False

    def run(self) -> None:
        last = self._ask(f'select max(id) from "{self._operation.table}"')
        if last is None:
            return
        began = reported = time.monotonic()
        self._position = first = self._load()
        if 0 < first < last:
            self._say(f"continues after id {first:,} of {last:,}")
        while rows := self._with_retries():
            self._done += rows
            if time.monotonic() - reported >= REPORT_SECONDS:
                reported = time.monotonic()
                self._report(reported - began, first, last)
            if self._at_end:
                break
        if self._done:
            self._say(f"finished, {self._done:,} rows in {time.monotonic() - began:.1f} s")

    def _with_retries(self) -> int:
        for tries in range(LOCK_TRIES):
            started = time.monotonic()
            try:
                rows = self._batch()
            except OperationalError as error:
                if not database.is_lock_refused(error) or tries == LOCK_TRIES - 1:
                    raise
                self._say(f"waits for rows after id {self._position:,} that another transaction has locked")
                self._size = max(LEAST_ROWS, self._size // 2)
                time.sleep(LOCK_SECONDS)
            else:
                self._adapt(time.monotonic() - started)
                return rows
        raise AssertionError

    def _batch(self) -> int:
        """Do the next rows; returns their number, 0 at the end."""
        with transaction.atomic(using=self._connection.alias), self._connection.cursor() as cursor:
            table = self._operation.table
            cursor.execute(
                f'select count(*), max(id) from (select id from "{table}" where id > %s order by id limit %s) batch',
                [self._position, self._size],
            )
            rows, upto = cursor.fetchone()
            if rows:
                self._operation.change(self._connection, self._position, upto)
                cursor.execute("update migration_progress set position = %s where name = %s", [upto, self._operation.name])
        self._position = upto if rows else self._position
        # Not until there is nothing more, because on a busy server there always is.
        self._at_end = rows < self._size
        return int(rows)

    def _adapt(self, taken: float) -> None:
        if taken > 2 * AIM_SECONDS:
            self._size = max(LEAST_ROWS, self._size // 2)
        elif taken < AIM_SECONDS / 2:
            self._size = min(MOST_ROWS, self._size * 2)
        time.sleep(taken * PAUSE)

    def _report(self, seconds: float, first: int, last: int) -> None:
        rate = self._done / seconds
        left = seconds * max(0, last - self._position) / max(1, self._position - first)
        self._say(f"id {self._position:,} of {last:,}, {rate:,.0f} rows/s, about {left:,.0f} s left")

    def _say(self, text: str) -> None:
        print(f"{self._operation.name}: {self._operation.table}: {text}", file=sys.stderr, flush=True)

    # The progress -----------------------------------------------------------------------------------

    def _load(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute(_TABLE)
            cursor.execute(
                "insert into migration_progress (name, position) values (%s, 0) on conflict do nothing", [self._operation.name]
            )
        return int(self._ask("select position from migration_progress where name = %s", self._operation.name))

    def _ask(self, sql: str, *parameters: Any) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            row = cursor.fetchone()
        return row[0] if row else None
