"""Checks that the migrations since the last release do not stop a busy server: runs them on Postgres and reads their locks.

Each statement is looked at in its own transaction, before it commits: `pg_locks` has the tables that it locked and how,
`pg_stat_xact_all_tables` those that it read from end to end, and a table or index whose file has changed was rewritten. So
it does not matter whether a model operation, SQL or Python did it. Statements that cannot be in a transaction (CONCURRENTLY)
do not stop writers and are not looked at. All tables of the last release count as large, except those in SMALL; tables that
newer migrations create are empty during the upgrade.

A migration that must break a rule gives the table and the reason: `heavy_locks = {"event": "reason"}`. The changelog has to
mention how long it stops the server.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.migrations import Migration
from django.db.migrations import operations as kinds
from django.db.migrations.operations.base import Operation

MODES = (
    "AccessShareLock",
    "RowShareLock",
    "RowExclusiveLock",
    "ShareUpdateExclusiveLock",
    "ShareLock",
    "ShareRowExclusiveLock",
    "ExclusiveLock",
    "AccessExclusiveLock",
)
WRITES = MODES.index("RowExclusiveLock")
STOPS_WRITERS = MODES.index("ShareLock")
LOCKS_ALONE = MODES.index("ShareRowExclusiveLock")
SMALL = frozenset(
    f"sessions_app_{name}"
    for name in (
        *("tenant", "apikey", "member", "staff", "invitation", "installationmark", "tenantdeletion"),
        *("agentdefinition", "agentlisting", "shownlisting", "agentsofprocess", "workerpresence", "terminalservice"),
        *("auditkey", "auditseal", "audithead", "auditsink", "webhook", "webhooksecret"),
        *("serverfigures", "figuresmark", "usecounted", "workspacetotal"),
    )
)
"""Tables with few rows per tenant: reading or rewriting them takes milliseconds."""

_OUTSIDE = ("concurrently", "vacuum", "alter system", "create database", "drop database")
_TABLES = "select oid, relname from pg_class where relkind in ('r', 'p') and relnamespace = current_schema()::regnamespace"
_LOCKS = """select relation, mode from pg_locks where locktype = 'relation' and granted and pid = pg_backend_pid()
    and relation = any(%s)"""
_SCANS = "select relid, seq_scan from pg_stat_xact_all_tables where relid = any(%s)"
_FILES = """select t.oid, coalesce(pg_relation_filenode(t.oid), 0) from pg_class t where t.oid = any(%s)"""
_TRANSACTION = "select virtualtransaction from pg_locks where locktype = 'virtualxid' and pid = pg_backend_pid()"


@dataclass(frozen=True)
class Seen:
    """What one statement did to large tables, by name."""

    operation: str
    statement: str
    locks: Mapping[str, int]
    """The strongest lock that its transaction has on each table after it, as an index of MODES."""
    new: frozenset[str] = frozenset()
    """Tables that it locked, or locked more strongly than earlier statements."""
    scanned: frozenset[str] = frozenset()
    rewritten: frozenset[str] = frozenset()
    waits_forever: bool = False
    in_batches: bool = False


def judge(seen: Seen) -> Iterator[tuple[str, str]]:
    """The table and the fault, for each rule that the statement breaks."""
    stopped = {table: mode for table, mode in seen.locks.items() if mode >= STOPS_WRITERS}
    for table in sorted(seen.rewritten):
        yield table, f"it rewrites {table}: add a new column, fill it with InBatches, and drop the old one a release later"
    for table in sorted(seen.scanned - seen.rewritten):
        for locked, mode in sorted(stopped.items()):
            yield locked, f"it reads all rows of {table} under {MODES[mode]} on {locked}: {_instead(seen.statement)}"
    for table in sorted(seen.new):
        if seen.locks[table] == WRITES and not seen.in_batches:
            yield table, f"it changes rows of {table} in one transaction: use InBatches (sessions_app/migrations/_batches.py)"
    together = sorted(table for table, mode in stopped.items() if mode >= LOCKS_ALONE)
    if len(together) > 1 and seen.new.intersection(together):
        yield together[-1], f"its transaction locks {' and '.join(together)}: make a migration for each"
    for table in sorted(seen.new.intersection(stopped)):
        if seen.waits_forever:
            yield (
                table,
                f"it waits for its lock on {table} without lock_timeout, and others wait behind it: keep the timeout",
            )


def _instead(statement: str) -> str:
    words = statement.lower()
    if " unique " in words and "add constraint" in words:
        return "build a unique index concurrently first, then add the constraint USING INDEX"
    if "create " in words and " index " in words:
        return "use AddIndexConcurrently (sessions_app/migrations/_concurrent.py)"
    if "foreign key" in words:
        return "add the foreign key NOT VALID, and validate it in a later migration (or use db_constraint=False)"
    if "add column" in words and "check" in words:
        return "use AddFieldConcurrently (sessions_app/migrations/_concurrent.py)"
    if "not null" in words or "check" in words:
        return "add a CHECK that is NOT VALID, and validate it in a later migration"
    return "read it in a transaction of its own"


@dataclass
class Watch:
    """Looks at each statement of a connection, as an execute wrapper."""

    connection: Any
    large: Mapping[int, str]
    """Names of tables by their oid, which a rename does not change."""
    operation: str = ""
    in_batches: bool = False
    seen: list[Seen] = field(default_factory=list)
    _transaction: str = ""
    _held: dict[str, int] = field(default_factory=dict)

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        words = str(sql).lower()
        if self.connection.in_atomic_block:
            return self._watched(execute, sql, params, many, context)
        if any(word in words for word in _OUTSIDE):
            return execute(sql, params, many, context)
        with transaction.atomic(using=self.connection.alias):
            return self._watched(execute, sql, params, many, context)

    def _watched(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any) -> Any:
        ((number,),) = self._ask(_TRANSACTION)
        if number != self._transaction:
            self._transaction, self._held = number, {}
        scans, files = self._by_table(_SCANS), self._by_table(_FILES)
        result = execute(sql, params, many, context)
        locks: dict[str, int] = {}
        for oid, mode in self._ask(_LOCKS, list(self.large)):
            name = self.large[oid]
            locks[name] = max(locks.get(name, 0), MODES.index(mode))
        after = self._by_table(_FILES)
        ((timeout,),) = self._ask("show lock_timeout")
        self.seen.append(
            Seen(
                self.operation,
                " ".join(str(sql).split()),
                locks,
                frozenset(name for name, mode in locks.items() if mode > self._held.get(name, -1)),
                frozenset(name for name, count in self._by_table(_SCANS).items() if count > scans.get(name, 0)),
                # A table that is gone was not rewritten.
                frozenset(name for name, file in files.items() if after.get(name, file) != file),
                waits_forever=timeout == "0",
                in_batches=self.in_batches,
            )
        )
        self._held = locks
        return result

    def _by_table(self, sql: str) -> dict[str, int]:
        return {self.large[oid]: value for oid, value in self._ask(sql, list(self.large))}

    def _ask(self, sql: str, *parameters: Any) -> list[Any]:
        # Past Django's cursor, which would call this wrapper again.
        rows: list[Any] = self.connection.connection.execute(sql, parameters or None).fetchall()
        return rows


def large_tables(connection: Any) -> dict[int, str]:
    """The tables that the database has now, without those in SMALL and those of other apps."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        rows = cursor.fetchall()
    return {oid: name for oid, name in rows if name not in SMALL and not name.startswith(("django_", "auth_", "migration_"))}


@contextmanager
def naming_operations(migration: Migration, watch: Watch) -> Iterator[None]:
    """Let the watch know which operation runs."""
    for operation in migration.operations:
        vars(operation)["database_forwards"] = _naming(operation, watch)
    watch.operation, watch.in_batches = "", False
    try:
        yield
    finally:
        for operation in migration.operations:
            del vars(operation)["database_forwards"]


def _naming(operation: Operation, watch: Watch) -> Callable[..., None]:
    from sessions_app.migrations._batches import InBatches

    forwards = operation.database_forwards

    def named(*arguments: Any) -> None:
        watch.operation, watch.in_batches = operation.describe(), isinstance(operation, InBatches)
        try:
            forwards(*arguments)
        finally:
            # Foreign keys and indexes are added at the end of the migration.
            watch.operation, watch.in_batches = "at its end", False

    return named


def faults(migration: Migration, seen: list[Seen]) -> list[str]:
    """The faults of a migration that has run, without those for which it gives a reason."""
    name = f"{migration.app_label}.{migration.name}"
    reasons: dict[str, str] = dict(getattr(migration, "heavy_locks", {}))
    found: list[str] = []
    used: set[str] = set()
    for statement in seen:
        for table, fault in judge(statement):
            if reasons.get(table):
                used.add(table)
                continue
            found.append(f"{name}: {statement.operation}: {fault} [{statement.statement[:100]}]")
    found += [f"{name}: heavy_locks has {table}, which needs no exception; remove it" for table in sorted(reasons.keys() - used)]
    return [*found, *(f"{name}: {fault}" for fault in repetition_faults(migration))]


def repetition_faults(migration: Migration) -> Iterator[str]:
    """A migration without transaction that is interrupted runs again from its beginning."""
    if migration.atomic:
        return
    for operation in migration.operations[:-1]:
        if not _can_be_repeated(operation):
            yield (
                f"{operation.describe()}: if the migration is interrupted after it, it cannot run again; without a transaction"
                " (atomic = False), only the last operation may be one that cannot be repeated"
            )


def _can_be_repeated(operation: Operation) -> bool:
    from sessions_app.migrations._concurrent import AddFieldConcurrently, AddIndexConcurrently

    if isinstance(operation, kinds.SeparateDatabaseAndState):
        return all(map(_can_be_repeated, operation.database_operations))
    return isinstance(operation, AddIndexConcurrently | AddFieldConcurrently)


def check(connection: Any, released: set[str]) -> tuple[list[str], int]:
    """Migrate an empty database to the last release, then run the newer migrations; returns the faults and their number."""
    from django.db.migrations.executor import MigrationExecutor

    from agenthost.management.commands.migrate import LOCK_SECONDS
    from sessions_app.core.base import lock_timeouts

    executor = MigrationExecutor(connection)
    leaves = executor.loader.graph.leaf_nodes()
    full = executor.migration_plan(leaves)
    newer = {
        (m.app_label, m.name) for m, _ in full if m.app_label == "sessions_app" and f"{m.app_label}.{m.name}" not in released
    }
    plan = [(migration, backwards) for migration, backwards in full if (migration.app_label, migration.name) not in newer]
    state = executor.migrate(leaves, plan=plan)
    found: list[str] = []
    watch = Watch(connection, large_tables(connection))
    with lock_timeouts.at_most(LOCK_SECONDS):
        for migration, _ in full:
            if (migration.app_label, migration.name) in newer:
                watch.seen = []
                with naming_operations(migration, watch), connection.execute_wrapper(watch):
                    state = executor.apply_migration(state, migration)
                found += faults(migration, watch.seen)
    return found, len(newer)


def main() -> int:
    from ops import services

    with services.folder() as home:
        postgres = services.Postgres(home)
        try:
            postgres.start()
        except services.ServiceMissingError as error:
            print(f"note: not checked, there is no Postgres: {error}")
            return 0
        try:
            os.environ |= {
                "DATABASE_URL": postgres.url(),
                "AGENTHOST_SECRET_KEY": secrets.token_urlsafe(32),
                "AGENTHOST_KEY_RING": base64.b64encode(secrets.token_bytes(32)).decode(),
            }
            import django

            django.setup()
            from django.db import connection

            from sessions_app.core.records.database_checks import released_migrations

            found, number = check(connection, released_migrations())
            print("\n".join(found) if found else f"note: {number} migrations since the last release")
            connection.close()
            return 1 if found else 0
        finally:
            postgres.stop()


if __name__ == "__main__":
    sys.exit(main())
