"""The file system of the workspaces: checks that it is the one of this database.

Its root has a file with a random id, which the database has too. A directory without that file is not used: it may be the mount
point of a volume that is not mounted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
import time
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from agents_app import installation
from sessions_app.core.base import database
from sessions_app.core.base.errors import FilesAway
from sessions_app.core.records.database_checks import Fault
from sessions_app.core.tenancy import audit
from sessions_app.models import InstallationMark

FILE = "agenthost-volume"
MARK = "workspaces_volume"
_CHECKED_EVERY = 10.0

_checked: dict[Path, tuple[float, Fault | None]] = {}
_lock = threading.Lock()


def fault(*, now: bool = False) -> Fault | None:
    """Why workspaces cannot be used; None if they can, or if this server has none.

    ``now``: do not answer from memory, which is at most ten seconds old.
    """
    base: Path | None = settings.AGENTHOST_WORKSPACES_DIR
    if base is None:
        return None
    with _lock:
        checked_at, found = _checked.get(base, (float("-inf"), None))
        if not now and time.monotonic() - checked_at < _CHECKED_EVERY:
            return found
    found = _fault(base)
    with _lock:
        _checked[base] = time.monotonic(), found
    return found


def require(*, now: bool = False) -> None:
    """FilesAway if workspaces cannot be used."""
    if fault(now=now) is not None:
        raise FilesAway


def was_used() -> bool:
    """Whether this database has a volume."""
    return _mark() is not None


def accept(*, actor: str, address: str = "") -> None:
    """Store the id of this process's volume in the database, whatever the one before was."""
    base: Path | None = settings.AGENTHOST_WORKSPACES_DIR
    assert base is not None
    found = _read(base) or _make(base) or ""
    with transaction.atomic():
        InstallationMark.objects.update_or_create(name=MARK, defaults={"value": found, "updated_at": timezone.now()})
        audit.record(actor=actor, action=audit.Action.INSTALLATION_KEYS_ACCEPTED, target="workspaces", address=address)
    forget()


def refuses(wanted: str) -> str | None:
    """Why this process's volume cannot become the one with this id, before a restore; None if it is, or is new."""
    base: Path | None = settings.AGENTHOST_WORKSPACES_DIR
    assert base is not None
    try:
        found = _read(base)
    except OSError as error:
        return f"AGENTHOST_WORKSPACES_DIR cannot be used: {error.strerror}. Make it a directory that this user may change."
    if found is None or found == wanted:
        return None
    return (
        f"AGENTHOST_WORKSPACES_DIR is the volume of another database: its file {FILE} has another id. Set it to an empty volume."
    )


def adopt(wanted: str) -> None:
    """Give a new volume this id, which the restored database expects."""
    base: Path | None = settings.AGENTHOST_WORKSPACES_DIR
    assert base is not None
    if _read(base) is None:
        _make(base, wanted)
    forget()


def forget() -> None:
    """Check anew next time."""
    with _lock:
        _checked.clear()


def _fault(base: Path) -> Fault | None:
    try:
        expected = _mark()
    finally:
        database.release()
    try:
        found = _read(base)
        if found is None and expected is None:
            found = _make(base)
    except OSError as error:
        return _bad(
            f"AGENTHOST_WORKSPACES_DIR cannot be used: {error.strerror}.", "Make it a directory that this user may change."
        )
    on_purpose = f"To use it nevertheless, run: {installation.manage('accept_keys --workspaces')}"
    if found is None:
        return _bad(f"AGENTHOST_WORKSPACES_DIR has no file {FILE}: the volume of this database is not mounted.", on_purpose)
    if expected is None:
        expected = _store(found)
    if expected != found:
        return _bad(f"AGENTHOST_WORKSPACES_DIR is the volume of another database: its file {FILE} has another id.", on_purpose)
    return None


def _bad(problem: str, fix: str) -> Fault:
    return Fault("workspaces", problem, fix)


def _mark() -> str | None:
    return InstallationMark.objects.filter(name=MARK).values_list("value", flat=True).first()


def _store(found: str) -> str | None:
    """Store the first volume's id; several processes may do this at the same time."""
    try:
        row = InstallationMark(name=MARK, value=found, updated_at=timezone.now())
        InstallationMark.objects.bulk_create([row], ignore_conflicts=True)
        return _mark()
    finally:
        database.release()


def _read(base: Path) -> str | None:
    try:
        return (base / FILE).read_text(encoding="ascii", errors="replace").strip()[:100] or None
    except FileNotFoundError:
        return None


def _make(base: Path, volume_id: str | None = None) -> str | None:
    """Create the directory and the file. Of several processes that do it together, one wins."""
    base.mkdir(mode=0o711, parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=base, prefix=f".{FILE}-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write((volume_id or secrets.token_hex(16)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        # The id is no secret, and the processes may have several users.
        Path(draft).chmod(0o644)
        with contextlib.suppress(FileExistsError):
            (base / FILE).hardlink_to(draft)
    finally:
        Path(draft).unlink(missing_ok=True)
    return _read(base)
