"""Audit records of reads and deletions with keys, and of keys that are used from new addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sessions_app.core.base import client_address
from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.sessions import deleting, entries, listing, state
from sessions_app.core.tenancy import (
    api_audit,
    audit,
    audit_chain,
    credentials,
    key_addresses,
    keys,
    known_callers,
    refused_keys,
    tenants,
    tokens,
)
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import AccessToken, ApiKey, AuditRecord, KeyAddress, Session
from tests.core.on_loop import on_loop
from tests.core.threads import at_once
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "203.0.113.9"


@contextmanager
def coming_from(address: str) -> Iterator[None]:
    token = client_address.current.set(address)
    try:
        yield
    finally:
        client_address.current.reset(token)


@pytest.fixture
def session(sample: SampleTenants, scripted_agents: None) -> Session:
    return make_session(sample.alice.caller)


def records(action: Action) -> list[tuple[str, str, str]]:
    rows = AuditRecord.objects.filter(action=action).order_by("pk")
    return list(rows.values_list("actor", "target", "address"))


def another_process() -> None:
    api_audit.forget_known()
    key_addresses.forget_known()
    refused_keys.forget_known()
    known_callers.forget_all()


# --- reads and deletions ---


def test_reading_a_session_again_within_the_hour_adds_no_record_in_any_process(sample: SampleTenants, session: Session) -> None:
    caller = sample.alice.caller
    with coming_from(HERE):
        for _ in range(3):
            state.read(caller, session)
        state.page(caller, session, None, 10)
        another_process()
        state.read(caller, session)
    assert records(Action.TRANSCRIPT_READ) == [(f"key:{caller.key_prefix}", f"session {session.public_id}", HERE)]


def test_another_key_another_session_and_another_hour_are_records_of_their_own(
    sample: SampleTenants, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller, reader = sample.alice.caller, keys.authenticate(sample.alice.reading_key)
    state.read(caller, session)
    state.read(reader, session)
    state.read(caller, make_session(caller))
    later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    state.read(caller, session)
    assert len(records(Action.TRANSCRIPT_READ)) == 4


def test_two_processes_that_read_at_once_write_one_record(sample: SampleTenants, session: Session) -> None:
    def read() -> None:
        api_audit.forget_known()
        state.read(sample.alice.caller, session)

    assert at_once(*[read] * 4) == [None] * 4
    assert len(records(Action.TRANSCRIPT_READ)) == 1


def test_a_read_that_is_remembered_asks_the_database_nothing(sample: SampleTenants, session: Session) -> None:
    note = partial(api_audit.read, sample.alice.caller, Action.TRANSCRIPT_READ, f"session {session.public_id}")
    note()
    with CaptureQueriesContext(connection) as asked:
        note()
    assert len(asked) == 0


def test_an_operator_can_leave_reads_over_the_api_out(sample: SampleTenants, session: Session, settings: Any) -> None:
    settings.AGENTHOST_AUDIT_API_READS = False
    state.read(sample.alice.caller, session)
    assert records(Action.TRANSCRIPT_READ) == []


def test_a_member_with_a_token_of_the_console_is_the_actor_of_reads_and_deletions(
    sample: SampleTenants, session: Session
) -> None:
    eve = User.objects.create_user("eve")
    minted = tokens.mint_for_member(
        sample.alice.tenant, eve, scopes=["sessions:read", "sessions:write"], origin="https://chat.example"
    )
    caller = credentials.authenticate(minted.raw)
    with coming_from(HERE):
        state.read(caller, session)
        deleting.delete(caller, session)
    expected = ("member:eve", f"session {session.public_id}", HERE)
    assert (records(Action.TRANSCRIPT_READ), records(Action.SESSION_DELETED)) == ([expected], [expected])


def test_records_of_reads_are_in_the_chain_and_verify(sample: SampleTenants, session: Session) -> None:
    with coming_from(HERE):
        state.read(sample.alice.caller, session)
        keys.authenticate(sample.alice.key)
    audit_chain.link_new()
    assert list(audit_chain.verify()) == []
    AuditRecord.objects.filter(action=Action.TRANSCRIPT_READ).update(actor="key:other")
    assert [each.kind for each in audit_chain.verify()] == ["changed"]


def test_lists_of_sessions_are_recorded_once_over_both_protocols(sample: SampleTenants, session: Session) -> None:
    caller = sample.alice.caller
    with coming_from(HERE):
        for _ in range(2):
            listing.page(caller, None)
            entries.listed(caller)
            entries.page(caller, 10, None)
            another_process()
    assert records(Action.SESSIONS_LISTED) == [(f"key:{caller.key_prefix}", "sessions", HERE)]


def test_minted_tokens_are_one_record_for_each_session_and_hour(sample: SampleTenants, session: Session) -> None:
    caller, other = sample.alice.caller, make_session(sample.alice.caller)
    with coming_from(HERE):
        for _ in range(3):
            tokens.mint(caller, session, origin="https://chat.example")
            another_process()
        tokens.mint(caller, other)
    expected = [(f"key:{caller.key_prefix}", f"session {each.public_id}", HERE) for each in (session, other)]
    assert records(Action.TOKENS_MINTED) == expected
    detail = AuditRecord.objects.filter(action=Action.TOKENS_MINTED).order_by("pk").values_list("detail", flat=True)[0]
    assert detail == (
        "sessions:read, sessions:write; for pages of https://chat.example; further tokens within the hour are not recorded"
    )


def test_a_token_that_could_not_be_recorded_is_not_minted(
    sample: SampleTenants, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise OperationalError("the disk is full")

    monkeypatch.setattr(audit, "record_once", fail)
    with pytest.raises(OperationalError):
        tokens.mint(sample.alice.caller, session)
    monkeypatch.undo()
    assert not AccessToken.objects.exists()
    tokens.mint(sample.alice.caller, session)
    assert len(records(Action.TOKENS_MINTED)) == 1, "the failed attempt is not remembered as recorded"


# --- keys that are not valid any more ---


def refuse(raw: str, address: str = HERE) -> None:
    with coming_from(address), pytest.raises(NotAuthenticated):
        keys.authenticate(raw)


def test_a_revoked_key_that_is_used_is_one_record_for_each_network_and_hour(sample: SampleTenants) -> None:
    key = ApiKey.objects.get(digest=keys.digest_of(sample.alice.key))
    keys.mark_revoked(key, actor="tests")
    for address in (HERE, HERE, "198.51.100.1", HERE):
        refuse(sample.alice.key, address)
        another_process()
    prefix = sample.alice.caller.key_prefix
    expected = [(f"key:{prefix}", f"key {prefix}…", address) for address in (HERE, "198.51.100.1")]
    assert records(Action.KEY_REFUSED) == expected
    details = AuditRecord.objects.filter(action=Action.KEY_REFUSED).values_list("detail", flat=True)
    assert all(detail.startswith("it was revoked at 2") for detail in details)


def test_requests_from_everywhere_write_a_bounded_number_of_records_of_a_refused_key(sample: SampleTenants) -> None:
    ApiKey.objects.filter(digest=keys.digest_of(sample.alice.key)).update(expires_at=timezone.now() - timedelta(minutes=1))
    for number in range(refused_keys.MOST + 5):
        refuse(sample.alice.key, f"198.51.{number}.1")
    found = list(AuditRecord.objects.filter(action=Action.KEY_REFUSED).order_by("pk").values_list("detail", flat=True))
    assert len(found) == refused_keys.MOST
    assert [number for number, detail in enumerate(found, 1) if "the last of 32" in detail] == [refused_keys.MOST]


def test_a_key_of_a_suspended_tenant_is_recorded_and_one_that_never_existed_is_not(sample: SampleTenants) -> None:
    tenants.mark_suspended(sample.alice.tenant, actor="tests")
    refuse(sample.alice.key)
    refuse(keys.PREFIX + "x" * 43)
    (detail,) = AuditRecord.objects.filter(action=Action.KEY_REFUSED).values_list("detail", flat=True)
    assert detail.startswith("its tenant is suspended")


def test_a_refusal_that_cannot_be_recorded_is_still_a_refusal(sample: SampleTenants, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.mark_revoked(ApiKey.objects.get(digest=keys.digest_of(sample.alice.key)), actor="tests")

    def fail(*_given: Any, **_named: Any) -> None:
        raise OperationalError("the disk is full")

    monkeypatch.setattr(audit, "record_once", fail)
    refuse(sample.alice.key)
    monkeypatch.undo()
    refuse(sample.alice.key)
    assert len(records(Action.KEY_REFUSED)) == 1


# --- addresses of keys ---


def test_the_first_use_of_a_key_from_an_address_is_recorded_once(sample: SampleTenants) -> None:
    another_process()
    for address in (HERE, HERE, "198.51.100.1", HERE):
        with coming_from(address):
            keys.authenticate(sample.alice.key)
            another_process()
    prefix = sample.alice.caller.key_prefix
    expected = [(f"key:{prefix}", f"key {prefix}…", HERE), (f"key:{prefix}", f"key {prefix}…", "198.51.100.1")]
    assert records(Action.KEY_USED_FROM_NEW_ADDRESS) == expected


def test_addresses_of_one_ipv6_network_are_one_address(sample: SampleTenants) -> None:
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3", "2001:db8:0:1::1"):
        with coming_from(address):
            keys.authenticate(sample.alice.key)
    assert [address for _, _, address in records(Action.KEY_USED_FROM_NEW_ADDRESS)] == ["2001:db8::1", "2001:db8:0:1::1"]


def test_short_lived_tokens_have_no_addresses(sample: SampleTenants, session: Session) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    with coming_from(HERE):
        credentials.authenticate(minted.raw)
    assert records(Action.KEY_USED_FROM_NEW_ADDRESS) == []


def test_a_known_address_costs_no_query_more(sample: SampleTenants) -> None:
    with coming_from(HERE):
        keys.authenticate(sample.alice.key)
        with CaptureQueriesContext(connection) as asked:
            keys.authenticate(sample.alice.key)
    with CaptureQueriesContext(connection) as without:
        keys.authenticate(sample.alice.key)
    assert len(asked) == len(without)


def test_a_key_used_from_everywhere_fills_no_table(sample: SampleTenants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_addresses, "MOST", 3)
    for number in range(6):
        with coming_from(f"203.0.113.{number}"):
            keys.authenticate(sample.alice.key)
    with coming_from(HERE):
        keys.authenticate(sample.bob.key)
    of_alice = AuditRecord.objects.filter(action=Action.KEY_USED_FROM_NEW_ADDRESS, tenant=sample.alice.tenant)
    assert list(of_alice.order_by("pk").values_list("detail", flat=True)) == [
        "network 203.0.113.0",
        "network 203.0.113.1",
        "network 203.0.113.2; the last of 3 that are recorded within 90 days",
    ]
    assert KeyAddress.objects.count() == 4


def test_an_address_is_forgotten_after_its_time_and_then_recorded_again(sample: SampleTenants) -> None:
    for _ in range(2):
        with coming_from(HERE):
            keys.authenticate(sample.alice.key)
        KeyAddress.objects.update(seen_at=timezone.now() - key_addresses.KEPT - timedelta(minutes=1))
        assert key_addresses.delete_old() == 1
        another_process()
    assert len(records(Action.KEY_USED_FROM_NEW_ADDRESS)) == 2


def test_processes_that_see_a_new_address_at_once_write_one_record(sample: SampleTenants) -> None:
    def use() -> None:
        with coming_from(HERE):
            key_addresses.forget_known()
            keys.authenticate(sample.alice.key)

    assert at_once(*[use] * 4) == [None] * 4
    assert len(records(Action.KEY_USED_FROM_NEW_ADDRESS)) == 1


def test_a_request_on_the_loop_records_a_new_address_of_a_key_that_is_remembered(sample: SampleTenants) -> None:
    with coming_from(HERE):
        (first,) = on_loop(sample.alice.tenant.pk, partial(keys.authenticate, sample.alice.key))
    with coming_from("198.51.100.1"):
        (second,) = on_loop(sample.alice.tenant.pk, partial(keys.authenticate, sample.alice.key))
    assert first.key == second.key == sample.alice.caller.key
    assert [address for _, _, address in records(Action.KEY_USED_FROM_NEW_ADDRESS)] == [HERE, "198.51.100.1"]
