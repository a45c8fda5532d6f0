"""Exports as downloads: a session as one file, a tenant as a zip archive. The caller checks rights and writes the audit record.

Each session is first written to a temporary file, so that no snapshot of the database waits for a slow client.
"""

from __future__ import annotations

import shutil
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO

from sessions_app.core.base import database
from sessions_app.core.base.errors import NotPossible, SessionNotFound
from sessions_app.core.base.piping import Piped
from sessions_app.core.sessions import export_page, exporting
from sessions_app.models import Session, Tenant

AT_ONCE = 4
"""Downloads of one process: each has a thread and a temporary file until its client has read it."""
_COPIED = 64 * 1024

_slots = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, slots=True)
class Wish:
    """What an export contains. ``pages``: pages to read instead of JSON Lines, or beside them in the archive of a tenant."""

    pages: bool = False
    files: bool = True
    """The files of workspaces, which JSON Lines can have."""
    since: datetime | None = None
    """Of a tenant: only sessions created from then on."""
    until: datetime | None = None

    @property
    def form(self) -> str:
        return "HTML" if self.pages else "JSON Lines"


def of_session(session: Session, wish: Wish) -> Piped:
    """NotPossible if too many downloads are running in this process."""

    def write(out: IO[bytes]) -> None:
        with TemporaryFile() as file:
            _write_session(session, file, wish.pages, files=wish.files)
            file.seek(0)
            shutil.copyfileobj(file, out, _COPIED)

    return _started(write, "session-export")


def of_tenant(tenant: Tenant, wish: Wish) -> Piped:
    """A zip archive with one JSON Lines file for each session, a page each if wished, and ``index.jsonl`` at its end.

    Only a complete archive can be opened. NotPossible if too many downloads are running in this process.
    """

    def write(out: IO[bytes]) -> None:
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, TemporaryFile() as index:
            for session in exporting.sessions_of(tenant, wish.since, wish.until):
                try:
                    if wish.pages:
                        _add(archive, session, pages=True, files=False)
                    _add(archive, session, pages=False, files=wish.files)
                except SessionNotFound:
                    # Deleted since the list was read.
                    continue
                index.write(exporting.index_line(session))
            index.seek(0)
            _store(archive, "index.jsonl", index)

    return _started(write, "tenant-export")


def _started(write: Callable[[IO[bytes]], object], name: str) -> Piped:
    if not _slots.acquire(blocking=False):
        raise NotPossible(f"{AT_ONCE} exports are being downloaded from this process already; wait until one is done")
    return Piped(write, name, _slots.release)


def _add(archive: zipfile.ZipFile, session: Session, *, pages: bool, files: bool) -> None:
    with TemporaryFile() as file:
        _write_session(session, file, pages, files=files)
        file.seek(0)
        _store(archive, f"{session.public_id}.{'html' if pages else 'jsonl'}", file)


def _store(archive: zipfile.ZipFile, name: str, file: IO[bytes]) -> None:
    # The size is not written before the content, and may be above 4 GiB.
    with archive.open(name, "w", force_zip64=True) as entry:
        shutil.copyfileobj(file, entry, _COPIED)


def _write_session(session: Session, file: IO[bytes], pages: bool, *, files: bool) -> None:
    if pages:
        file.writelines(export_page.page(exporting.records(session, files=False)))
    else:
        exporting.write_lines(session, file, files=files)
    database.release()
