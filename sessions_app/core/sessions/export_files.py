"""Exports as downloads: a session as one file, a tenant as a zip archive. The caller checks rights and writes the audit record.

Each session is first written to a temporary file, so that no snapshot of the database waits for a slow client.
"""

from __future__ import annotations

import shutil
import threading
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from tempfile import TemporaryFile
from typing import IO

from sessions_app.core.base import database
from sessions_app.core.base.caller import EXPORT, Caller
from sessions_app.core.base.errors import NotPossible, SessionNotFound
from sessions_app.core.base.piping import Piped
from sessions_app.core.sessions import export_page, exporting
from sessions_app.core.tenancy import access, api_audit
from sessions_app.core.workspaces import access as file_rules
from sessions_app.core.workspaces import places
from sessions_app.models import Session, Tenant, Workspace

AT_ONCE = 4
"""Downloads of one process: each has a thread and a temporary file until its client has read it."""
OF_TENANT = 2
"""Of these, as many may be a tenant's own: clients with keys, and members."""
_COPIED = 64 * 1024

_RESTRICTED = "the operator's rules of access restrict files of workspaces, so exports have none; leave the files out"

_running: Counter[int] = Counter()
"""The downloads that run, by tenant; 0: of the operator."""
_counting = threading.Lock()


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

    @property
    def described(self) -> str:
        """Of an export of a tenant, for the audit."""
        first = f"since {self.since:%Y-%m-%d}" if self.since else ""
        last = f"until {self.until - timedelta(days=1):%Y-%m-%d}" if self.until else ""
        return "; ".join(filter(None, ("JSON Lines and HTML" if self.pages else "JSON Lines", first, last)))


def session_for(caller: Caller, public_id: str, wish: Wish) -> Piped:
    """``of_session`` for a client, recorded. ScopeMissing, SessionNotFound, PathOutside for files that it does
    not see, or what ``session_of_member`` raises."""
    caller.require(EXPORT)
    session = access.session(caller, public_id)
    number = session.workspace_id if wish.files else None
    if number is not None and (workspace := Workspace.objects.filter(pk=number, removed_at=None).first()) is not None:
        places.require_visible(caller, workspace)
    return session_of_member(session, wish, **api_audit.by(caller))


def session_of_member(session: Session, wish: Wish, *, actor: str, address: str) -> Piped:
    """``of_session`` for the tenant itself, recorded. NotPossible if it may not have the files, or has too many downloads."""
    if wish.files and session.workspace_id is not None and file_rules.restrict_clients():
        raise NotPossible(_RESTRICTED)
    body = of_session(session, wish, OF_TENANT)
    exporting.begin(session, actor=actor, address=address, form=wish.form)
    return body


def tenant_for(caller: Caller, wish: Wish) -> Piped:
    """``of_tenant`` for a client, recorded. ScopeMissing or NotPossible."""
    caller.require(EXPORT)
    if caller.token or not caller.sight.is_whole:
        raise NotPossible("an export has the whole tenant, so a token or a key that is limited to agents cannot have it")
    return tenant_of_member(Tenant.objects.get(pk=caller.tenant), wish, **api_audit.by(caller))


def tenant_of_member(tenant: Tenant, wish: Wish, *, actor: str, address: str) -> Piped:
    """``of_tenant`` for the tenant itself, recorded. NotPossible if it may not have the files, or has too many downloads."""
    if wish.files and file_rules.restrict_clients():
        raise NotPossible(_RESTRICTED)
    body = of_tenant(tenant, wish, OF_TENANT)
    exporting.begin_tenant(tenant, actor=actor, address=address, form=wish.described)
    return body


def of_session(session: Session, wish: Wish, of_tenant: int | None = None) -> Piped:
    """NotPossible if too many downloads are running in this process. ``of_tenant``: as many may be this tenant's own."""

    def write(out: IO[bytes]) -> None:
        with TemporaryFile() as file:
            _write_session(session, file, wish.pages, files=wish.files)
            file.seek(0)
            shutil.copyfileobj(file, out, _COPIED)

    return _started(write, "session-export", session.tenant_id, of_tenant)


def of_tenant(tenant: Tenant, wish: Wish, of_tenant: int | None = None) -> Piped:
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

    return _started(write, "tenant-export", tenant.pk, of_tenant)


def _started(write: Callable[[IO[bytes]], object], name: str, tenant: int, of_tenant: int | None) -> Piped:
    owner = 0 if of_tenant is None else tenant
    with _counting:
        if _running.total() >= AT_ONCE:
            raise NotPossible(f"{AT_ONCE} exports are being downloaded from this process already; wait until one is done")
        if of_tenant is not None and _running[owner] >= of_tenant:
            raise NotPossible(f"{of_tenant} exports of this tenant are being downloaded already; wait until one is done")
        _running[owner] += 1
    return Piped(write, name, partial(_end, owner))


def _end(owner: int) -> None:
    with _counting:
        _running[owner] -= 1
        if not _running[owner]:
            del _running[owner]


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
