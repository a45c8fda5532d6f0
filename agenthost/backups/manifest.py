"""The manifest of a backup: what it has, of which installation and release, signed with the key ring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import connection

from agenthost.backups.errors import BackupError
from agenthost.backups.streams import Part
from sessions_app.core.base import sealing
from sessions_app.core.records import database_checks
from sessions_app.core.tenancy import certificates

FILE = "manifest.json"
FORMAT = 1
_MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    """``marks``: the database's own marks of keys and volume. ``keys``: how many values of each kind each key has sealed."""

    format: int
    backup: str
    at: str
    release: str
    vendor: str
    server: str
    client: str
    schema: str
    migrations: list[str]
    marks: dict[str, str]
    tables: dict[str, int]
    keys: dict[str, dict[str, int]]
    database: Part
    agents: Part | None
    workspaces: Part | None
    workspace_files: dict[str, int]

    @property
    def made_at(self) -> datetime:
        return datetime.fromisoformat(self.at)

    @property
    def last_migration(self) -> str:
        return max((name for name in self.migrations if name.startswith("sessions_app.")), default="none")

    def write(self, folder: Path) -> None:
        (folder / FILE).write_text(certificates.sign(asdict(self)) + "\n")
        (folder / FILE).chmod(0o600)


def read(folder: Path, *, lost_keys: bool = False) -> Manifest:
    """The manifest of a complete backup that this installation's keys have made. BackupError if it is none.

    ``lost_keys``: values whose key is not in the ring are accepted, and stay unreadable.
    """
    path = folder / FILE
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BackupError(f"{path} is no manifest: it is larger than {_MOST_BYTES:,} bytes.")
        text = path.read_text()
        found: dict[str, Any] = json.loads(text)
        number = found["format"]
    except FileNotFoundError:
        raise BackupError(f"{folder} is no complete backup: it has no {FILE}.") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise BackupError(f"{path} is damaged: it is no manifest of a backup. Use another copy of the backup.") from None
    if number != FORMAT:
        raise BackupError(
            f"{path} has format {number}; this release reads format {FORMAT}. Restore with release {found.get('release')}."
        )
    _check_ring({} if lost_keys else found.get("keys"), found.get("keyId"))
    if why := certificates.fault(text):
        raise BackupError(f"{path} cannot be trusted: {why}. Use another copy of the backup.")
    for name in ("signature", "keyId"):
        found.pop(name)
    for name in ("database", "agents", "workspaces"):
        found[name] = None if found[name] is None else Part(**found[name])
    return Manifest(**found)


def _check_ring(keys: Any, signed_with: Any) -> None:
    """Every sealed value's key is in the ring."""
    if not isinstance(keys, dict):
        return
    ring = sealing.key_ids()
    needed = [key for key, counts in keys.items() if counts] + ([signed_with] if isinstance(signed_with, str) else [])
    missing = [key for key in dict.fromkeys(needed) if key not in ring]
    if missing:
        counts = sum(sum(keys[key].values()) for key in missing if key in keys)
        raise BackupError(
            f"AGENTHOST_KEY_RING lacks the keys {', '.join(missing)}, with which {counts} values of this backup are sealed."
            f" The ring has {', '.join(ring)}. Add the missing keys to its end. If they are lost: --lost-keys."
        )


def check_marks(manifest: Manifest) -> None:
    """The keys of this process open the backup's test value, and its secret key is this process's or a fallback."""
    if faults := database_checks.faults_of_marks(manifest.marks.get("key_ring"), manifest.marks.get("secret_key")):
        raise BackupError("The backup was made with other keys. " + " ".join(map(str, faults)))


def check_release(manifest: Manifest) -> None:
    """BackupError if a newer release made the backup, or it is of another kind of database."""
    shipped = {f"{app}.{name}" for app, name in database_checks.shipped()}
    if unknown := sorted(name for name in manifest.migrations if name.startswith("sessions_app.") and name not in shipped):
        raise BackupError(
            f"The backup was made by the newer release {manifest.release}: this one does not know {unknown[-1]}. Restore with"
            f" release {manifest.release} or a later one."
        )
    if manifest.vendor != connection.vendor:
        raise BackupError(
            f"The backup is of {_name(manifest.vendor)}, and DATABASE_URL is {_name(connection.vendor)}. Restore it into"
            f" {_name(manifest.vendor)}."
        )


def is_older(manifest: Manifest) -> bool:
    """Whether the schema has to be migrated after the restore."""
    shipped = {f"{app}.{name}" for app, name in database_checks.shipped()}
    return not shipped <= set(manifest.migrations)


def _name(vendor: str) -> str:
    return {"postgresql": "Postgres", "sqlite": "SQLite"}.get(vendor, vendor)


def describe(manifest: Manifest) -> Sequence[str]:
    """For the operator."""
    rows = sum(manifest.tables.values())
    files = manifest.workspace_files
    lines = [
        f"backup {manifest.backup} of {manifest.at}, release {manifest.release}, {_name(manifest.vendor)} {manifest.server},"
        f" schema {manifest.last_migration}",
        f"{rows:,} rows in {len(manifest.tables)} tables, {manifest.database.bytes / 1e6:,.1f} MB",
    ]
    if manifest.workspaces is not None:
        lines.append(f"{files.get('workspaces', 0):,} workspaces, {files.get('bytes', 0) / 1e6:,.1f} MB")
    return lines
