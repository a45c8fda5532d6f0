"""Members, invitations and the audit over HTTP, at /api/members, /api/invitations and /api/audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail

from sessions_app.aap.management import parameters
from sessions_app.core.base.caller import Limits
from sessions_app.core.tenancy import audit_chain, audit_export, invitations, keys, member_management, members, rights, tokens
from sessions_app.core.tenancy.rights import Right
from sessions_app.models import AccessToken, ApiKey, AuditRecord, Member, Role, Tenant
from tests.faces.aap.conftest import Person, key_of, pointers, problem
from tests.faces.aap.test_tokens import api, minted

SCOPES_OF_RIGHTS = {
    Right.MANAGE_MEMBERS: "members",
    Right.MANAGE_KEYS: "keys",
    Right.SEE_USE: "use",
    Right.SEE_SESSIONS: "sessions:read",
    Right.READ_TRANSCRIPTS: "sessions:read",
    Right.USE_AGENTS: "sessions:write",
    Right.STOP_TURNS: "sessions:write",
    Right.DELETE_SESSIONS: "sessions:write",
    Right.EXPORT_SESSIONS: "export",
    Right.MANAGE_WEBHOOKS: "webhooks",
    Right.SEE_AUDIT: "audit",
    Right.EXPORT_AUDIT: "audit",
}


EVERYTHING = ("*", "members", "audit")


@pytest.fixture
def alice(alice: Person) -> Person:
    """With the scopes of an owner, which are not in ``*``."""
    return Person(key_of("alice", scopes=EVERYTHING))


@pytest.fixture
def bob(alice: Person) -> Person:
    return Person(key_of("bob", scopes=EVERYTHING))


@pytest.fixture
def tenant(alice: Person) -> Tenant:
    return Tenant.objects.get(slug="alice")


def joined(tenant: Tenant, name: str, role: Role) -> Member:
    return members.add(tenant, User.objects.create_user(name), role, actor="tests")


def acts(tenant: Tenant, *actions: str) -> list[tuple[str, str, str]]:
    rows = AuditRecord.objects.filter(tenant=tenant, action__in=actions).order_by("pk")
    return list(rows.values_list("actor", "action", "target"))


def actor(person: Person) -> str:
    assert person.key is not None
    return f"key:{person.key[: keys.PREFIX_LENGTH]}"


def test_somebody_is_invited_joins_gets_another_role_and_is_removed(alice: Person, tenant: Tenant) -> None:
    answer = api(alice).post("/invitations", {"role": "reader", "email": "ann@example.com"})
    made = answer.json()
    assert (answer.status_code, answer["Cache-Control"], answer["Location"]) == (
        201,
        "no-store",
        f"/api/invitations/{made['id']}",
    )
    assert made["link"].startswith("http://testserver/accounts/invitation/?token=")
    assert (made["mailed"], mail.outbox) == (False, []), "this server has no mail server"
    (listed,) = api(alice).get("/invitations").json()["invitations"]
    assert listed == {name: value for name, value in made.items() if name not in ("link", "mailed")}
    assert (listed["role"], listed["email"], listed["invitedBy"]) == ("reader", "ann@example.com", actor(alice))
    invitations.accept(made["link"].partition("token=")[2], User.objects.create_user("ann"), actor="member:ann", address="")
    (member,) = api(alice).get("/members").json()["members"]
    assert (member["name"], member["role"]) == ("ann", "reader")
    path = f"/members/{member['id']}"
    assert api(alice).request("PATCH", path, {"role": "developer"}).json()["role"] == "developer"
    assert api(alice).delete(path).status_code == 204
    assert not Member.objects.filter(tenant=tenant).exists()
    problem(api(alice).delete(path), 404)
    by_key = [
        record for record in acts(tenant, "member_invited", "member_changed", "member_removed") if record[0] == actor(alice)
    ]
    assert [action for _, action, _ in by_key] == ["member_invited", "member_changed", "member_removed"]


def test_an_invitation_is_withdrawn_and_its_link_works_no_more(alice: Person, tenant: Tenant) -> None:
    made = api(alice).post("/invitations", {"role": "owner"}).json()
    assert api(alice).delete(f"/invitations/{made['id']}").status_code == 204
    assert api(alice).get("/invitations").json() == {"invitations": []}
    problem(api(alice).delete(f"/invitations/{made['id']}"), 404)
    assert acts(tenant, "invitation_withdrawn") == [(actor(alice), "invitation_withdrawn", f"invitation {made['id']}")]


@pytest.mark.parametrize("role", list(Role))
def test_the_scopes_of_a_role_are_those_of_its_rights(role: Role) -> None:
    needed = {scope for right in rights.RIGHTS[role] if (scope := SCOPES_OF_RIGHTS.get(right))}
    # To use an agent one has to know which there are.
    assert set(member_management.SCOPES[role]) == needed | ({"meta:read"} if Right.USE_AGENTS in rights.RIGHTS[role] else set())


def test_a_key_gives_and_takes_only_roles_that_may_do_no_more_than_itself(alice: Person, tenant: Tenant) -> None:
    owner, reader = joined(tenant, "owner", Role.OWNER), joined(tenant, "reader", Role.READER)
    joined(tenant, "second", Role.OWNER)
    clerk = Person(key_of("alice", scopes=["members", "sessions:read", "use"]))
    assert api(clerk).post("/invitations", {"role": "reader"}).status_code == 201
    for role in ("developer", "owner"):
        assert f"the role {role}" in problem(api(clerk).post("/invitations", {"role": role}), 403)["detail"]
        problem(api(clerk).request("PATCH", f"/members/{reader.pk}", {"role": role}), 403)
    # Neither is anybody reduced or removed who may do more.
    problem(api(clerk).request("PATCH", f"/members/{owner.pk}", {"role": "reader"}), 403)
    problem(api(clerk).delete(f"/members/{owner.pk}"), 403)
    invited = api(alice).post("/invitations", {"role": "owner"}).json()
    problem(api(clerk).delete(f"/invitations/{invited['id']}"), 403)
    assert set(Member.objects.filter(tenant=tenant).values_list("role", flat=True)) == {"owner", "reader"}
    assert api(clerk).delete(f"/members/{reader.pk}").status_code == 204


def test_a_key_with_everything_that_a_developer_may_give_manages_no_members(alice: Person) -> None:
    made_by_a_developer = Person(key_of("alice", scopes=["*"]))
    for path in ("/members", "/invitations", "/audit"):
        problem(api(made_by_a_developer).get(path), 403)
    problem(api(made_by_a_developer).post("/keys", {"name": "more", "scopes": ["members"]}), 403)
    stronger = api(alice).post("/keys", {"name": "of an owner", "scopes": ["members"]}).json()
    problem(api(made_by_a_developer).post(f"/keys/{stronger['id']}/rotate"), 403)


def test_the_last_owner_stays(alice: Person, tenant: Tenant) -> None:
    owner = joined(tenant, "owner", Role.OWNER)
    assert "one owner" in problem(api(alice).delete(f"/members/{owner.pk}"), 409)["detail"]
    problem(api(alice).request("PATCH", f"/members/{owner.pk}", {"role": "reader"}), 409)


def test_a_member_that_is_removed_over_the_api_loses_the_tokens_of_the_console(alice: Person, tenant: Tenant) -> None:
    member = joined(tenant, "ann", Role.DEVELOPER)
    tokens.mint_for_member(tenant, member.user, scopes=["sessions:read"], origin="https://chat.example")
    assert api(alice).delete(f"/members/{member.pk}").status_code == 204
    assert not AccessToken.objects.filter(member_id=member.user_id, revoked_at=None).exists()


def test_limited_expiring_and_other_keys_and_tokens_manage_no_members(alice: Person) -> None:
    assert "members" in problem(api(Person(key_of("alice", scopes=["keys"]))).get("/members"), 403)["detail"]
    problem(api(Person(key_of("alice", scopes=EVERYTHING, allowed=["pilot"]))).get("/members"), 409)
    raw = key_of("alice", scopes=EVERYTHING)
    row = ApiKey.objects.get(digest=keys.digest_of(raw))
    keys.set_limits(row, Limits(sessions=1), actor="x")
    problem(api(Person(raw)).post("/invitations", {"role": "reader"}), 409)
    assert api(Person(minted(alice, alice.create())["token"])).get("/members").status_code in (403, 409)
    ends = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="seconds")
    made = api(alice).post("/keys", {"name": "for a day", "scopes": list(EVERYTHING), "expiresAt": ends}).json()
    assert "expires" in problem(api(Person(made["key"])).post("/invitations", {"role": "reader"}), 409)["detail"]
    assert api(Person(made["key"])).get("/members").status_code == 200


def test_members_of_another_tenant_do_not_exist(alice: Person, bob: Person) -> None:
    member = joined(Tenant.objects.get(slug="bob"), "bo", Role.READER)
    invited = api(bob).post("/invitations", {"role": "reader"}).json()
    problem(api(alice).request("PATCH", f"/members/{member.pk}", {"role": "owner"}), 404)
    problem(api(alice).delete(f"/members/{member.pk}"), 404)
    problem(api(alice).delete(f"/invitations/{invited['id']}"), 404)
    problem(api(alice).delete("/members/none"), 404)
    assert api(alice).get("/members").json() == {"members": []}


@pytest.mark.parametrize(("wrong", "pointer"), [({"role": "king"}, "/role"), ({"role": "reader", "email": "ann"}, "/email")])
def test_a_wrong_member_of_an_invitation_is_named(alice: Person, wrong: dict[str, Any], pointer: str) -> None:
    assert pointers(api(alice).post("/invitations", wrong)) == {pointer}


def test_members_are_listed_in_pages(alice: Person, tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "PAGE", 2)
    for name in ("a", "b", "c"):
        joined(tenant, name, Role.READER)
    first = api(alice).get("/members").json()
    assert [member["name"] for member in first["members"]] == ["c", "b"]
    assert [member["name"] for member in api(alice).get(f"/members?before={first['next']}").json()["members"]] == ["a"]
    problem(api(alice).get("/members?before=x"), 400)


# --- the audit ---


def test_the_audit_of_the_tenant_is_read_in_pages_and_by_nobody_else(
    alice: Person, bob: Person, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "PAGE", 2)
    for _ in range(3):
        api(alice).post("/keys", {"name": "k", "scopes": ["meta:read"]})
    api(bob).post("/keys", {"name": "hidden", "scopes": ["meta:read"]})
    audit_chain.link_new()
    found, after = [], "0"
    while after:
        page = api(alice).get(f"/audit?after={after}").json()
        found += page["records"]
        after = page.get("next", "")
    assert {record["tenant"] for record in found} == {"alice"}
    assert [record["number"] for record in found] == list(range(1, len(found) + 1))
    assert [record["actor"] for record in found if record["action"] == "key_issued"][-3:] == [actor(alice)] * 3
    assert acts(tenant, "audit_exported") == [(actor(alice), "audit_exported", "audit")], "one record an hour"
    problem(api(alice).get("/audit?after=x"), 400)
    assert "audit" in problem(api(Person(key_of("alice", scopes=["keys", "use"]))).get("/audit"), 403)["detail"]
    problem(api(Person(key_of("alice", scopes=["audit"], allowed=["pilot"]))).get("/audit"), 409)
