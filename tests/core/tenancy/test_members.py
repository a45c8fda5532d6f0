"""Members and invitations of tenants."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from sessions_app.core.base.errors import InvalidInput, InvitationUnusable, MemberNotFound, NotPossible, RightMissing
from sessions_app.core.tenancy import invitations, members, rights
from sessions_app.models import AuditRecord, Invitation, Member, Role, Tenant
from tests.core.threads import TIMEOUT, at_once, errors_of

pytestmark = pytest.mark.django_db(transaction=True)

BY = {"actor": "member:ann", "address": "192.0.2.1"}


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="acme")


def member(tenant: Tenant, name: str, role: Role) -> tuple[rights.Account, Member]:
    user = User.objects.filter(username=name).first() or User.objects.create_user(name)
    row = members.add(tenant, user, role, **BY)
    rights.forget(user)
    return rights.account_of(user), row


def acts() -> list[tuple[str, str]]:
    return list(AuditRecord.objects.exclude(action="account_created").order_by("id").values_list("action", "detail"))


def test_an_invitation_makes_a_member_once_and_only_its_hash_is_stored(acme: Tenant) -> None:
    ann, _ = member(acme, "ann", Role.OWNER)
    issued = invitations.invite(ann, acme, Role.DEVELOPER, "bob@example.org", **BY)
    assert issued.token not in repr(list(Invitation.objects.values())) + repr(list(AuditRecord.objects.values())) + repr(issued)
    bob, eve = User.objects.create_user("bob"), User.objects.create_user("eve")
    assert invitations.accept(issued.token, bob, actor="member:bob", address="").role == Role.DEVELOPER
    for again in (bob, eve):
        with pytest.raises(InvitationUnusable):
            invitations.accept(issued.token, again, actor="x", address="")
    assert not Member.objects.filter(user=eve).exists()
    assert [act for act, _ in acts()] == ["member_added", "member_invited", "member_added", "invitation_accepted"]


def test_of_two_people_with_the_same_link_one_becomes_a_member(acme: Tenant) -> None:
    issued = invitations.issue(acme, Role.READER, **BY)
    people = [User.objects.create_user(f"p{number}") for number in range(4)]

    def accept(user: User) -> bool:
        try:
            invitations.accept(issued.token, user, actor="x", address="")
        except InvitationUnusable:
            return False
        return True

    assert sorted(at_once(*[lambda user=user: accept(user) for user in people])) == [False, False, False, True]
    assert Member.objects.count() == 1


def test_expired_withdrawn_and_unknown_links_and_those_of_suspended_tenants_are_refused_alike(acme: Tenant) -> None:
    ann, _ = member(acme, "ann", Role.OWNER)
    expired, withdrawn, suspended = (invitations.invite(ann, acme, Role.READER, **BY) for _ in range(3))
    Invitation.objects.filter(pk=expired.invitation.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    invitations.withdraw(ann, acme, withdrawn.invitation.pk, **BY)
    for token in (expired.token, withdrawn.token, "x" * 43, "", "\0"):
        with pytest.raises(InvitationUnusable):
            invitations.find(token)
    invitations.find(suspended.token)
    Tenant.objects.update(suspended_at=timezone.now())
    with pytest.raises(InvitationUnusable):
        invitations.find(suspended.token)


def test_only_owners_invite_change_and_remove_and_only_in_their_tenant(acme: Tenant) -> None:
    elsewhere = Tenant.objects.create(slug="other")
    ann, _ = member(acme, "ann", Role.OWNER)
    bob, bobs = member(acme, "bob", Role.DEVELOPER)
    _, theirs = member(elsewhere, "cy", Role.READER)
    for act in (
        lambda: invitations.invite(bob, acme, Role.READER, **BY),
        lambda: members.change_role(bob, acme, bobs.pk, Role.OWNER, **BY),
        lambda: members.remove(bob, acme, Member.objects.get(user__username="ann").pk, **BY),
    ):
        with pytest.raises(RightMissing):
            act()
    with pytest.raises(MemberNotFound):
        members.change_role(ann, acme, theirs.pk, Role.OWNER, **BY)
    with pytest.raises(MemberNotFound):
        members.remove(ann, acme, theirs.pk, **BY)
    foreign = invitations.issue(elsewhere, Role.READER, **BY)
    with pytest.raises(MemberNotFound):
        invitations.withdraw(ann, acme, foreign.invitation.pk, **BY)
    invitations.find(foreign.token)


def test_the_last_owner_stays_even_if_two_owners_remove_each_other(acme: Tenant) -> None:
    ann, anns = member(acme, "ann", Role.OWNER)
    with pytest.raises(NotPossible):
        members.remove(ann, acme, anns.pk, **BY)
    with pytest.raises(NotPossible):
        members.change_role(ann, acme, anns.pk, Role.READER, **BY)
    bob, bobs = member(acme, "bob", Role.OWNER)

    def removed(by: rights.Account, whom: Member) -> bool:
        try:
            members.remove(by, acme, whom.pk, **BY)
        except NotPossible:
            return False
        return True

    assert sorted(at_once(lambda: removed(ann, bobs), lambda: removed(bob, anns))) == [False, True]
    assert Member.objects.get(tenant=acme).role == Role.OWNER


def test_members_may_leave(acme: Tenant) -> None:
    member(acme, "ann", Role.OWNER)
    bob, bobs = member(acme, "bob", Role.READER)
    members.remove(bob, acme, bobs.pk, **BY)
    assert acts()[-1] == ("member_removed", "role: reader")


def test_an_invitation_never_lowers_a_role(acme: Tenant) -> None:
    _, anns = member(acme, "ann", Role.OWNER)
    invitations.accept(invitations.issue(acme, Role.READER, **BY).token, anns.user, actor="x", address="")
    anns.refresh_from_db()
    assert anns.role == Role.OWNER


def test_wrong_roles_and_addresses_are_named(acme: Tenant) -> None:
    with pytest.raises(InvalidInput, match="there is no role 'boss'; the roles are owner, developer, reader"):
        members.role_of("boss")
    with pytest.raises(InvalidInput, match="not an e-mail address"):
        invitations.issue(acme, Role.READER, "nobody", **BY)


def test_a_tenant_has_at_most_a_hundred_open_invitations(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invitations, "MOST_OPEN", 2)
    for _ in range(2):
        invitations.issue(acme, Role.READER, **BY)
    with pytest.raises(NotPossible, match="2 open invitations"):
        invitations.issue(acme, Role.READER, **BY)


# --- at the same moment, on two connections ---


@pytest.fixture
def _two_writers(on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has one writer: nothing can come in between")


@pytest.mark.usefixtures("_two_writers")
def test_of_two_people_who_both_found_an_open_invitation_one_becomes_a_member(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = invitations.issue(acme, Role.READER, **BY)
    people = [User.objects.create_user(f"p{number}") for number in range(2)]
    both, find = threading.Barrier(2), invitations.find

    def find_and_wait(token: str) -> Invitation:
        found = find(token)
        both.wait(TIMEOUT)
        return found

    monkeypatch.setattr(invitations, "find", find_and_wait)
    accept = partial(invitations.accept, issued.token, actor="x", address="")
    outcomes = errors_of(at_once(*[partial(accept, user) for user in people]))
    assert outcomes == ["InvitationUnusable", "done"]
    assert Member.objects.count() == 1
    assert AuditRecord.objects.filter(action="invitation_accepted").count() == 1


@pytest.mark.usefixtures("_two_writers")
@pytest.mark.parametrize("end", ["removes", "demotes", "leaves"])
def test_the_last_two_owners_do_not_both_go_at_the_same_moment(acme: Tenant, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    (ann, anns), (bob, bobs) = (member(acme, name, Role.OWNER) for name in ("ann", "bob"))
    both, check = threading.Barrier(2), members._another_owner

    def check_and_wait(row: Member) -> None:
        check(row)
        # Without the lock on the tenant both come here; with it the second one comes after the first has committed.
        with suppress(threading.BrokenBarrierError):
            both.wait(1.0)

    monkeypatch.setattr(members, "_another_owner", check_and_wait)

    def go(by: rights.Account, row: Member) -> None:
        if end == "demotes":
            members.change_role(by, acme, row.pk, Role.READER, **BY)
        else:
            members.remove(by, acme, row.pk, **BY)

    pairs = [(ann, anns), (bob, bobs)] if end == "leaves" else [(ann, bobs), (bob, anns)]
    outcomes = errors_of(at_once(*[partial(go, *pair) for pair in pairs]))
    assert outcomes == ["NotPossible", "done"]
    assert Member.objects.filter(role=Role.OWNER).count() == 1
