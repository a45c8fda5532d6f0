"""Makes a backup: the database as of one moment, then the files of workspaces, then the manifest. Gets its name at the end."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection

from agenthost.backups import manifest, postgres, sqlite, streams, workspaces
from agenthost.backups.errors import BackupError
from agenthost.backups.manifest import Manifest
from agenthost.backups.streams import Part, Progress, Report, new_file
from agents_app import installation
from sessions_app.core.log import journal
from sessions_app.core.records import database_checks
from sessions_app.core.workspaces import volume
from sessions_app.management import sealed_values
from sessions_app.models import InstallationMark, Workspace

AGENTS = "agents.toml"
_LOCK = ".lock"
_WITHOUT_ROWS = frozenset({"journal_era"})
"""Tables whose rows are of the running server, and not in a dump."""


def make(target: Path, report: Report) -> Manifest:
    """Write a backup into the new directory ``target``. BackupError, OSError; then nothing has this name."""
    target = target.absolute()
    if target.exists() or target.is_symlink():
        raise BackupError(f"{target} exists already. Choose another name; a backup is never overwritten.")
    if faults := database_checks.faults():
        raise BackupError(" ".join(map(str, faults)))
    if fault := volume.fault(now=True):
        raise BackupError(str(fault))
    with _draft(target) as folder:
        made = _write(folder, report)
        # After all parts are on disk: what has a manifest is complete.
        made.write(folder)
        with (folder / manifest.FILE).open("rb") as file:
            os.fsync(file.fileno())
        (folder / _LOCK).unlink()
        for path in [*sorted(each for each in folder.rglob("*") if each.is_dir()), folder]:
            streams.sync_directory(path)
        folder.rename(target)
        streams.sync_directory(target.parent)
    return made


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """The directory in which the backup is made, removed if that fails. One that a killed backup has left is replaced."""
    folder = target.with_name(f"{target.name}.part")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another backup is being written to {folder}. Wait for it, or choose another name.") from None
        try:
            for left in folder.iterdir():
                if left.name != _LOCK:
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _write(folder: Path, report: Report) -> Manifest:
    agents = _copy_agents(folder, report)
    with journal.snapshot():
        now, exported = _snapshot()
        tables = count_rows()
        keys = sealed_values.counts_by_key()
        migrations = sorted(f"{app}.{name}" for app, name in database_checks.applied_migrations())
        marks = dict(InstallationMark.objects.values_list("name", "value"))
        wanted = list(Workspace.objects.filter(removed_at=None).order_by("pk").values_list("tenant_id", "public_id"))
        progress = Progress("database", report)
        if connection.vendor == "postgresql":
            database, client = postgres.dump(folder, exported, progress)
            server = str(postgres.server_version())
        else:
            database, client = sqlite.dump(folder, progress), 0
            server = _one("select sqlite_version()")
    report(f"database: {database.bytes / 1e6:,.1f} MB")
    trees: Part | None = None
    sizes: dict[str, int] = {}
    # After the database: every workspace that it knows exists by now, unless it was removed.
    if settings.AGENTHOST_WORKSPACES_DIR is not None:
        trees, sizes = workspaces.dump(folder, wanted, Progress("workspaces", report))
        report(f"workspaces: {sizes['workspaces']:,}, {sizes['bytes'] / 1e6:,.1f} MB")
    return Manifest(
        format=manifest.FORMAT,
        backup=f"bak_{secrets.token_hex(8)}",
        at=now.isoformat(),
        release=installation.version(),
        vendor=connection.vendor,
        server=server,
        client=str(client),
        schema=_one("select current_schema()") if connection.vendor == "postgresql" else "",
        migrations=migrations,
        marks={name: marks[name] for name in ("key_ring", "secret_key", "workspaces_volume") if name in marks},
        tables=tables,
        keys={key: counts for key, counts in keys.items() if counts},
        database=database,
        agents=agents,
        workspaces=trees,
        workspace_files=sizes,
    )


def _snapshot() -> tuple[datetime, str]:
    """The moment of the open transaction's snapshot, and its name for pg_dump."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC), ""
    with connection.cursor() as cursor:
        # The transaction lasts as long as the dump.
        cursor.execute("set local idle_in_transaction_session_timeout = 0")
        cursor.execute("set local statement_timeout = 0")
        cursor.execute("select now(), pg_export_snapshot()")
        now, name = cursor.fetchone()
    return now.astimezone(UTC), str(name)


def count_rows() -> dict[str, int]:
    """The number of rows of each table."""
    with connection.cursor() as cursor:
        names = sorted(set(connection.introspection.table_names(cursor)) - _WITHOUT_ROWS)
        counted = {}
        for name in names:
            cursor.execute(f"select count(*) from {connection.ops.quote_name(name)}")
            counted[name] = int(cursor.fetchone()[0])
    return counted


def _copy_agents(folder: Path, report: Report) -> Part | None:
    source: Path | None = settings.AGENTHOST_AGENTS_FILE
    if source is None:
        return None
    with source.open("rb") as original, new_file(folder, AGENTS, Progress("agents", report)) as file:
        for data in streams.chunks(original):
            file.write(data)
        return file.close()


def _one(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0])
