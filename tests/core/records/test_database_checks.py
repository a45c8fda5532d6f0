"""A process and a database that do not belong together are found out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from pytest_django import Settings

from sessions_app.core.base import sealing
from sessions_app.core.records import database_checks
from sessions_app.core.records.database_checks import Fault
from sessions_app.models import AuditRecord, InstallationMark, OptionValue
from tests.core.conftest import World

pytestmark = pytest.mark.django_db(transaction=True)
FUTURE = "9999_future"


@pytest.fixture(autouse=True)
def _marked() -> None:
    database_checks.make_marks()


@pytest.fixture
def apply() -> Iterator[Callable[[str], None]]:
    """Pretend that a release has applied this migration."""

    def write(name: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "insert into django_migrations (app, name, applied) values ('sessions_app', %s, current_timestamp)", [name]
            )

    yield write
    with connection.cursor() as cursor:
        cursor.execute("delete from django_migrations where app = 'sessions_app' and name like '9999%%'")


def the_fault() -> Fault:
    (found,) = database_checks.faults()
    return found


def test_a_database_of_this_release_and_these_keys_has_no_faults() -> None:
    assert database_checks.faults() == []


def test_a_wrong_key_ring_is_found_and_named_with_the_keys_it_has(settings: Settings) -> None:
    former = sealing.newest_key_id().hex()
    settings.AGENTHOST_KEY_RING = [os.urandom(32)]
    fault = the_fault()
    assert fault.problem == "AGENTHOST_KEY_RING cannot decrypt the secrets in this database."
    assert former in fault.fix
    assert sealing.newest_key_id().hex() in fault.fix


def test_a_wrong_secret_key_is_found(settings: Settings) -> None:
    # Its first 64 bytes alone are not enough.
    settings.SECRET_KEY = "s" * 64
    database_checks.accept(key_ring=False, secret_key=True, actor="t", address="")
    assert database_checks.faults() == []
    settings.SECRET_KEY = "s" * 64 + "x"
    assert the_fault().kind == "secret_key"


def test_a_new_sealing_key_needs_the_old_one_until_everything_is_sealed_anew(settings: Settings) -> None:
    (old,), new = settings.AGENTHOST_KEY_RING, os.urandom(32)
    settings.AGENTHOST_KEY_RING = [new, old]
    assert database_checks.faults() == []
    settings.AGENTHOST_KEY_RING = [new]
    assert the_fault().kind == "key_ring"
    settings.AGENTHOST_KEY_RING = [new, old]
    call_command("reseal_secrets")
    settings.AGENTHOST_KEY_RING = [new]
    assert database_checks.faults() == []


def test_sealing_anew_needs_the_ring_and_goes_past_what_is_lost(alice: World, settings: Settings) -> None:
    alice.session(options={"key": "sk-lost"})
    (lost,), old, new = settings.AGENTHOST_KEY_RING, os.urandom(32), os.urandom(32)
    settings.AGENTHOST_KEY_RING = [new, old]
    with pytest.raises(CommandError, match="AGENTHOST_KEY_RING cannot decrypt"):
        call_command("reseal_secrets")
    call_command("accept_keys", "--key-ring")
    # The option and the key of the audit.
    with pytest.raises(CommandError, match="2 values were not changed"):
        call_command("reseal_secrets")
    settings.AGENTHOST_KEY_RING = [new, old, lost]
    call_command("reseal_secrets")
    settings.AGENTHOST_KEY_RING = [new]
    call_command("reseal_secrets")


def test_lost_keys_are_accepted_by_a_command_and_recorded(settings: Settings) -> None:
    settings.AGENTHOST_KEY_RING, settings.SECRET_KEY = [os.urandom(32)], "another"
    assert {fault.kind for fault in database_checks.faults()} == {"key_ring", "secret_key"}
    with pytest.raises(CommandError, match="--key-ring"):
        call_command("accept_keys")
    call_command("accept_keys", "--key-ring")
    assert the_fault().kind == "secret_key"
    call_command("accept_keys", "--secret-key")
    assert database_checks.faults() == []
    recorded = AuditRecord.objects.filter(action="installation_keys_accepted").order_by("pk")
    assert [row.target for row in recorded] == ["key_ring", "secret_key"]


def test_a_database_without_a_canary_is_judged_by_the_newest_secret_in_it(alice: World, settings: Settings) -> None:
    alice.session(options={"key": "sk-1"})
    assert OptionValue.objects.filter(sealed__isnull=False).exists()
    InstallationMark.objects.all().delete()
    assert database_checks.faults() == []
    settings.AGENTHOST_KEY_RING = [os.urandom(32)]
    assert the_fault().kind == "key_ring"


def test_a_migration_of_a_newer_release_is_refused(apply: Callable[[str], None]) -> None:
    apply(FUTURE)
    assert the_fault().kind == "newer"
    assert f"sessions_app.{FUTURE}" in the_fault().problem


def test_a_migration_that_the_newer_release_allowed_is_no_fault(apply: Callable[[str], None]) -> None:
    apply(FUTURE)
    allowed = json.dumps([f"sessions_app.{FUTURE}"])
    InstallationMark.objects.create(name="optional_migrations", value=allowed, updated_at="2026-01-01T00:00:00Z")
    assert database_checks.faults() == []
    apply("9999_other")
    assert "9999_other" in the_fault().problem
    assert FUTURE not in the_fault().problem


def test_a_release_allows_what_the_previous_one_lacks_and_does_not_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(name for app, name in database_checks.shipped() if app == "sessions_app")
    monkeypatch.setattr(database_checks, "released_migrations", set)
    database_checks.allow_previous_release()
    assert not InstallationMark.objects.filter(name="optional_migrations").exists()
    monkeypatch.setattr(database_checks, "released_migrations", lambda: {f"sessions_app.{name}" for name in names[:-2]})
    monkeypatch.setattr(
        f"sessions_app.migrations.{names[-1]}.Migration.breaks_previous_release", "a column is gone", raising=False
    )
    database_checks.allow_previous_release()
    assert json.loads(InstallationMark.objects.get(name="optional_migrations").value) == [f"sessions_app.{names[-2]}"]


def test_a_database_that_lacks_a_migration_is_told_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = database_checks.shipped()
    monkeypatch.setattr(database_checks, "shipped", lambda: shipped | {("sessions_app", FUTURE)})
    fault = the_fault()
    assert fault.kind == "older"
    assert f"sessions_app.{FUTURE}" in fault.problem
    assert "ops/entrypoint migrate" in fault.fix


def test_a_database_of_another_django_program_is_not_taken_for_one_that_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {("auth", "0001_initial"), ("polls", "0001_initial")}
    monkeypatch.setattr(database_checks, "applied_migrations", lambda: theirs)
    assert the_fault().kind == "foreign"
    assert "migrations of polls" in the_fault().problem
    theirs.remove(("polls", "0001_initial"))
    assert the_fault().kind == "older"


def test_the_migrations_of_this_release_are_those_that_django_knows() -> None:
    from django.db.migrations.loader import MigrationLoader

    assert database_checks.shipped() == set(MigrationLoader(None).disk_migrations)
