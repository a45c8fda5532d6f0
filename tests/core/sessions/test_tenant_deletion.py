"""The deletion of a tenant: complete, exact, walled, resumable after a kill, and certified."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection

from sessions_app.core import turns
from sessions_app.core.base import journal_keys
from sessions_app.core.base.errors import InvalidInput, NotAuthenticated
from sessions_app.core.log import journal
from sessions_app.core.sessions import tenant_deletion
from sessions_app.core.tenancy import certificates, keys, tenants, tokens
from sessions_app.core.terminals.types import Claim
from sessions_app.core.worker import housekeeping
from sessions_app.models import ApiKey, AuditRecord, Event, Message, Session, SessionTail, Tenant, TenantDeletion, Terminal, Turn
from tests.sample_tenants import SampleTenants, make_session, make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)

SEED = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]


def fill(sample: SampleTenants, name: str = "alice") -> list[Session]:
    person = getattr(sample, name)
    found = [make_session(person.caller, seed=SEED) for _ in range(3)]
    found.append(make_session_of_client(person.caller, uri=f"echo:/{name}", agent="echo"))
    turns.start(person.caller, found[0], content="and now?")
    tokens.mint(person.caller, found[0])
    terminal = Terminal.objects.create(
        tenant=person.tenant,
        public_id=f"term_{name}",
        uri="term:/1",
        claim=Claim(client="c").text(),
        line=person.caller.line,
        cols=80,
        rows=24,
        state="exited",
        requested_at=found[0].created_at,
    )
    journal.create_tail(journal_keys.of_terminal(terminal.pk))
    return found


def begin(tenant: Tenant) -> TenantDeletion:
    return tenant_deletion.begin(tenant, actor="the tests")


def finish(deletion: TenantDeletion) -> dict[str, Any]:
    while not tenant_deletion.advance(deletion, 30):
        pass
    deletion.refresh_from_db()
    found: dict[str, Any] = json.loads(deletion.certificate)
    return found


def rows_of(tenant: int) -> dict[str, int]:
    """Rows by table, of the tables that do not stay."""
    found = {}
    for model in tenant_deletion.of_tenants():
        if model not in tenant_deletion.KEPT:
            found[model.__name__] = model._base_manager.filter(tenant_id=tenant).count()
    return {name: count for name, count in found.items() if count}


def test_nothing_of_the_tenant_is_left_and_everything_of_the_other_one(sample: SampleTenants, scripted_agents: None) -> None:
    sessions = fill(sample)
    fill(sample, "bob")
    kept = rows_of(sample.bob.tenant.pk)
    certificate = finish(begin(sample.alice.tenant))
    assert rows_of(sample.alice.tenant.pk) == {}
    assert rows_of(sample.bob.tenant.pk) == kept
    assert not Message.objects.filter(session_id__in=[each.pk for each in sessions]).exists()
    assert not Event.objects.filter(tenant_id=sample.alice.tenant.pk).exists()
    assert SessionTail.objects.filter(session_id__in=[each.pk for each in sessions]).count() == 0
    counts = certificate["deletedRows"]
    assert (counts["session"], counts["message"], counts["turn"], counts["terminal"]) == (4, 7, 1, 1)
    assert counts["apikey"] == 2
    with pytest.raises(NotAuthenticated):
        keys.authenticate(sample.alice.key)


def test_every_table_with_rows_of_tenants_is_deleted_or_kept_on_purpose() -> None:
    known = {model.__name__ for model in tenant_deletion.of_tenants()}
    for model in apps.get_app_config("sessions_app").get_models():
        refers = [field.name for field in model._meta.concrete_fields if field.related_model is Tenant]
        if refers:
            assert model.__name__ in known, f"{model.__name__}: its column for the tenant must have the name tenant_id"
    assert {model.__name__ for model in tenant_deletion.KEPT} == {"AuditRecord", "TenantDeletion"}


def test_the_certificate_is_signed_and_a_changed_one_is_noticed(sample: SampleTenants, scripted_agents: None) -> None:
    fill(sample)
    deletion = begin(sample.alice.tenant)
    certificate = finish(deletion)
    assert certificates.fault(deletion.certificate) is None
    for name in certificate:
        other = certificates.fault(json.dumps({**certificate, name: "other"}))
        assert other is not None, name
    row = AuditRecord.objects.get(action="tenant_deleted")
    assert hashlib.sha256(deletion.certificate.encode()).hexdigest() in row.detail
    assert AuditRecord.objects.filter(action="tenant_deletion_begun").count() == 1


def test_a_deletion_cannot_be_taken_back_and_its_name_can_be_used_again(sample: SampleTenants) -> None:
    deletion = begin(sample.alice.tenant)
    with pytest.raises(InvalidInput, match="cannot be taken back"):
        tenants.resume(sample.alice.tenant, actor="the tests")
    assert begin(sample.alice.tenant).pk == deletion.pk
    finish(deletion)
    again, is_new = tenants.create("alice")
    assert is_new
    assert again.pk != sample.alice.tenant.pk


class _Killed(BaseException):
    """As kill -9: nothing after it is executed."""


@pytest.mark.parametrize("at", [1, 4, 6, 9, 11])
def test_an_interrupted_deletion_counts_everything_once(
    sample: SampleTenants, scripted_agents: None, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    fill(sample)
    calls = 0

    def killing(original: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise _Killed
            return original(*arguments)

        return call

    deletion = begin(sample.alice.tenant)
    with monkeypatch.context() as patched:
        for name in ("_count_session", "remove_session", "_delete_batch", "_finish"):
            patched.setattr(tenant_deletion, name, killing(getattr(tenant_deletion, name)))
        with contextlib.suppress(_Killed):
            tenant_deletion.advance(deletion, 30)
    counts = finish(deletion)["deletedRows"]
    assert (counts["session"], counts["message"], counts["turn"], counts["terminal"]) == (4, 7, 1, 1)
    assert counts["apikey"] == 2
    assert rows_of(sample.alice.tenant.pk) == {}


def test_housekeeping_continues_a_deletion_and_removes_no_session_before_it_is_counted(
    sample: SampleTenants, scripted_agents: None
) -> None:
    fill(sample)
    gone = Session.objects.filter(tenant=sample.alice.tenant).first()
    assert gone is not None
    Session.objects.filter(pk=gone.pk).update(deleted_at="2020-01-01T00:00:00Z")
    deletion = begin(sample.alice.tenant)
    housekeeping._remove_deleted()
    assert Session.with_deleted.filter(pk=gone.pk).exists()
    tenant_deletion.advance_all(30)
    deletion.refresh_from_db()
    assert deletion.finished_at is not None
    assert json.loads(deletion.certificate)["deletedRows"]["session"] == 4


def test_a_deletion_goes_on_in_slices_until_it_is_finished(
    sample: SampleTenants, scripted_agents: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sample)
    deletion = begin(sample.alice.tenant)
    whole = tenant_deletion.advance
    slices: list[float] = []
    pauses: list[float] = []

    def advance(row: TenantDeletion, seconds: float) -> bool:
        """The first slices use up their time."""
        slices.append(seconds)
        until = time.monotonic() + seconds
        while len(slices) < 4 and time.monotonic() < until:
            pass
        return len(slices) >= 4 and whole(row, 30)

    monkeypatch.setattr(housekeeping, "_SLICE_SECONDS", 0.01)
    monkeypatch.setattr(housekeeping, "_pause", pauses.append)
    monkeypatch.setattr(tenant_deletion, "advance", advance)
    housekeeping.delete_tenants()
    deletion.refresh_from_db()
    assert deletion.finished_at is not None
    assert (slices, len(pauses)) == ([0.01] * 4, 3), "others got the database in between"


def test_a_deletion_that_cannot_go_on_waits_for_the_next_round(
    sample: SampleTenants, scripted_agents: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(sample)
    deletion = begin(sample.alice.tenant)
    monkeypatch.setattr(tenant_deletion, "_workspaces", lambda *_given: False)
    housekeeping.delete_tenants()
    deletion.refresh_from_db()
    assert deletion.finished_at is None


def test_a_live_turn_is_stopped_before_its_session_is_deleted(sample: SampleTenants, scripted_agents: None) -> None:
    fill(sample)
    begin(sample.alice.tenant)
    assert not Turn.objects.filter(tenant=sample.alice.tenant, state__in=["queued", "running", "waiting"]).exists()


def test_the_command_asks_for_the_name_and_prints_a_certificate_that_can_be_verified(
    sample: SampleTenants, scripted_agents: None, tmp_path: Path
) -> None:
    fill(sample)
    with pytest.raises(CommandError, match="--confirm alice"):
        call_command("delete_tenant", "alice", "--confirm", "bob", stdout=io.StringIO(), stderr=io.StringIO())
    assert Tenant.objects.filter(slug="alice", suspended_at=None).exists()
    out = io.StringIO()
    call_command("delete_tenant", "alice", "--confirm", "alice", stdout=out, stderr=io.StringIO())
    file = tmp_path / "certificate.json"
    file.write_text(out.getvalue())
    said = io.StringIO()
    call_command("verify_certificate", str(file), stdout=said)
    assert "is valid" in said.getvalue()
    file.write_text(out.getvalue().replace('"session":4', '"session":5'))
    with pytest.raises(CommandError, match="it was changed"):
        call_command("verify_certificate", str(file))


_RUN = """
import os, signal, sys
import django
django.setup()
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
from sessions_app.core.sessions import tenant_deletion
from sessions_app.models import TenantDeletion
kill_at = int(sys.argv[2])
original, calls = tenant_deletion.remove_session, 0
def removing(session):
    global calls
    calls += 1
    if calls == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(session)
tenant_deletion.remove_session = removing
tenant_deletion.advance(TenantDeletion.objects.get(), 60)
"""


def test_a_killed_process_leaves_a_deletion_that_another_one_ends(
    sample: SampleTenants, scripted_agents: None, tmp_path: Path
) -> None:
    fill(sample)
    deletion = begin(sample.alice.tenant)
    name = str(connection.settings_dict["NAME"])
    killed = subprocess.run([sys.executable, "-c", _RUN, name, "3"], env=dict(os.environ), check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert Session.with_deleted.filter(tenant=sample.alice.tenant).exists()
    counts = finish(deletion)["deletedRows"]
    assert (counts["session"], counts["message"]) == (4, 7)
    assert not ApiKey.objects.filter(tenant=sample.alice.tenant).exists()
