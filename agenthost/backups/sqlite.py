"""Copies of SQLite by its online backup, which neither stops writers nor is stopped by them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from django.db import connection

from agenthost.backups.errors import BackupError
from agenthost.backups.streams import CHUNK, Part, Progress, chunks, new_file, sync_directory

FILE = "database.sqlite3"
_PAGES = 2048


def dump(folder: Path, progress: Progress) -> Part:
    """Write the database as the open transaction of Django's connection sees it."""
    draft = folder / f".{FILE}"
    source: sqlite3.Connection = connection.connection
    (size,) = source.execute("pragma page_size").fetchone()
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(draft)) as target:
            # The transaction has a snapshot, so the copy begins anew for no writer.
            source.backup(target, pages=_PAGES, progress=lambda _status, left, _all: progress.add(size * min(_PAGES, left)))
            target.execute("pragma journal_mode = delete")
        with draft.open("rb") as copied, new_file(folder, FILE, progress) as file:
            for data in chunks(copied):
                file.write(data)
            return file.close()
    except sqlite3.Error as error:
        raise BackupError(f"the database cannot be copied to {folder}: {error}") from error
    finally:
        for name in (draft.name, f"{draft.name}-journal"):
            draft.with_name(name).unlink(missing_ok=True)


def restore(copy: Path, target: Path, table: str, row: tuple[str, str], progress: Progress) -> None:
    """Put a copy in the place of an empty database, with one more row (name, value) in a table of marks.

    It gets its name when it is complete, so a restore that is killed leaves an empty database.
    """
    draft = target.with_name(f".{target.name}.restoring")
    draft.unlink(missing_ok=True)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file, copy.open("rb") as source:
            while data := source.read(CHUNK):
                file.write(data)
                progress.add(len(data))
        with closing(sqlite3.connect(draft)) as opened, opened:
            opened.execute(f'insert into "{table}"(name, value, updated_at) values (?, ?, current_timestamp)', row)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        for companion in ("-wal", "-shm", "-journal"):
            # Of an empty database that was opened once.
            target.with_name(target.name + companion).unlink(missing_ok=True)
        draft.replace(target)
        sync_directory(target.parent)
    except sqlite3.Error as error:
        raise BackupError(f"{copy} cannot be used: {error}. Use another copy of the backup.") from error
    finally:
        for name in (draft.name, f"{draft.name}-journal"):
            draft.with_name(name).unlink(missing_ok=True)
