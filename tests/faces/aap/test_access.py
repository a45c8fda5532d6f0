"""Keys, scopes and the separation of tenants, at every endpoint."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from django.urls import URLResolver
from django.utils import timezone

from agents_app import registry
from sessions_app.aap import urls
from sessions_app.models import ApiKey, AuditRecord, Tenant
from tests.faces.aap.conftest import HELLO, PILOT, Person, key_of, positioned, problem, whole

SESSION_ENDPOINTS = [
    ("GET", ""),
    ("HEAD", ""),
    ("DELETE", ""),
    ("GET", "/history?type=full"),
    ("GET", "/history"),
    ("POST", "/turns"),
    ("GET", "/events/stream?stream=delta"),
    ("GET", "/events/stream"),
    ("POST", "/cancel"),
]
ENDPOINTS = [("GET", "/meta"), ("GET", "/sessions"), ("POST", "/sessions")] + [
    (method, f"/sessions/sess_x{path}") for method, path in SESSION_ENDPOINTS
]


@pytest.mark.rule("A2")
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_without_a_valid_key_every_endpoint_answers_401(alice: Person, method: str, path: str) -> None:
    for header in [{}, {"Authorization": f"Basic {alice.key}"}, {"Authorization": "Bearer ah_" + "x" * 43}]:
        response = Person(None).request(method, path, b"{broken", **header, **{"Content-Type": "text/plain"})
        assert response.status_code == 401
        assert response["WWW-Authenticate"] == "Bearer"
        if method != "HEAD":
            problem(response, 401)


@pytest.mark.rule("A2")
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_without_the_scope_every_endpoint_answers_403_before_it_looks_at_body_or_session(
    alice: Person, method: str, path: str
) -> None:
    needed = "meta:read" if path == "/meta" else "sessions:read" if method in ("GET", "HEAD") else "sessions:write"
    others = [scope for scope in ("meta:read", "sessions:read", "sessions:write") if scope != needed]
    poor = Person(key_of("alice", others))
    response = poor.request(method, path, b"{broken", **{"Content-Type": "text/plain"})
    assert response.status_code == 403
    if method != "HEAD":
        assert needed in problem(response, 403)["detail"]
    assert Person(key_of("alice", [needed])).request(method, path).status_code not in (401, 403)


def _routes() -> list[tuple[int, str, str]]:
    """Version, method and path of everything that is served below /aap."""
    found = []
    for version in urls.urlpatterns:
        if isinstance(version, URLResolver):
            number = int(str(version.pattern)[len("aap/v") : -1])
            for route in version.url_patterns:
                view = cast(Any, route.callback).cls
                methods = [name for name in view.http_method_names if hasattr(view, "get" if name == "head" else name)]
                path = "/" + str(route.pattern).replace("<str:session_id>", "{session}")
                found += [(number, name.upper(), path) for name in methods]
    return found


def test_all_three_versions_are_tested() -> None:
    assert {version for version, _, _ in _routes()} == {1, 2, 3}
    known = {(method, path.partition("?")[0].replace("sess_x", "{session}")) for method, path in ENDPOINTS}
    assert known <= {(method, path) for version, method, path in _routes() if version == 3}


@pytest.mark.rule("A2", "A101")
@pytest.mark.parametrize(("version", "method", "path"), _routes())
def test_every_route_of_every_version_asks_for_one_scope_and_shows_a_limited_key_no_session_of_others(
    alice: Person, version: int, method: str, path: str
) -> None:
    needed = "meta:read" if path == "/meta" else "sessions:read" if method in ("GET", "HEAD") else "sessions:write"
    others = [scope for scope in ("meta:read", "sessions:read", "sessions:write") if scope != needed]
    hidden = alice.create(messages=[HELLO])
    poor = Person(key_of("alice", others), f"/aap/v{version}")
    assert poor.request(method, path.format(session=hidden)).status_code == 403
    if "{session}" in path:
        limited = Person(key_of("alice", allowed=["bare"]), f"/aap/v{version}")
        answers = [limited.request(method, path.format(session=name)) for name in (hidden, "sess_never")]
        assert [answer.status_code for answer in answers] == [404, 404]
    assert alice.history(hidden) == [HELLO]


@pytest.mark.rule("A2")
def test_the_word_bearer_is_matched_in_any_case(alice: Person) -> None:
    for word in ("Bearer", "bearer", "BEARER"):
        assert Person(None).get("/meta", Authorization=f"{word} {alice.key}").status_code == 200


@pytest.mark.rule("A2")
def test_a_public_meta_needs_no_key_and_still_refuses_a_wrong_one(alice: Person, settings: Any) -> None:
    settings.AGENTHOST_PUBLIC_META = True
    assert Person(None).get("/meta").json() == alice.get("/meta").json()
    problem(Person("ah_" + "x" * 43).get("/meta"), 401)
    problem(Person(None).get("/sessions"), 401)


@pytest.mark.rule("A2")
def test_a_revoked_key_is_401(alice: Person) -> None:
    ApiKey.objects.update(revoked_at=timezone.now())
    problem(alice.get("/meta"), 401)


@pytest.mark.rule("A19", "A28")
def test_a_key_for_some_agents_sees_and_uses_only_those(alice: Person) -> None:
    limited = Person(key_of("alice", allowed=["bare"]))
    assert [agent["name"] for agent in limited.get("/meta").json()["agents"]] == ["bare"]
    assert [agent["name"] for agent in alice.get("/meta").json()["agents"]] == ["pilot", "bare"]
    problem(limited.post("/sessions", {"agent": {"name": "pilot"}}), 422)


@pytest.mark.rule("A3", "A31")
@pytest.mark.parametrize(("method", "path"), SESSION_ENDPOINTS)
def test_another_tenants_session_looks_like_none(alice: Person, bob: Person, method: str, path: str) -> None:
    theirs = alice.create(messages=[HELLO])
    body = {"messages": [HELLO]} if path == "/turns" else None
    answers = [bob.request(method, f"/sessions/{name}{path}", body) for name in (theirs, "sess_never", "%00", "x" * 300, "ä%ff")]
    assert {answer.status_code for answer in answers} == {404}
    if method != "HEAD":
        documents = [{**json.loads(answer.content), "instance": None} for answer in answers]
        assert documents == [documents[0]] * len(documents)
        assert documents[0]["detail"] == "There is no such session."
    assert alice.history(theirs) == [HELLO]


@pytest.mark.rule("A2", "A31")
@pytest.mark.parametrize(("method", "path"), SESSION_ENDPOINTS)
def test_a_session_of_an_agent_that_a_key_may_not_use_looks_like_none(alice: Person, method: str, path: str) -> None:
    limited = Person(key_of("alice", allowed=["bare"]))
    hidden = alice.create(messages=[HELLO])
    body = {"messages": [HELLO]} if path == "/turns" else None
    answers = [limited.request(method, f"/sessions/{name}{path}", body) for name in (hidden, "sess_never")]
    assert [answer.status_code for answer in answers] == [404, 404]
    if method != "HEAD":
        documents = [{**json.loads(answer.content), "instance": None} for answer in answers]
        assert documents[0] == documents[1]
    assert alice.history(hidden) == [HELLO]


@pytest.mark.rule("A2", "A101")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", ""), ("POST", "/cancel"), ("GET", "/events/stream?stream=delta")]
)
def test_in_older_versions_too(alice: Person, version: int, method: str, path: str) -> None:
    limited = Person(key_of("alice", allowed=["bare"]), f"/aap/v{version}")
    hidden = alice.create(messages=[HELLO])
    body = {"messages": [HELLO]} if (method, path) == ("POST", "") else None
    answers = [limited.request(method, f"/session/{name}{path}", body) for name in (hidden, "sess_never")]
    documents = [{**problem(answer, 404), "instance": None} for answer in answers]
    assert documents[0] == documents[1]
    assert limited.get("/sessions").json()["sessions"] == []


@pytest.mark.rule("A2", "A33", "A35")
def test_a_limited_key_lists_the_sessions_of_its_agents_in_whole_pages(alice: Person) -> None:
    limited = Person(key_of("alice", allowed=["bare"]))
    mine = [alice.create(("pilot", "bare")[number % 2]) for number in range(104)][1::2]
    first = limited.get("/sessions").json()
    second = limited.get(f"/sessions?after={first['next']}").json()
    listed = [[session["sessionId"] for session in page["sessions"]] for page in (first, second)]
    assert [len(page) for page in listed] == [50, 2]
    assert listed[0] + listed[1] == mine[::-1]
    assert "next" not in second


@pytest.mark.rule("A2", "A43")
def test_sessions_of_an_agent_that_its_tenant_lost_can_still_be_read(alice: Person) -> None:
    session = alice.create(messages=[HELLO])
    Tenant.objects.update(allowed_agents=["bare"])
    assert alice.history(session) == [HELLO]
    problem(alice.turn(session), 422)


@pytest.mark.rule("A51")
@pytest.mark.parametrize("body", [b"", b"{broken", b"[]", b"{}", b'{"messages": []}'])
def test_an_unknown_session_is_404_even_with_a_bad_body(alice: Person, body: bytes) -> None:
    problem(alice.post("/sessions/sess_never/turns", body, **{"Content-Type": "text/plain"}), 404)


@pytest.mark.rule("A3", "A42")
def test_a_tenant_sees_its_own_sessions_alone_and_cannot_use_anothers_cursor(alice: Person, bob: Person) -> None:
    for _ in range(51):
        alice.create()
    mine = bob.create()
    cursor = alice.get("/sessions").json()["next"]
    assert [session["sessionId"] for session in bob.get("/sessions").json()["sessions"]] == [mine]
    problem(bob.get(f"/sessions?after={cursor}"), 400)


@pytest.mark.rule("A3", "A120")
def test_a_position_of_another_session_is_unknown(alice: Person, bob: Person) -> None:
    theirs, mine = alice.create(), bob.create()
    stream = alice.turn(theirs)
    alice.cancel(theirs)
    position = positioned(whole(stream))[0][0]
    problem(bob.get(f"/sessions/{mine}/events/stream?stream=delta&after={position}"), 400)


@pytest.mark.rule("A43")
def test_a_session_whose_agent_was_removed_can_be_read_and_deleted_but_not_continued(alice: Person) -> None:
    session = alice.create(messages=[HELLO])
    with registry.use([]):
        assert alice.session(session)["agent"] == {"name": "pilot"}
        assert alice.history(session) == [HELLO]
        assert "errors" not in problem(alice.turn(session), 422)
        assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 204
        assert len(alice.get("/sessions").json()["sessions"]) == 1
        assert alice.delete(f"/sessions/{session}").status_code == 204
    with registry.use([PILOT]):
        problem(alice.get(f"/sessions/{session}"), 404)


# --- what of it is in the audit ---


def audited() -> list[tuple[str, str]]:
    rows = AuditRecord.objects.filter(action__in=["transcript_read", "session_deleted"]).order_by("pk")
    return list(rows.values_list("action", "target"))


def test_reading_a_history_and_deleting_a_session_are_in_the_audit_and_a_turns_own_stream_is_not(alice: Person) -> None:
    session = alice.create()
    assert alice.turn(session).status_code == 200
    assert alice.get(f"/sessions/{session}").status_code == 200
    alice.cancel(session)
    assert audited() == []
    alice.history(session)
    alice.history(session)
    assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code in (200, 204)
    assert alice.delete(f"/sessions/{session}").status_code == 204
    assert audited() == [("transcript_read", f"session {session}"), ("session_deleted", f"session {session}")]


def test_joining_a_stream_is_in_the_audit(alice: Person) -> None:
    session = alice.create()
    assert alice.get(f"/sessions/{session}/events/stream?stream=delta").status_code == 204
    assert audited() == [("transcript_read", f"session {session}")]


def test_a_history_that_was_refused_is_not_in_the_audit(alice: Person, bob: Person) -> None:
    session = alice.create()
    problem(bob.get(f"/sessions/{session}/history"), 404)
    problem(alice.get(f"/sessions/{session}/history?type=nonsense"), 400)
    assert audited() == []
