"""Keys and use over HTTP, at /api/keys and /api/use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sessions_app.core.base.caller import Limits
from sessions_app.core.tenancy import keys, usage_entries
from sessions_app.models import HOUR, ApiKey, AuditRecord, ModelUse, Tenant, TurnFigures
from tests.faces.aap.conftest import Person, key_of, pointers, problem
from tests.faces.aap.test_tokens import api, minted


def make(person: Person, **more: Any) -> dict[str, Any]:
    response = api(person).post("/keys", {"name": "made", "scopes": ["sessions:read"], **more})
    assert response.status_code == 201, response.content
    assert response["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()
    assert response["Location"] == f"/api/keys/{found['id']}"
    return found


def test_a_key_is_made_shown_limited_rotated_and_revoked(alice: Person) -> None:
    until = (datetime.now(UTC) + timedelta(days=3)).isoformat(timespec="seconds")
    made = make(alice, agents=["echo"], expiresAt=until, limits={"sessions": 3})
    assert keys.is_good(made["key"])
    path = f"/keys/{made['id']}"
    shown = api(alice).get(path).json()
    assert "key" not in shown
    assert (shown["agents"], shown["limits"]["sessions"], shown["limits"]["turnsAtOnce"]) == (["echo"], 3, None)
    assert shown in api(alice).get("/keys?state=active").json()["keys"]
    changed = api(alice).request("PATCH", path, {"limits": {"turnsPerMinute": 5}}).json()
    assert (changed["limits"]["sessions"], changed["limits"]["turnsPerMinute"]) == (3, 5)
    rotated = api(alice).post(f"{path}/rotate", {"overlapSeconds": 60}).json()
    assert keys.is_good(rotated["key"])
    assert rotated["limits"] == changed["limits"]
    assert api(alice).delete(path).status_code == 204
    assert not keys.is_good(made["key"])
    assert api(alice).get(path).json()["state"] == "revoked"
    tenant = ApiKey.objects.get(pk=made["id"]).tenant
    records = AuditRecord.objects.filter(tenant=tenant, actor=f"key:{alice.key[:11] if alice.key else ''}").order_by("pk")
    found = [
        action for action in records.values_list("action", flat=True) if action.startswith("key_") and "address" not in action
    ]
    assert found == ["key_issued", "key_changed", "key_rotated", "key_issued", "key_revoked"]


def test_a_key_that_expires_makes_and_rotates_only_keys_that_end_no_later(alice: Person) -> None:
    ends = datetime.now(UTC) + timedelta(days=3)
    raw = make(alice, scopes=["*"], expiresAt=ends.isoformat(timespec="seconds"))
    manager, later, sooner = Person(raw["key"]), (ends + timedelta(days=1)).isoformat(), (ends - timedelta(days=1)).isoformat()
    body = {"name": "more", "scopes": ["meta:read"]}
    for expires in ({}, {"expiresAt": None}, {"expiresAt": later}):
        assert "no later than itself" in problem(api(manager).post("/keys", {**body, **expires}), 409)["detail"]
    made = make(manager, expiresAt=sooner)
    for_ever = make(alice)
    for key in (for_ever, raw):
        problem(api(manager).post(f"/keys/{key['id']}/rotate"), 409)
    assert api(manager).post(f"/keys/{made['id']}/rotate").status_code == 200


def test_a_key_never_makes_one_that_may_do_more(alice: Person) -> None:
    manager = Person(key_of("alice", scopes=["keys", "meta:read"]))
    assert make(manager, scopes=["meta:read"])["scopes"] == ["meta:read"]
    for scope in ("sessions:read", "*"):
        assert scope in problem(api(manager).post("/keys", {"name": "more", "scopes": [scope]}), 403)["detail"]


def test_a_key_touches_only_keys_that_may_do_no_more_than_itself(alice: Person) -> None:
    manager = Person(key_of("alice", scopes=["keys", "meta:read"]))
    stronger, weaker = make(alice, scopes=["sessions:write"]), make(alice, scopes=["meta:read"])
    for method, path, body in (("POST", "/rotate", None), ("PATCH", "", {"limits": {"turnsPerMinute": 0}}), ("DELETE", "", None)):
        refused = problem(api(manager).request(method, f"/keys/{stronger['id']}{path}", body), 403)
        assert "sessions:write: a key manages only keys that may do no more than itself" in refused["detail"]
        assert api(manager).request(method, f"/keys/{weaker['id']}{path}", body).status_code in (200, 204)
    assert keys.is_good(stronger["key"])
    assert api(manager).get(f"/keys/{stronger['id']}").json()["limits"]["turnsPerMinute"] is None


def test_limited_keys_tokens_and_other_scopes_manage_nothing(alice: Person) -> None:
    assert "keys" in problem(api(Person(key_of("alice", scopes=["sessions:write"]))).get("/keys"), 403)["detail"]
    limited = Person(key_of("alice", scopes=["keys"], allowed=["pilot"]))
    problem(api(limited).get("/keys"), 409)
    with_limits = key_of("alice", scopes=["keys"])
    row = ApiKey.objects.get(digest=keys.digest_of(with_limits))
    keys.set_limits(row, Limits(sessions=1), actor="x")
    problem(api(Person(with_limits)).post("/keys", {"name": "free", "scopes": ["keys"]}), 409)
    assert api(Person(minted(alice, alice.create())["token"])).get("/keys").status_code in (403, 409)


def test_keys_of_another_tenant_do_not_exist(alice: Person, bob: Person) -> None:
    made = make(bob)
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/rotate")):
        problem(api(alice).request(method, f"/keys/{made['id']}{path}", {"limits": {}} if method == "PATCH" else None), 404)
    problem(api(alice).get("/keys/none"), 404)
    assert made["id"] not in [each["id"] for each in api(alice).get("/keys").json()["keys"]]
    assert keys.is_good(made["key"])


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"name": " "}, "/name"),
        ({"scopes": ["root"]}, "/scopes"),
        ({"scopes": []}, "/scopes"),
        ({"agents": []}, "/agents"),
        ({"expiresAt": "tomorrow"}, "/expiresAt"),
        ({"expiresAt": "2031-01-01T00:00:00"}, "/expiresAt"),
        ({"expiresAt": "2001-01-01T00:00:00Z"}, "/expiresAt"),
        ({"limits": {"sessions": -1}}, "/limits/sessions"),
    ],
)
def test_a_wrong_member_is_named(alice: Person, wrong: dict[str, Any], pointer: str) -> None:
    answer = api(alice).post("/keys", {"name": "made", "scopes": ["meta:read"], **wrong})
    problem(answer, 422)
    assert pointers(answer) == {pointer}


def test_use_is_reported_by_the_groups_that_are_asked_for(alice: Person, bob: Person) -> None:
    tenants = {slug: Tenant.objects.get(slug=slug).pk for slug in ("alice", "bob")}
    for slug, agent, model in (("alice", "echo", "m1"), ("alice", "pilot", "python:secret:agent"), ("bob", "echo", "m1")):
        ModelUse.objects.create(
            tenant_id=tenants[slug], day=usage_entries.today(), session="s", agent=agent, model=model, purpose="turn",
            calls=1, input_tokens=10, output_tokens=2, cache_read_tokens=0, cost_nano=None if agent == "pilot" else 2 * 10**9,
        )  # fmt: skip
    found = api(alice).get("/use?by=agent,model").json()
    assert [(line["agent"], line["model"], line["inputTokens"], line["cost"]) for line in found["lines"]] == [
        ("echo", "m1", 10, "2.000000000"),
        ("pilot", "python", 10, None),
    ]
    assert {limit["name"] for limit in found["limits"]} >= {"tokens_per_day", "sessions"}
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for slug, turns in (("alice", 3), ("bob", 9)):
        TurnFigures.objects.create(
            width=HOUR, at=hour, tenant_id=tenants[slug], key_id=1, agent="echo", turns=turns, errors=1,
            outcomes="{}", causes="{}", first="{}", took="{}",
        )  # fmt: skip
    assert api(alice).get("/use").json()["turns"] == [{"day": hour.date().isoformat(), "ended": 3, "errors": 1}]
    assert api(alice).get("/use?from=2001-01-01&to=2001-01-02").json()["lines"] == []
    problem(api(alice).get("/use?by=tenant"), 400)
    problem(api(alice).get("/use?from=yesterday"), 400)
    problem(api(alice).get("/use?from=2001-01-01"), 422)
    problem(api(Person(key_of("alice", scopes=["sessions:read"]))).get("/use"), 403)
    problem(api(Person(key_of("alice", scopes=["use"], allowed=["pilot"]))).get("/use"), 409)


def test_a_key_that_would_expire_after_the_last_year_is_refused(alice: Person) -> None:
    body = {"name": "x", "scopes": ["meta:read"], "expiresAt": "9999-12-31T23:59:59-14:00"}
    assert pointers(api(alice).post("/keys", body)) == {"/expiresAt"}


def test_a_key_that_expires_at_the_end_of_the_last_year_is_rotated(alice: Person) -> None:
    path = f"/keys/{make(alice, expiresAt='9999-12-31T23:59:59Z')['id']}"
    ApiKey.objects.update(created_at=datetime.now(UTC) - timedelta(days=1))
    assert api(alice).post(f"{path}/rotate").json()["expiresAt"] == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("seconds", [-1, 2_592_001, 10**12, 10**20])
def test_an_overlap_of_a_rotation_is_at_most_30_days(alice: Person, seconds: int) -> None:
    made = make(alice)
    answer = api(alice).post(f"/keys/{made['id']}/rotate", {"overlapSeconds": seconds})
    assert pointers(answer) == {"/overlapSeconds"}
    assert api(alice).get(f"/keys/{made['id']}").json()["expiresAt"] is None
