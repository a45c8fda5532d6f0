"""Checks that this process may use this database: the schema version, the key ring, the secret key.

The first start stores marks of the keys in the database; every start and /readyz compare them with this process's settings.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import pkgutil
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path

from django.apps import apps
from django.db import connection, transaction
from django.utils import timezone

from agents_app import installation
from sessions_app.core.base import sealing, secret_keys
from sessions_app.core.records import options
from sessions_app.core.tenancy import audit, definitions
from sessions_app.models import InstallationMark

_APP = "sessions_app"
_KEY_RING, _SECRET_KEY, _OPTIONAL, _HOUSEKEEPING = "key_ring", "secret_key", "optional_migrations", "housekeeping"
RESTORE = "restore"
"""The name of the mark from a restore until it was completed; no process starts meanwhile."""
_PLACE = ["canary", _KEY_RING]
_CANARY = "the key ring opens this database"
_NAMED = 3

Migration = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason why this process must not use this database. ``problem`` is public; ``fix`` is for the operator."""

    kind: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem} {self.fix}"


def faults() -> list[Fault]:
    """All faults; the schema comes first, because keys can be compared only with a compatible schema."""
    schema = schema_fault()
    if schema is not None:
        return [schema]
    return [*key_faults(), *([] if (restored := restore_fault()) is None else [restored])]


# The schema ------------------------------------------------------------------------------------------


def schema_fault() -> Fault | None:
    """The fault of a schema that is neither this release's nor a newer one that is declared compatible."""
    applied = applied_migrations()
    if foreign := foreign_apps({app for app, _ in applied}):
        return Fault(
            "foreign",
            f"The database belongs to another program: it has migrations of {_some(foreign)} and none of this server.",
            "Set DATABASE_URL to a database for this server alone.",
        )
    unknown = {f"{app}.{name}" for app, name in applied - shipped() if app == _APP}
    if unknown and (refused := sorted(unknown - _optional_migrations())):
        return Fault(
            "newer",
            f"The database was migrated by a newer release: this release does not know {_some(refused)}.",
            "Start the newer release, or restore a backup from before its migration.",
        )
    missing = [f"{app}.{name}" for app, name in sorted(shipped() - applied)]
    if missing:
        number = f"{len(missing)} migration{'' if len(missing) == 1 else 's'}"
        problem = f"The database lacks {number} of this release ({_some(missing)})."
        return Fault("older", problem if applied else "The database was never migrated.", f"Run: {installation.role('migrate')}")
    return None


def foreign_apps(migrated: set[str]) -> list[str]:
    """The apps of another Django program that migrated this database; empty if this server did too. ``migrated``: all apps."""
    return [] if _APP in migrated else sorted(migrated - {app for app, _ in shipped()})


@lru_cache(maxsize=1)
def shipped() -> frozenset[Migration]:
    """The migrations of this release, from their file names, because importing them all is slow."""
    found = set()
    for app in apps.get_app_configs():
        try:
            package = import_module(f"{app.name}.migrations")
        except ModuleNotFoundError:
            continue
        found |= {(app.label, module.name) for module in pkgutil.iter_modules(package.__path__) if module.name[0] not in "_~"}
    return frozenset(found)


def applied_migrations() -> set[Migration]:
    """The migrations that were applied to the database."""
    if not _has_table("django_migrations"):
        return set()
    with connection.cursor() as cursor:
        cursor.execute("select app, name from django_migrations")
        return {(app, name) for app, name in cursor.fetchall()}


def released_migrations() -> set[str]:
    """The migrations of the previous release, as app.name; empty before the first release."""
    lines = (Path(__file__).parents[2] / "migrations" / "released.txt").read_text().splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def allow_previous_release() -> None:
    """Store which new migrations the previous release is compatible with; call before any of them is applied.

    These are the migrations that the previous release did not have, except those that are declared to break it
    (ops/migration_rules.py). Before the first release there are none.
    """
    released = released_migrations()
    if not released or not _has_table(InstallationMark._meta.db_table):
        return
    optional = [
        f"{_APP}.{name}"
        for app, name in sorted(shipped())
        if app == _APP and f"{_APP}.{name}" not in released and not _breaks_previous_release(name)
    ]
    _write(_OPTIONAL, json.dumps(optional))


def _breaks_previous_release(name: str) -> bool:
    module = import_module(f"{_APP}.migrations.{name}")
    return bool(getattr(module.Migration, "breaks_previous_release", None))


def _optional_migrations() -> set[str]:
    if not _has_table(InstallationMark._meta.db_table):
        return set()
    return set(json.loads(_read().get(_OPTIONAL, "[]")))


# The keys --------------------------------------------------------------------------------------------


def key_faults() -> list[Fault]:
    """The faults of a key ring that cannot decrypt this database's secrets and of a changed secret key. Needs the schema."""
    marks = _read()
    if marks.get(_KEY_RING) is None and not (options.newest_opens() and definitions.newest_opens()):
        # No mark yet: the newest encrypted values were tested instead.
        return [_ring_fault(None)]
    return faults_of_marks(marks.get(_KEY_RING), marks.get(_SECRET_KEY))


def faults_of_marks(key_ring: str | None, secret_key: str | None) -> list[Fault]:
    """The same for these marks, of this database or of a backup; None: there is none."""
    found = []
    if key_ring is not None and not sealing.opens(bytes.fromhex(key_ring), _PLACE):
        found.append(_ring_fault(key_ring))
    if not _secret_key_fits(secret_key, secret_keys.accepted()):
        found.append(
            Fault(
                "secret_key",
                "AGENTHOST_SECRET_KEY is not the one that this database was used with.",
                "Set the previous one (embedded: the file secret_key in AGENTHOST_VAR_DIR), or list it in"
                " AGENTHOST_SECRET_KEY_FALLBACKS. To change it on purpose, run:"
                f" {installation.manage('accept_keys --secret-key')}",
            )
        )
    return found


def secret_key_is_recorded() -> bool:
    """Whether the stored mark is the first secret key's, so that its predecessors are no longer needed to start."""
    return _secret_key_fits(_read().get(_SECRET_KEY), [secret_keys.newest()])


def key_ring_mark() -> bytes | None:
    """The stored test value, which is sealed with the key ring."""
    mark = _read().get(_KEY_RING)
    return None if mark is None else bytes.fromhex(mark)


def is_marked() -> bool:
    """Whether marks of the keys exist, so that the keys can be compared, even with an older schema."""
    return _has_table(InstallationMark._meta.db_table) and {_KEY_RING, _SECRET_KEY} <= _read().keys()


def make_marks() -> None:
    """Store the missing marks of the keys. Needs the schema, and keys without faults."""
    if is_marked():
        return
    now = timezone.now()
    marks = {_KEY_RING: _ring_mark(), _SECRET_KEY: _secret_key_mark(secret_keys.newest())}
    rows = [InstallationMark(name=name, value=value, updated_at=now) for name, value in marks.items()]
    # Several processes may start at the same time.
    InstallationMark.objects.bulk_create(rows, ignore_conflicts=True)


@transaction.atomic
def accept(*, key_ring: bool, secret_key: bool, actor: str, address: str) -> None:
    """Replace the stored marks by those of this process's keys."""
    marks = {_KEY_RING: _ring_mark()} if key_ring else {}
    if secret_key:
        marks[_SECRET_KEY] = _secret_key_mark(secret_keys.newest())
    for name, value in marks.items():
        _write(name, value)
        audit.record(actor=actor, action=audit.Action.INSTALLATION_KEYS_ACCEPTED, target=name, address=address)


def reseal() -> None:
    """Encrypt the mark of the key ring with the newest key."""
    mark = _read().get(_KEY_RING)
    if mark is None or sealing.key_id_of(bytes.fromhex(mark)) != sealing.newest_key_id():
        _write(_KEY_RING, _ring_mark())


def _ring_fault(mark: str | None) -> Fault:
    sealed_with = f" The database was last sealed with the key {mark[:16]}." if mark else ""
    return Fault(
        "key_ring",
        "AGENTHOST_KEY_RING cannot decrypt the secrets in this database.",
        f"The ring has the keys {', '.join(sealing.key_ids())}.{sealed_with} Restore the previous keys (embedded: the file"
        " key_ring in AGENTHOST_VAR_DIR) and put a new key in front of them. If they are lost, run:"
        f" {installation.manage('accept_keys --key-ring')}; secrets that were sealed with them stay unreadable.",
    )


def _ring_mark() -> str:
    return sealing.seal(_CANARY, _PLACE).hex()


def _secret_key_mark(key: str) -> str:
    return hmac.digest(key.encode(), b"agenthost installation", hashlib.sha256).hex()


def _secret_key_fits(mark: str | None, keys: list[str]) -> bool:
    return mark is None or any(hmac.compare_digest(mark, _secret_key_mark(key)) for key in keys)


# A restored database ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestoreMark:
    """Which backup the database was restored from. ``leapt``: the counters have left the numbers that clients may know."""

    backup: str
    at: str
    leapt: bool = False

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def made_at(self) -> datetime:
        return datetime.fromisoformat(self.at)


def restore_mark() -> RestoreMark | None:
    """The mark of a restore that is not complete."""
    value = _read().get(RESTORE)
    return None if value is None else RestoreMark(**json.loads(value))


def mark_restore(mark: RestoreMark) -> None:
    _write(RESTORE, mark.text())


def end_restore() -> None:
    """From now on processes may use the database."""
    InstallationMark.objects.filter(name=RESTORE).delete()


def restore_fault() -> Fault | None:
    """Why no process may use this database yet: it was restored, and its counters may hand out numbers that clients know."""
    if RESTORE not in _read():
        return None
    return Fault(
        "restore",
        "The database was restored from a backup, and the restore is not complete.",
        f"Run the same restore again, or: {installation.manage('verify_restore')}",
    )


# Housekeeping ----------------------------------------------------------------------------------------


def note_housekeeping() -> None:
    """Store that a round of housekeeping has ended, which shows that beat and a worker are running."""
    _write(_HOUSEKEEPING, "")


def housekeeping_at() -> datetime | None:
    """When the last round of housekeeping ended."""
    return InstallationMark.objects.filter(name=_HOUSEKEEPING).values_list("updated_at", flat=True).first()


# ------------------------------------------------------------------------------------------------------


def _read() -> dict[str, str]:
    return dict(InstallationMark.objects.values_list("name", "value"))


def _write(name: str, value: str) -> None:
    InstallationMark.objects.update_or_create(name=name, defaults={"value": value, "updated_at": timezone.now()})


def _has_table(name: str) -> bool:
    """Whether the table exists; a positive answer is cached."""
    known = (connection.settings_dict["NAME"], name)
    if known not in _tables and name in connection.introspection.table_names():
        _tables.add(known)
    return known in _tables


_tables: set[tuple[str, str]] = set()


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
