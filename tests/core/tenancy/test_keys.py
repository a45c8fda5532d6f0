"""API keys, as those who issue them and those who use them see them."""

from __future__ import annotations

import hashlib
import logging
import string
import threading
from datetime import timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotAuthenticated
from sessions_app.core.tenancy import keys, tenants
from sessions_app.core.tenancy.keys import Issued
from sessions_app.models import ApiKey, AuditRecord, Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def tenant() -> Tenant:
    return tenants.create("acme")[0]


def issue(tenant: Tenant, **given: object) -> Issued:
    fields = {
        "name": "backend",
        "scopes": ["*"],
        "expires_at": None,
        "allowed_agents": None,
        "actor": "shell:eve",
        "address": "host",
    }
    return keys.issue(tenant, **{**fields, **given})  # type: ignore[arg-type]  # some tests give what is wrong


def refused(raw: str) -> bool:
    try:
        keys.authenticate(raw)
    except NotAuthenticated:
        return True
    return False


# --- what a key looks like ---


def test_a_key_is_a_prefix_and_32_random_bytes_and_never_the_same(tenant: Tenant) -> None:
    first, second = issue(tenant), issue(tenant)
    assert first.raw != second.raw
    assert first.raw.startswith("ah_")
    assert len(first.raw) == 3 + 43
    assert set(first.raw) <= {*string.ascii_letters, *string.digits, "_", "-"}
    assert keys.looks_like_key(first.raw)


def test_only_the_hash_and_the_first_letters_are_stored(tenant: Tenant) -> None:
    issued = issue(tenant)
    stored = ApiKey.objects.get(pk=issued.key.pk)
    assert stored.digest == hashlib.sha256(issued.raw.encode()).hexdigest()
    assert stored.prefix == issued.raw[:11]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'select * from "{table}"')
            assert issued.raw[11:] not in repr(cursor.fetchall()), table


def test_an_issued_key_does_not_show_itself_when_printed(tenant: Tenant) -> None:
    issued = issue(tenant)
    assert issued.raw not in repr(issued)


@pytest.mark.rule("A2")
@pytest.mark.parametrize(
    "raw",
    [
        "",
        "ah_",
        "ah_" + "a" * 42,
        "ah_" + "a" * 44,
        "sk_" + "a" * 43,
        "ah_" + "a" * 42 + " ",
        "ah_" + "a" * 43 + "\n",
        "ah_" + "é" * 43,
    ],
)
def test_what_is_no_key_is_known_without_the_database(raw: str) -> None:
    assert not keys.looks_like_key(raw)
    assert refused(raw)


@given(st.text())
def test_any_text_can_be_asked_whether_it_is_a_key(text: str) -> None:
    assert keys.looks_like_key(text) in (True, False)


# --- who asks ---


@pytest.mark.rule("A2", "A3")
def test_a_key_tells_its_tenant_and_its_rights(tenant: Tenant) -> None:
    issued = issue(tenant, scopes=["sessions:read", "meta:read"], allowed_agents=["demo"])
    caller = keys.authenticate(issued.raw)
    assert (caller.tenant, caller.key, caller.key_prefix) == (tenant.pk, issued.key.pk, issued.raw[:11])
    assert caller.scopes == {"meta:read", "sessions:read"}
    assert caller.agents == frozenset({"demo"})


def test_a_key_may_use_what_it_and_its_tenant_both_allow(tenant: Tenant) -> None:
    tenants.change(tenant, title="", allowed_agents=["demo", "writer"], actor="t")
    assert keys.authenticate(issue(tenant, allowed_agents=["writer", "coder"]).raw).agents == frozenset({"writer"})
    assert keys.authenticate(issue(tenant).raw).agents == frozenset({"demo", "writer"})


def test_a_key_without_limits_may_use_every_agent(tenant: Tenant) -> None:
    assert keys.authenticate(issue(tenant).raw).agents is None


@pytest.mark.rule("A2")
def test_an_unknown_key_is_refused(tenant: Tenant) -> None:
    raw = issue(tenant).raw
    assert refused(raw[:-1] + ("a" if raw[-1] != "a" else "b"))


@pytest.mark.rule("A2")
def test_a_revoked_key_is_refused(tenant: Tenant) -> None:
    issued = issue(tenant)
    assert turns.revoke_key(issued.key, actor="t").changed
    assert refused(issued.raw)


@pytest.mark.rule("A2")
def test_a_key_is_refused_from_the_moment_it_expires(tenant: Tenant) -> None:
    issued = issue(tenant, expires_at=timezone.now() + timedelta(hours=1))
    assert not refused(issued.raw)
    ApiKey.objects.filter(pk=issued.key.pk).update(expires_at=timezone.now() - timedelta(milliseconds=10))
    assert refused(issued.raw)


@pytest.mark.rule("A2")
def test_a_suspended_tenants_keys_are_refused_until_it_is_resumed(tenant: Tenant) -> None:
    issued = issue(tenant)
    turns.suspend_tenant(tenant, actor="t")
    assert refused(issued.raw)
    tenants.resume(tenant, actor="t")
    assert not refused(issued.raw)


# --- last use ---


def last_used(issued: Issued) -> object:
    return ApiKey.objects.values_list("last_used_at", flat=True).get(pk=issued.key.pk)


def test_the_last_use_is_written_at_most_once_a_minute(tenant: Tenant) -> None:
    issued = issue(tenant)
    assert last_used(issued) is None
    keys.authenticate(issued.raw)
    first = last_used(issued)
    assert first is not None
    keys.authenticate(issued.raw)
    assert last_used(issued) == first
    earlier = timezone.now() - timedelta(seconds=61)
    ApiKey.objects.filter(pk=issued.key.pk).update(last_used_at=earlier)
    keys.authenticate(issued.raw)
    assert last_used(issued) != earlier


def test_asking_whether_a_key_is_still_good_is_no_use_of_it(tenant: Tenant) -> None:
    issued = issue(tenant)
    assert keys.is_good(issued.raw)
    assert last_used(issued) is None
    turns.revoke_key(issued.key, actor="t")
    assert not keys.is_good(issued.raw)


def test_a_locked_key_is_accepted_without_waiting_for_the_lock(tenant: Tenant, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    issued = issue(tenant)
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(keys.authenticate(issued.raw).key)
        finally:
            connection.close()

    with transaction.atomic():
        ApiKey.objects.select_for_update().get(pk=issued.key.pk)
        other = threading.Thread(target=ask)
        other.start()
        other.join(timeout=25)
        assert outcome == [issued.key.pk]
    assert last_used(issued) is None


def test_a_key_is_accepted_when_its_use_cannot_be_written(
    tenant: Tenant, on_postgres: bool, caplog: pytest.LogCaptureFixture
) -> None:
    issued = issue(tenant)
    with connection.cursor() as cursor:
        if on_postgres:
            cursor.execute("set default_transaction_read_only to on")
        else:
            cursor.execute("pragma query_only = on")
    try:
        with caplog.at_level(logging.WARNING):
            assert keys.authenticate(issued.raw).key == issued.key.pk
    finally:
        with connection.cursor() as cursor:
            cursor.execute("set default_transaction_read_only to off" if on_postgres else "pragma query_only = off")
    assert "last_used_not_stored" in caplog.text
    assert issued.raw[11:] not in caplog.text


# --- issuing, revoking, rotating ---


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["sessions:fly"]}, "scopes"),
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, "expires_at"),
        ({"allowed_agents": []}, "allowed_agents"),
    ],
)
def test_a_wrong_wish_is_refused_by_its_name_and_nothing_is_stored(tenant: Tenant, wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        issue(tenant, **wrong)
    assert [fault.path for fault in refusal.value.faults] == [(field,)]
    assert not ApiKey.objects.exists()
    assert not AuditRecord.objects.filter(action="key_issued").exists()


def test_issuing_and_revoking_leave_one_audit_row_each(tenant: Tenant) -> None:
    issued = issue(tenant, scopes=["meta:read"])
    assert turns.revoke_key(issued.key, actor="admin:eve", address="10.0.0.9").changed
    assert not turns.revoke_key(issued.key, actor="admin:eve").changed
    rows = AuditRecord.objects.filter(action__startswith="key_").order_by("id")
    assert [(row.action, row.actor, row.address, row.tenant_id) for row in rows] == [
        ("key_issued", "shell:eve", "host", tenant.pk),
        ("key_revoked", "admin:eve", "10.0.0.9", tenant.pk),
    ]
    assert all(issued.raw[:11] in row.target for row in rows)
    assert "meta:read" in rows[0].detail


def test_a_revocation_that_fails_leaves_neither_row_nor_revocation(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = issue(tenant)

    def broken(**_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("sessions_app.core.tenancy.audit.record", broken)
    with pytest.raises(RuntimeError):
        turns.revoke_key(issued.key, actor="t")
    assert not refused(issued.raw)


def test_after_a_rotation_both_keys_work_until_the_overlap_is_over(tenant: Tenant) -> None:
    old = issue(tenant, scopes=["meta:read"], allowed_agents=["demo"])
    new = keys.rotate(old.key, timedelta(hours=1), actor="t")
    assert new.raw != old.raw
    before, after = keys.authenticate(old.raw), keys.authenticate(new.raw)
    assert (after.tenant, after.scopes, after.agents) == (before.tenant, before.scopes, before.agents)
    assert new.key.rotated_from_id == old.key.pk
    assert old.key.expires_at is not None
    assert timedelta(minutes=59) < old.key.expires_at - timezone.now() <= timedelta(hours=1)
    ApiKey.objects.filter(pk=old.key.pk).update(expires_at=timezone.now() - timedelta(milliseconds=10))
    assert refused(old.raw)
    assert not refused(new.raw)


def test_a_rotation_without_overlap_ends_the_old_key_at_once(tenant: Tenant) -> None:
    old = issue(tenant)
    new = keys.rotate(old.key, timedelta(0), actor="t")
    assert refused(old.raw)
    assert not refused(new.raw)


def test_a_rotation_never_makes_the_old_key_live_longer(tenant: Tenant) -> None:
    end = timezone.now() + timedelta(hours=1)
    old = issue(tenant, expires_at=end)
    new = keys.rotate(old.key, timedelta(days=7), actor="t")
    assert ApiKey.objects.get(pk=old.key.pk).expires_at == end
    assert new.key.expires_at is not None
    assert timedelta(minutes=55) < new.key.expires_at - timezone.now() <= timedelta(hours=1)


def test_a_key_that_is_no_good_any_more_cannot_be_rotated(tenant: Tenant) -> None:
    revoked, expired = issue(tenant), issue(tenant)
    turns.revoke_key(revoked.key, actor="t")
    ApiKey.objects.filter(pk=expired.key.pk).update(expires_at=timezone.now() - timedelta(days=1))
    for key in (revoked.key, expired.key):
        with pytest.raises(InvalidInput):
            keys.rotate(key, timedelta(days=1), actor="t")
    with pytest.raises(InvalidInput):
        keys.rotate(issue(tenant).key, timedelta(days=-1), actor="t")
    assert ApiKey.objects.count() == 3


def test_a_rotation_is_in_the_audit_as_both_of_its_halves(tenant: Tenant) -> None:
    old = issue(tenant)
    new = keys.rotate(old.key, timedelta(days=1), actor="admin:eve", address="10.0.0.9")
    rows = list(AuditRecord.objects.filter(actor="admin:eve").order_by("id"))
    assert [row.action for row in rows] == ["key_rotated", "key_issued"]
    assert new.key.prefix in rows[0].detail
    assert old.key.prefix in rows[1].detail
    assert not any(new.raw in row.detail + row.target for row in rows)


def test_holders_of_the_scope_of_one_protocol_get_both_rights_and_the_previous_release_still_finds_it(tenant: Tenant) -> None:
    migration = import_module("sessions_app.migrations.0012_scopes_are_rights")
    held = [["ahp"], ["meta:read", "ahp"], ["sessions:read", "ahp"], ["*"], ["meta:read"], ["ahp", "*"]]
    issued = [issue(tenant) for _ in held]
    for each, scopes in zip(issued, held, strict=True):
        ApiKey.objects.filter(pk=each.key.pk).update(scopes=scopes)
    for _ in range(2):
        migration.give_both(apps, None)
    stored = [ApiKey.objects.get(pk=each.key.pk) for each in issued]
    both = ["sessions:read", "sessions:write"]
    assert [sorted(key.scopes) for key in stored] == [
        ["ahp", *both],
        ["ahp", "meta:read", *both],
        ["ahp", *both],
        ["*"],
        ["meta:read"],
        ["*", "ahp"],
    ]
    assert [keys.shown_scopes(key) for key in stored[:2]] == [both, ["meta:read", *both]]
    assert all(keys.authenticate(each.raw).may(scope) for each in issued[:3] for scope in both)
    with pytest.raises(InvalidInput):
        issue(tenant, scopes=["ahp"])


def test_the_key_of_a_member_is_not_rotated(tenant: Tenant) -> None:
    key = issue(tenant).key
    ApiKey.objects.filter(pk=key.pk).update(member=User.objects.create_user("dana"))
    with pytest.raises(InvalidInput, match="member"):
        keys.rotate(key, timedelta(0), actor="t")
    assert ApiKey.objects.get().expires_at is None
