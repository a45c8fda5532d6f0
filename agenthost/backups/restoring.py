"""Restores a backup into an empty database: everything is checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

from agenthost import database_diagnosis
from agenthost.backups import making, manifest, postgres, sqlite, streams, workspaces
from agenthost.backups.errors import BackupError
from agenthost.backups.manifest import Manifest
from agenthost.backups.streams import Progress, Report
from agents_app import installation
from sessions_app.core.records import database_checks
from sessions_app.core.records.database_checks import RestoreMark
from sessions_app.core.workspaces import volume
from sessions_app.models import InstallationMark


@dataclass(frozen=True, slots=True)
class Loaded:
    """What ``load`` did. ``unpacked`` and ``kept``: workspaces that were unpacked, and that the volume had already."""

    manifest: Manifest
    unpacked: int
    kept: int

    @property
    def needs_migration(self) -> bool:
        return manifest.is_older(self.manifest)


def check(folder: Path, report: Report, *, lost_keys: bool = False) -> Manifest:
    """The manifest of a backup that this process can restore. Writes nothing; BackupError names the fault."""
    found = manifest.read(folder, lost_keys=lost_keys)
    manifest.check_release(found)
    manifest.check_marks(found)
    if found.vendor == "postgresql":
        _check_server(found)
    if found.workspaces is not None and settings.AGENTHOST_WORKSPACES_DIR is None:
        raise BackupError("The backup has workspaces, and AGENTHOST_WORKSPACES_DIR is not set. Set it to an empty volume.")
    progress = Progress("checked", report)
    for part in (found.database, found.agents, found.workspaces):
        if part is not None:
            streams.check(folder, part, progress)
    if found.workspaces is not None:
        workspaces.check(folder, progress)
    return found


def load(folder: Path, report: Report, *, lost_keys: bool = False) -> Loaded:
    """Restore the database and the files of workspaces, after ``check``. A load that was interrupted continues.

    The database is marked, and no process starts on it until ``completing.complete`` has removed the mark.
    """
    if (fault := database_diagnosis.diagnose()) is not None:
        raise BackupError(fault)
    found = check(folder, report, lost_keys=lost_keys)
    wanted = volume_id(found)
    if wanted is not None and (why := volume.refuses(wanted)):
        raise BackupError(why)
    begun = _begun(found)
    if not begun:
        mark = RestoreMark(found.backup, found.at)
        progress = Progress("restored", report)
        if found.vendor == "postgresql":
            _load_postgres(folder, found, mark, progress)
        else:
            _load_sqlite(folder, found, mark, progress)
        _compare(found)
        report(f"database: {sum(found.tables.values()):,} rows in {len(found.tables)} tables, as many as in the backup")
    unpacked = kept = 0
    if wanted is not None:
        volume.adopt(wanted)
    if found.workspaces is not None:
        unpacked, kept = workspaces.restore(folder, Progress("workspaces", report))
        report(f"workspaces: {unpacked:,} unpacked, {kept:,} left as they were on the volume")
    return Loaded(found, unpacked, kept)


def volume_id(found: Manifest) -> str | None:
    """The id of the volume of workspaces that the restored database expects."""
    return None if settings.AGENTHOST_WORKSPACES_DIR is None else found.marks.get(volume.MARK)


def _begun(found: Manifest) -> bool:
    """Whether the database has this backup already, and only the rest is missing. BackupError if it has anything else."""
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
    if not tables:
        return False
    mark = database_checks.restore_mark() if InstallationMark._meta.db_table in tables else None
    if mark is not None and mark.backup == found.backup:
        return True
    what = f"the backup {mark.backup} is being restored into it" if mark is not None else f"it has {len(tables)} tables"
    raise BackupError(
        f"The database is not empty: {what}. Restore into a new database: create one, or move the SQLite file away."
    )


def _check_server(found: Manifest) -> None:
    server = postgres.server_version()
    if server < int(found.server):
        raise BackupError(
            f"The backup is of Postgres {found.server}, and the server is {server}. Use Postgres {found.server} or newer."
        )


def _load_postgres(folder: Path, found: Manifest, mark: RestoreMark, progress: Progress) -> None:
    table = f"{connection.ops.quote_name(found.schema)}.{connection.ops.quote_name(InstallationMark._meta.db_table)}"
    # Single quotes are all that a literal needs escaped with standard_conforming_strings.
    value = mark.text().replace("'", "''")
    afterwards = f"insert into {table}(name, value, updated_at) values ('{database_checks.RESTORE}', '{value}', now())"
    postgres.restore(folder / found.database.file, int(found.client), afterwards, progress)


def _load_sqlite(folder: Path, found: Manifest, mark: RestoreMark, progress: Progress) -> None:
    connection.close()
    row = (database_checks.RESTORE, mark.text())
    sqlite.restore(folder / found.database.file, database_diagnosis.sqlite_path(), InstallationMark._meta.db_table, row, progress)


def _compare(found: Manifest) -> None:
    """The restored tables have the backup's numbers of rows."""
    expected = dict(found.tables)
    marks = InstallationMark._meta.db_table
    expected[marks] = expected.get(marks, 0) + 1
    counted = making.count_rows()
    wrong = [
        f"{name} has {counted.get(name, 0)} rows instead of {count}"
        for name, count in expected.items()
        if counted.get(name) != count
    ]
    if wrong:
        raise BackupError(
            f"The restored database differs from the backup: {'; '.join(wrong[:5])}. Do not use it; report this as a bug."
        )


def next_step(loaded: Loaded) -> str:
    """For a backup of an older release."""
    return (
        f"The backup is of the older release {loaded.manifest.release}. Run {installation.role('migrate')}, and then:"
        f" {installation.manage('verify_restore')}"
    )
