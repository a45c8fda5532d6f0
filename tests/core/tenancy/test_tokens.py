"""Short-lived tokens: minting, what they may do, and their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from sessions_app.core import turns
from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import (
    InvalidInput,
    NotAuthenticated,
    NotPossible,
    ScopeMissing,
    SessionNotFound,
    TokenLimited,
    TokenNotFound,
)
from sessions_app.core.sessions import creating, deleting
from sessions_app.core.tenancy import access, credentials, keys, tokens
from sessions_app.core.tenancy.tokens import Minted
from sessions_app.models import AccessToken, ApiKey, AuditRecord, Session
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(sample: SampleTenants, scripted_agents: None) -> Session:
    return make_session(sample.alice.caller)


def came(minted: Minted) -> Caller:
    return credentials.authenticate(minted.raw)


def test_a_token_sees_its_session_and_no_other(sample: SampleTenants, session: Session) -> None:
    other = make_session(sample.alice.caller)
    caller = came(tokens.mint(sample.alice.caller, session))
    assert access.session(caller, session.public_id).pk == session.pk
    with pytest.raises(SessionNotFound):
        access.session(caller, other.public_id)
    with pytest.raises(SessionNotFound):
        access.session_of_row(caller, other.pk)
    assert [row.pk for row in access.visible(caller)] == [session.pk]


def test_a_token_creates_no_session(sample: SampleTenants, session: Session) -> None:
    caller = came(tokens.mint(sample.alice.caller, session))
    with pytest.raises(TokenLimited, match="create sessions"):
        creating.create(caller, creating.SessionRequest("echo"))
    assert Session.objects.count() == 1


def test_a_token_is_stored_as_a_hash(sample: SampleTenants, session: Session) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    stored = AccessToken.objects.filter(public_id=minted.public_id).values().get()
    assert minted.raw not in str(stored)
    assert minted.raw not in repr(minted)
    assert tokens.looks_like_token(minted.raw)


def test_a_token_has_no_scope_that_its_key_lacks(sample: SampleTenants, session: Session) -> None:
    reader = credentials.authenticate(sample.alice.reading_key)
    with pytest.raises(ScopeMissing):
        tokens.mint(reader, session, scopes=["sessions:read", "sessions:write"])
    assert came(tokens.mint(reader, session)).scopes == {"sessions:read"}
    assert came(tokens.mint(sample.alice.caller, session, scopes=["sessions:read"])).scopes == {"sessions:read"}


def test_a_token_loses_what_its_key_loses(sample: SampleTenants, session: Session) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    ApiKey.objects.filter(pk=sample.alice.caller.key).update(scopes=["sessions:read"])
    assert came(minted).scopes == {"sessions:read"}


@pytest.mark.parametrize(
    ("given", "member"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["*"]}, "scopes"),
        ({"scopes": ["sessions:everything"]}, "scopes"),
        ({"seconds": 9}, "seconds"),
        ({"seconds": 3601}, "seconds"),
        ({"origin": "app.example.com"}, "origin"),
        ({"origin": "https://app.example.com/"}, "origin"),
        ({"origin": "https://app.example.com:443"}, "origin"),
        ({"origin": "https://user@app.example.com"}, "origin"),
        ({"origin": "null"}, "origin"),
        ({"origin": "https://" + "a" * 300}, "origin"),
    ],
)
def test_a_token_that_cannot_be_is_refused_by_name(
    sample: SampleTenants, session: Session, given: dict[str, Any], member: str
) -> None:
    with pytest.raises(InvalidInput) as failed:
        tokens.mint(sample.alice.caller, session, **given)
    assert failed.value.faults[0].path == (member,)
    assert not AccessToken.objects.exists()


def _revoke_key(_sample: SampleTenants, minted: Minted) -> None:
    keys.mark_revoked(AccessToken.objects.get(public_id=minted.public_id).key, actor="the tests")


def _expire_key(_sample: SampleTenants, minted: Minted) -> None:
    keys.expire(AccessToken.objects.get(public_id=minted.public_id).key, actor="the tests")


def _suspend(sample: SampleTenants, _minted: Minted) -> None:
    turns.suspend_tenant(sample.alice.tenant, actor="the tests")


def _revoke(sample: SampleTenants, minted: Minted) -> None:
    tokens.revoke(sample.alice.caller, minted.public_id)


def _expire(_sample: SampleTenants, minted: Minted) -> None:
    AccessToken.objects.filter(public_id=minted.public_id).update(expires_at=timezone.now() - timedelta(seconds=1))


def _delete_session(sample: SampleTenants, minted: Minted) -> None:
    deleting.delete(sample.alice.caller, access.session(sample.alice.caller, minted.session))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", [_revoke_key, _expire_key, _suspend, _revoke, _expire, _delete_session])
def test_a_token_ends_with_its_key_its_session_and_by_itself(
    sample: SampleTenants, session: Session, end: Callable[[SampleTenants, Minted], None]
) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    caller = came(minted)
    assert credentials.current([caller]) == {credentials.identity(caller): caller}
    end(sample, minted)
    with pytest.raises(NotAuthenticated):
        came(minted)
    assert not credentials.is_good(minted.raw)
    assert credentials.current([caller]) == {}


def test_a_token_mints_and_lists_no_tokens_and_ends_only_itself(sample: SampleTenants, session: Session) -> None:
    first, second = (tokens.mint(sample.alice.caller, session) for _ in range(2))
    caller = came(first)
    for refused in (lambda: tokens.mint(caller, session), lambda: tokens.live(caller, 10)):
        with pytest.raises(TokenLimited):
            refused()
    with pytest.raises(TokenNotFound):
        tokens.revoke(caller, second.public_id)
    tokens.revoke(caller, first.public_id)
    with pytest.raises(NotAuthenticated):
        came(first)
    assert came(second).session == session.pk


def test_a_key_neither_lists_nor_revokes_the_tokens_of_another(sample: SampleTenants, session: Session) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    for other in (credentials.authenticate(sample.alice.reading_key), sample.bob.caller):
        assert tokens.live(other, 10) == []
        with pytest.raises(TokenNotFound):
            tokens.revoke(other, minted.public_id)
    assert [each.public_id for each in tokens.live(sample.alice.caller, 10)] == [minted.public_id]


def test_a_rotated_key_revokes_the_tokens_of_the_one_before(sample: SampleTenants, session: Session) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    old = ApiKey.objects.select_related("tenant").get(pk=sample.alice.caller.key)
    new = keys.rotate(old, timedelta(hours=1), actor="the tests")
    tokens.revoke(credentials.authenticate(new.raw), minted.public_id)
    with pytest.raises(NotAuthenticated):
        came(minted)


def test_a_key_has_a_limit_of_live_tokens(sample: SampleTenants, session: Session, settings: Settings) -> None:
    settings.AGENTHOST_TOKENS_PER_KEY = 2
    first, _ = (tokens.mint(sample.alice.caller, session) for _ in range(2))
    with pytest.raises(NotPossible, match="2 live tokens"):
        tokens.mint(sample.alice.caller, session)
    tokens.revoke(sample.alice.caller, first.public_id)
    tokens.mint(sample.alice.caller, session)


def test_authenticating_a_token_takes_one_statement_as_a_key_does(
    sample: SampleTenants, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    minted = tokens.mint(sample.alice.caller, session)
    came(minted)
    statements: list[str] = []
    rows = raw_sql.rows

    def counted_rows(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        statements.append(sql)
        return rows(sql, params)

    monkeypatch.setattr(raw_sql, "rows", counted_rows)
    with CaptureQueriesContext(connection) as counted:
        came(minted)
    assert len(statements) == 1
    # Only SQLite's hand-written SQL goes through Django.
    assert len(counted) <= 1


def test_a_token_counts_in_the_limits_of_its_key(sample: SampleTenants, session: Session) -> None:
    of_key, of_token = sample.alice.caller, came(tokens.mint(sample.alice.caller, session))
    assert (of_token.key, of_token.line, of_token.tenant_limits) == (of_key.key, of_key.line, of_key.tenant_limits)


# --- members -----------------------------------------------------------------------------------------


@pytest.fixture
def member() -> User:
    return User.objects.create_user("dana")


ORIGIN = "https://console.example.com"


def test_a_member_uses_the_whole_tenant_within_the_given_scopes(sample: SampleTenants, session: Session, member: User) -> None:
    minted = tokens.mint_for_member(sample.alice.tenant, member, scopes=["sessions:read"], origin=ORIGIN)
    caller = came(minted)
    assert (caller.tenant, caller.scopes, caller.origin) == (sample.alice.tenant.pk, frozenset({"sessions:read"}), ORIGIN)
    assert [row.pk for row in access.visible(caller)] == [session.pk]
    again = came(tokens.mint_for_member(sample.alice.tenant, member, scopes=["sessions:read"], origin=ORIGIN))
    assert again.key == caller.key
    assert AuditRecord.objects.filter(actor="member:dana", action="key_issued").count() == 1


def test_a_members_token_ends_when_the_member_leaves_or_is_deactivated(sample: SampleTenants, member: User) -> None:
    def minted(tenant: Any = sample.alice.tenant) -> Minted:
        return tokens.mint_for_member(tenant, member, scopes=["sessions:read"], origin=ORIGIN)

    first, elsewhere = minted(), minted(sample.bob.tenant)
    assert tokens.revoke_of_member(sample.alice.tenant, member) == 1
    with pytest.raises(NotAuthenticated):
        came(first)
    assert came(elsewhere).tenant == sample.bob.tenant.pk
    User.objects.filter(pk=member.pk).update(is_active=False)
    with pytest.raises(NotAuthenticated):
        came(elsewhere)


@pytest.mark.django_db(transaction=True)
def test_revoking_a_members_key_ends_the_tokens_and_forbids_new_ones(sample: SampleTenants, member: User) -> None:
    minted = tokens.mint_for_member(sample.alice.tenant, member, scopes=["sessions:read"], origin=ORIGIN)
    keys.mark_revoked(ApiKey.objects.get(member_id=member.pk), actor="the tests")
    with pytest.raises(NotAuthenticated):
        came(minted)
    with pytest.raises(NotPossible, match="revoked"):
        tokens.mint_for_member(sample.alice.tenant, member, scopes=["sessions:read"], origin=ORIGIN)


def test_housekeeping_deletes_tokens_that_ended_a_day_ago(sample: SampleTenants, session: Session) -> None:
    old, new = (tokens.mint(sample.alice.caller, session) for _ in range(2))
    AccessToken.objects.filter(public_id=old.public_id).update(expires_at=timezone.now() - timedelta(days=1, seconds=1))
    assert tokens.delete_old() == 1
    assert list(AccessToken.objects.values_list("public_id", flat=True)) == [new.public_id]
