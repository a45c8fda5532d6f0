"""A backup is complete or has no name, and one that is damaged or does not fit is refused before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import Settings

from agenthost.backups import making, manifest, programs, restoring, workspaces
from agenthost.backups.errors import BackupError
from agenthost.backups.manifest import Manifest
from ops.services import postgres_programs
from sessions_app.core import turns
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.log import journal
from sessions_app.core.log.journal import restored
from sessions_app.core.records import database_checks, live_workers, webhook_outbox
from sessions_app.core.records.database_checks import RestoreMark
from sessions_app.core.tenancy import webhooks
from sessions_app.core.workspaces import places, volume
from sessions_app.models import AuditRecord, JournalGap, TenantCounter, Workspace
from sessions_app.workspace.tree import Tree
from tests.core.conftest import World, turn_of
from tests.small_disks import small_disk

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = b"\x07" * 32


def ignore(_text: str) -> None:
    """Progress that no test looks at."""


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> Iterator[None]:
    if connection.vendor == "postgresql":
        monkeypatch.setenv("PATH", f"{postgres_programs()}{os.pathsep}{os.environ['PATH']}")
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "volume"
    volume.forget()
    database_checks.make_marks()
    yield
    volume.forget()


@pytest.fixture
def backup(alice: World, tmp_path: Path) -> Path:
    """A backup of a database with a session that has a secret."""
    alice.session(options={"key": "sk-canary"})
    making.make(tmp_path / "backup", ignore)
    return tmp_path / "backup"


def refusal(folder: Path) -> str:
    with pytest.raises(BackupError) as refused:
        restoring.check(folder, ignore)
    return str(refused.value)


def changed(folder: Path, change: Callable[[Manifest], Manifest]) -> Path:
    """The backup with another manifest, which these keys have signed."""
    found = manifest.read(folder)
    (folder / manifest.FILE).unlink()
    change(found).write(folder)
    return folder


def test_a_backup_counts_its_rows_and_names_keys_without_having_one(backup: Path, settings: Settings) -> None:
    found = restoring.check(backup, ignore)
    assert found.tables["sessions_app_session"] == 1
    assert sum(counts.get("sessions' options", 0) for counts in found.keys.values()) == 1
    whole = b"".join(path.read_bytes() for path in backup.rglob("*") if path.is_file())
    assert settings.AGENTHOST_KEY_RING[0] not in whole
    assert settings.AGENTHOST_KEY_RING[0].hex().encode() not in whole
    assert settings.SECRET_KEY.encode() not in whole
    assert {path.stat().st_mode & 0o077 for path in [backup, *backup.rglob("*")]} == {0}


def test_every_damage_is_found_and_named(backup: Path) -> None:
    database = backup / manifest.read(backup).database.file
    whole = database.read_bytes()
    database.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "is damaged" in refusal(backup)
    database.write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in refusal(backup)
    database.unlink()
    assert "No such file" in refusal(backup)
    database.write_bytes(whole)
    text = (backup / manifest.FILE).read_text()
    (backup / manifest.FILE).write_text(text.replace('"sessions_app_session":1', '"sessions_app_session":2'))
    assert "it was changed" in refusal(backup)
    (backup / manifest.FILE).write_text(text[:100])
    assert "is damaged" in refusal(backup)
    (backup / manifest.FILE).unlink()
    assert "no complete backup" in refusal(backup)


def test_a_damaged_workspace_is_named(alice: World, tmp_path: Path) -> None:
    tenant = alice.caller.tenant
    now = timezone.now()
    times = {"changed_at": now, "used_at": now, "created_at": now}
    Workspace.objects.create(tenant_id=tenant, public_id="ws_a", root="file:///a", private=False, **times)
    assert volume.fault(now=True) is None
    tree = Tree(places.directory_of(tenant, "ws_a"))
    tree.create()
    tree.write(("a.txt",), b"hello")
    making.make(tmp_path / "backup", ignore)
    file = tmp_path / "backup" / "workspaces" / str(tenant) / "ws_a.tar"
    file.write_bytes(file.read_bytes().replace(b"hello", b"hullo"))
    assert "ws_a.tar is damaged" in refusal(tmp_path / "backup")


def test_keys_that_the_backup_needs_are_named(backup: Path, settings: Settings) -> None:
    ring, key = settings.AGENTHOST_KEY_RING, settings.SECRET_KEY
    settings.AGENTHOST_KEY_RING = [OTHER]
    needed = next(iter(json.loads((backup / manifest.FILE).read_text())["keys"]))
    assert f"AGENTHOST_KEY_RING lacks the keys {needed}" in refusal(backup)
    settings.AGENTHOST_KEY_RING, settings.SECRET_KEY = [OTHER, *ring], "another"
    assert "AGENTHOST_SECRET_KEY is not the one" in refusal(backup)
    settings.SECRET_KEY_FALLBACKS = [key]
    restoring.check(backup, ignore)


def test_a_backup_of_a_newer_release_or_another_database_is_refused(backup: Path) -> None:
    changed(backup, lambda found: replace(found, release="9.0", migrations=[*found.migrations, "sessions_app.9999_next"]))
    assert "newer release 9.0: this one does not know sessions_app.9999_next" in refusal(backup)
    changed(backup, lambda found: replace(found, migrations=found.migrations[:-1], vendor="oracle"))
    assert "The backup is of oracle" in refusal(backup)


def test_an_older_releases_backup_says_that_it_is_migrated_afterwards(backup: Path) -> None:
    found = manifest.read(backup)
    assert not manifest.is_older(found)
    older = replace(found, migrations=[name for name in found.migrations if name != found.last_migration])
    assert manifest.is_older(older)
    assert "migrate" in restoring.next_step(restoring.Loaded(older, 0, 0))


def test_nothing_is_restored_into_a_database_with_tables(backup: Path) -> None:
    with pytest.raises(BackupError, match="The database is not empty"):
        restoring.load(backup, ignore)


def test_a_failure_leaves_nothing(alice: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        # As a SIGTERM does.
        raise SystemExit(143)

    monkeypatch.setattr(workspaces, "dump", fail)
    with pytest.raises(SystemExit):
        making.make(tmp_path / "backups" / "one", ignore)
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_full_disk_is_reported_and_leaves_nothing(alice: World, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 * 1024) as disk:
        with pytest.raises((OSError, BackupError), match=r"No space left|is full"):
            making.make(disk / "backup", ignore)
        assert list(disk.iterdir()) == []


def test_what_a_killed_backup_has_left_is_replaced_and_a_whole_one_never(backup: Path) -> None:
    left = backup.with_name("two.part")
    left.mkdir()
    (left / "database.dump").write_text("half")
    making.make(backup.with_name("two"), ignore)
    assert not left.exists()
    restoring.check(backup.with_name("two"), ignore)
    with pytest.raises(BackupError, match="exists already"):
        making.make(backup, ignore)


def test_nothing_starts_on_a_restored_database_before_it_is_complete() -> None:
    assert database_checks.faults() == []
    database_checks.mark_restore(RestoreMark("bak_1", "2026-01-01T00:00:00+00:00"))
    assert [fault.kind for fault in database_checks.faults()] == ["restore"]
    database_checks.end_restore()
    assert database_checks.faults() == []


def test_programs_that_are_missing_or_too_old_are_named_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_places", lambda: iter([tmp_path]))
    with pytest.raises(BackupError, match=r"pg_dump, pg_restore, psql were not found .* postgresql-client-17"):
        programs.folder(server=17)
    for name in ("pg_dump", "pg_restore", "psql"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'it (PostgreSQL) 14.3'\n")
        (tmp_path / name).chmod(0o755)
    programs._version.cache_clear()
    assert programs.folder(server=14) == (tmp_path, 14)
    with pytest.raises(BackupError, match=r"too old: 14 in .*; at least version 17 is needed"):
        programs.folder(server=14, dumped_with=17)


def test_a_database_that_was_restored_by_other_means_is_completed_by_itself(alice: World) -> None:
    session = alice.session()
    accepted = alice.say(session, "hello")
    seen = TenantCounter.objects.get(tenant_id=alice.caller.tenant).seq
    live_workers.announce("still-running")
    with pytest.raises(CommandError, match="Workers use this database"):
        call_command("verify_restore")
    live_workers.leave("still-running")
    out = StringIO()
    call_command("verify_restore", stdout=out)
    assert "1 turns that were queued or running have ended as interrupted" in out.getvalue()
    turn = turn_of(accepted)
    assert (turn.state, turn.error) == ("error", "interrupted")
    assert TenantCounter.objects.get(tenant_id=alice.caller.tenant).seq > seen + restored.MARGIN_SECONDS * 2**20
    assert AuditRecord.objects.get(action="database_restored").target == "a physical backup"


def test_turns_are_kept_on_request(alice: World) -> None:
    accepted = alice.say(alice.session(), "hello")
    call_command("verify_restore", "--keep-turns", stdout=StringIO())
    assert turn_of(accepted).state == "queued"


# The numbers of events -------------------------------------------------------------------------------


def test_numbers_that_clients_may_have_seen_after_the_backup_are_never_given_again(alice: World) -> None:
    session = alice.session()
    at_backup = TenantCounter.objects.get(tenant_id=alice.caller.tenant).seq
    tail = journal.tail(session.pk).seq
    day = 86_400.0
    with transaction.atomic():
        assert restored.leap(day) >= 1
    # A million events a second would not have reached it.
    beyond = at_backup + int(day) * 2**20
    assert TenantCounter.objects.get(tenant_id=alice.caller.tenant).seq > beyond
    (gap,) = JournalGap.objects.filter(tenant_id=alice.caller.tenant)
    assert (gap.after, gap.upto > beyond) == (at_backup, True)
    alice.say(session, "hello")
    read = journal.read_session(alice.caller.tenant, session.pk, tail)
    assert min(event.seq for event in read.events) > beyond
    assert JournalGap.objects.filter(tenant_id=alice.caller.tenant).count() == 1
    for seen in (at_backup + 1, beyond):
        with pytest.raises(PositionPruned):
            journal.read_session(alice.caller.tenant, session.pk, seen)


def test_webhooks_report_the_first_event_after_the_gap_at_once(alice: World) -> None:
    types = [webhooks.TURN_ENDED]
    webhooks.create(alice.caller.tenant, url="https://hooks.example.org/", types=types, description="", actor="test")
    with transaction.atomic():
        restored.leap(86_400.0)
    session = alice.session()
    alice.say(session, "hello")
    turns.cancel(alice.caller, session)
    assert webhook_outbox.record_new() == 1
    assert webhook_outbox.record_new() == 0


def test_a_clock_that_is_wrong_stops_the_restore(alice: World) -> None:
    for seconds in (-2 * restored.MARGIN_SECONDS, 1e12):
        with pytest.raises(restored.ClockWrong), transaction.atomic():
            restored.leap(seconds)
    assert not JournalGap.objects.filter(tenant_id=alice.caller.tenant).exists()
