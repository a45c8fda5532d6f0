"""While keys are rotated, processes with the old and with the new key accept what the others have made."""

from __future__ import annotations

import os
from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from agenthost.doctor import database as database_checkup
from sessions_app.aap import positions
from sessions_app.core.base import sealing, second_factor_secrets, secret_keys
from sessions_app.core.base.errors import BadCursor, IdempotencyKeyReused
from sessions_app.core.records import database_checks, options
from sessions_app.core.sessions import creating, listing
from sessions_app.core.tenancy import audit_keys, webhooks
from sessions_app.management import sealed_values
from sessions_app.models import AuditKey
from tests.core.conftest import World
from tests.core.records.test_idempotency import key_of

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = "the-old-key-" * 5, "the-new-key-" * 5


def with_keys(settings: Settings, first: str, *others: str) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = first, list(others)


def test_a_cursor_of_either_key_is_followed_while_both_are_accepted(alice: World, settings: Settings) -> None:
    for _ in range(listing.PAGE + 1):
        alice.session()
    cursors = {}
    for key in (OLD, NEW):
        with_keys(settings, key)
        cursors[key] = listing.page(alice.caller, None).next
    for first, other in ((OLD, NEW), (NEW, OLD)):
        with_keys(settings, first, other)
        assert [len(listing.page(alice.caller, cursor).items) for cursor in cursors.values()] == [1, 1]
    with_keys(settings, NEW)
    with pytest.raises(BadCursor):
        listing.page(alice.caller, cursors[OLD])


def test_a_position_of_either_key_is_read() -> None:
    keys = [positions.signing_key(NEW), positions.signing_key(OLD)]
    assert [positions.read(keys, "sess_a", positions.write(key, "sess_a", 7)) for key in keys] == [7, 7]


def test_a_repeated_request_is_recognised_after_the_change(alice: World, settings: Settings) -> None:
    def create(body: str = "same") -> str:
        wanted = creating.SessionRequest("sailor")
        return creating.create(alice.caller, wanted, idempotency_key=key_of("k", body, "/sessions")).public_id

    with_keys(settings, OLD)
    made = create()
    with_keys(settings, NEW, OLD)
    assert create() == made
    with pytest.raises(IdempotencyKeyReused):
        create("another body")
    with_keys(settings, NEW)
    with pytest.raises(IdempotencyKeyReused):
        create()


def test_the_database_is_used_with_either_key_until_the_new_one_is_recorded(settings: Settings) -> None:
    with_keys(settings, OLD)
    database_checks.make_marks()
    with_keys(settings, NEW, OLD)
    assert database_checks.faults() == []
    assert any("still expects" in finding.detail for finding in database_checkup.check_rotation())
    with_keys(settings, NEW)
    assert [fault.kind for fault in database_checks.faults()] == ["secret_key"]
    with_keys(settings, NEW, OLD)
    call_command("accept_keys", "--secret-key", stderr=StringIO())
    assert any("has recorded the present" in finding.detail for finding in database_checkup.check_rotation())
    for keys in ((NEW,), (OLD, NEW)):
        with_keys(settings, *keys)
        assert database_checks.faults() == []
    assert secret_keys.accepted() == [OLD, NEW]


def test_every_kind_of_sealed_value_is_counted_and_sealed_again(alice: World, settings: Settings) -> None:
    (old,), new = settings.AGENTHOST_KEY_RING, os.urandom(32)
    database_checks.make_marks()
    session = alice.session(options={"key": "sk-canary"})
    alice.say(session, "hello")
    types = [webhooks.TURN_ENDED]
    made = webhooks.create(alice.caller.tenant, url="https://hooks.example.org/", types=types, description="", actor="test")
    person = User.objects.create_user("ann")
    Authenticator.objects.create(user=person, type="totp", data={"secret": second_factor_secrets.seal("JBSWY3DP")})
    audit_keys.mac("test", ["x"])

    settings.AGENTHOST_KEY_RING = [new, old]
    (newest, older) = sealing.key_ids()
    before = sealed_values.counts_by_key()
    kinds = {kind.name for kind in sealed_values.KINDS} | {"test value"}
    assert (before[newest], set(before[older])) == ({}, kinds)
    assert any(f"{older} is in use" in finding.detail for finding in database_checkup.check_rotation())

    call_command("reseal_secrets", stdout=StringIO())
    assert sealed_values.counts_by_key() == {newest: before[older], older: {}}
    assert any(f"{older} is unused" in finding.detail for finding in database_checkup.check_rotation())
    settings.AGENTHOST_KEY_RING = [new]
    audit_keys.forget_known()
    assert options.opened(session.tenant_id, session.pk)["key"] == "sk-canary"
    assert webhooks.secrets_of(made.webhook.pk) == [made.secret]
    assert second_factor_secrets.unseal(Authenticator.objects.get().data["secret"]) == "JBSWY3DP"
    assert audit_keys.mac("test", ["x"]).startswith(f"{AuditKey.objects.get().pk}:")

    settings.AGENTHOST_KEY_RING = [os.urandom(32)]
    lost = [finding for finding in database_checkup.check_rotation() if finding.state == "warning"]
    assert [newest in finding.detail for finding in lost] == [True]


def test_values_that_another_process_seals_with_the_old_key_meanwhile_are_reported(
    alice: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,), new = settings.AGENTHOST_KEY_RING, os.urandom(32)
    database_checks.make_marks()
    settings.AGENTHOST_KEY_RING = [new, old]
    really = database_checks.reseal

    def then_another_process_writes() -> None:
        really()
        settings.AGENTHOST_KEY_RING = [old, new]
        alice.session(options={"key": "sk-canary"})
        settings.AGENTHOST_KEY_RING = [new, old]

    monkeypatch.setattr(database_checks, "reseal", then_another_process_writes)
    with pytest.raises(CommandError, match="with an older key meanwhile"):
        call_command("reseal_secrets", stdout=StringIO())
    monkeypatch.undo()
    call_command("reseal_secrets", stdout=StringIO())
