"""Sessions over HTTP: create, read, list, delete, and their histories."""

from __future__ import annotations

import json
import logging
from typing import Any

import hypothesis
import pytest
from django.db import connection
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.core.base import byte_budget
from sessions_app.core.records import stored_messages
from sessions_app.models import Session
from tests.faces.aap.conftest import HELLO, READ_LOG, Person, pointers, problem

CALL = {"type": "tool_use", "toolCallId": "k1", "name": "read_log", "input": {"z": 2**70, "a": 1.5}}


@pytest.mark.rule("A1", "A6")
@pytest.mark.parametrize("path", ["", "/", "/nope", "/meta/", "/sessions/", "/session", "/sessions/x/nope", "/sessions/x/turns/"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_path_that_does_not_exist_is_404(alice: Person, method: str, path: str) -> None:
    problem(alice.request(method, path), 404)


@pytest.mark.rule("A1", "A6")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/meta", "GET, HEAD"),
        ("PUT", "/sessions", "GET, HEAD, POST"),
        ("PATCH", "/sessions/x", "GET, HEAD, DELETE"),
        ("GET", "/sessions/x/turns", "POST"),
        ("DELETE", "/sessions/x/history", "GET, HEAD"),
        ("BREW", "/sessions/x/cancel", "POST"),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(alice: Person, method: str, path: str, allowed: str) -> None:
    response = alice.request(method, path)
    problem(response, 405)
    assert set(response["Allow"].split(", ")) == set(allowed.split(", "))


@pytest.mark.rule("A1", "A5", "A8")
def test_reading_takes_head_any_accept_and_a_content_type_without_a_body(alice: Person) -> None:
    session = alice.create()
    for path in ("/meta", "/sessions", f"/sessions/{session}", f"/sessions/{session}/history?type=full"):
        head = alice.request("HEAD", path, Accept="text/event-stream")
        assert (head.status_code, head["Content-Type"], head.content) == (200, "application/json", b"")
        assert alice.get(path, Accept="application/xml").status_code == 200


@pytest.mark.rule("A4", "A93")
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"  ", {}, 400),
        (b"{", {}, 400),
        (b'{"agent": {"name": "\xff"}}', {}, 400),
        (b'{"agent": {"name": "pilot"}}', {"Content-Type": "text/plain"}, 415),
        (b'{"agent": {"name": "pilot"}}', {"Content-Type": ""}, 415),
        (b'{"agent": {"name": "pilot"}}', {"Content-Encoding": "gzip"}, 415),
        (
            b'{"agent": {"name": "pilot"}}',
            {"Content-Type": "Application/JSON ; charset=utf-8", "Content-Encoding": "identity"},
            201,
        ),
        (b"[]", {}, 422),
        (b'{"agent": {"name": "pilot"}, "x": ' + b"[" * 100 + b"]" * 100 + b"}", {}, 422),
    ],
)
def test_bodies_are_judged_by_type_then_form(alice: Person, body: bytes, headers: dict[str, str], status: int) -> None:
    response = alice.post("/sessions", body, **headers)
    if status == 201:
        assert response.status_code == 201
    else:
        problem(response, status)
        assert not Session.objects.exists()


@pytest.mark.rule("A4", "A93")
def test_a_body_over_the_limit_is_413(alice: Person, settings: Any) -> None:
    settings.AGENTHOST_MAX_BODY_BYTES = 200
    body = exact_json.dumps({"agent": {"name": "pilot"}, "x": ""}).encode()
    fill = b"y" * (201 - len(body))
    problem(alice.post("/sessions", body.replace(b'"x":""', b'"x":"' + fill + b'"')), 413)
    assert alice.post("/sessions", body.replace(b'"x":""', b'"x":"' + fill[1:] + b'"')).status_code == 201


@pytest.mark.rule("A9", "A24", "A122")
def test_a_session_is_created_and_found_at_its_location(alice: Person) -> None:
    response = alice.post("/sessions", {"agent": {"name": "pilot"}, "stream": "delta"})
    assert response.status_code == 201
    session = response.json()["sessionId"]
    assert response.json() == {"sessionId": session}
    assert session.replace("_", "").replace("-", "").isalnum()
    assert session.isascii()
    assert response["Location"] == f"/aap/v3/sessions/{session}"
    assert alice.session(session) == {"sessionId": session, "agent": {"name": "pilot"}}
    assert alice.history(session) == []


@pytest.mark.rule("A122")
def test_a_request_id_comes_back_in_header_and_problem(alice: Person) -> None:
    response = alice.get("/sessions/sess_x", **{"X-Request-Id": "mine-1"})
    assert problem(response, 404)["instance"] == response["X-Request-Id"] == "mine-1"


@pytest.mark.rule("A7", "A28", "A80", "A81", "A82", "A83", "A88", "A90", "A96")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"agent": {"name": "nobody"}}, {"/agent/name"}),
        ({"agent": {"name": "pilot", "tools": [{"name": "abacus"}]}}, {"/agent/tools/0/name"}),
        ({"agent": {"name": "pilot", "tools": [{"name": "current_time"}]}}, {"/agent/tools/0/name"}),
        (
            {"agent": {"name": "pilot", "options": {"units": "cubits", "x/y": ""}}},
            {"/agent/options/units", "/agent/options/x~1y"},
        ),
        ({"agent": {"name": "bare"}, "tools": [READ_LOG]}, {"/tools"}),
        ({"agent": {"name": "pilot"}, "tools": [READ_LOG, READ_LOG]}, {"/tools/1/name"}),
        ({"agent": {"name": "pilot"}, "tools": [{**READ_LOG, "name": "current_time"}]}, {"/tools/0/name"}),
        (
            {"agent": {"name": "pilot", "tools": [{"name": "calculator"}]}, "tools": [{**READ_LOG, "name": "calculator"}]},
            {"/tools/0/name"},
        ),
        (
            {
                "agent": {"name": "bare"},
                "messages": [{"role": "user", "content": [{"type": "image", "url": "https://example.org/a.png"}]}],
            },
            {"/messages/0/content/0"},
        ),
        (
            {"agent": {"name": "pilot"}, "messages": [{"role": "tool", "toolCallId": "x", "content": ""}]},
            {"/messages/0/toolCallId"},
        ),
        (
            {"agent": {"name": "pilot"}, "messages": [{"role": "tool_permission", "toolCallId": "x", "granted": True}]},
            {"/messages/0/role"},
        ),
        ({"agent": {"name": "pilot"}, "messages": [{"role": "user", "content": "a\0"}]}, {"/messages/0/content"}),
        ({"agent": {"name": "pilot"}, "x": {"y": ["\ud800"]}}, {"/x/y/0"}),
    ],
)
def test_a_creation_that_breaks_a_rule_is_refused_and_leaves_nothing(
    alice: Person, body: dict[str, Any], expected: set[str]
) -> None:
    assert pointers(alice.post("/sessions", body)) == expected
    assert alice.get("/sessions").json() == {"sessions": []}


@pytest.mark.rule("A82")
def test_a_client_may_have_a_tool_of_a_disabled_server_tools_name(alice: Person) -> None:
    alice.create(tools=[{**READ_LOG, "name": "calculator"}])


@pytest.mark.rule("A10", "A11", "A27", "A29", "A37", "A97")
def test_messages_and_settings_come_back_exactly(alice: Person) -> None:
    seed = [
        {"role": "system", "content": " \u2028 be kind\n"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "שלום 👩‍👩‍👧 e\u0301"}, {"type": "image", "url": "https://example.org/a.png"}],
        },
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "…"}, CALL]},
        {"role": "tool", "toolCallId": "k1", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": "plain"},
    ]
    config = {"tools": [{"trust": True, "name": "calculator"}], "options": {"units": "imperial", "tone": ""}}
    session = alice.create(agent_config=config, messages=seed, tools=[READ_LOG])
    raw = alice.get(f"/sessions/{session}/history?type=full").content
    assert raw.decode() == exact_json.dumps({"history": {"full": seed}})
    shown = {"sessionId": session, "agent": {"name": "pilot", **config}, "tools": [READ_LOG]}
    assert alice.get(f"/sessions/{session}").content.decode() == exact_json.dumps(shown)
    assert alice.get("/sessions").content.decode() == exact_json.dumps({"sessions": [shown]})


@pytest.mark.rule("A22", "A30", "A69")
def test_a_secret_is_nowhere_to_be_seen(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session = alice.create(agent_config={"options": {"model_key": "sk-aalto-1"}})
    masked = {"name": "pilot", "options": {"model_key": "***"}}
    assert alice.session(session)["agent"] == masked
    assert alice.get("/sessions").json()["sessions"][0]["agent"] == masked
    refused = alice.turn(session, agent={"options": {"model_key": "sk-aalto-2", "units": "sk-aalto-3"}})
    assert pointers(refused) == {"/agent/options/units"}
    everything = [refused.content, alice.get("/meta").content, caplog.text.encode()]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f"select * from {connection.ops.quote_name(table)}")
            everything += [
                bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                for row in cursor.fetchall()
                for value in row
            ]
    assert not [text for text in everything if b"sk-aalto" in text or b"sk-of-the-operator" in text]
    empty = alice.create(agent_config={"options": {"model_key": ""}})
    assert alice.session(empty)["agent"] == {"name": "pilot"}


@pytest.mark.rule("A31", "A32")
def test_a_deleted_session_is_gone_from_everywhere(alice: Person) -> None:
    session = alice.create(messages=[HELLO])
    response = alice.delete(f"/sessions/{session}")
    assert (response.status_code, response.content, response.get("Content-Type")) == (204, b"", None)
    problem(alice.get(f"/sessions/{session}"), 404)
    problem(alice.get(f"/sessions/{session}/history?type=full"), 404)
    problem(alice.get(f"/sessions/{session}/events/stream?stream=delta"), 404)
    problem(alice.turn(session), 404)
    problem(alice.delete(f"/sessions/{session}"), 404)
    assert alice.get("/sessions").json() == {"sessions": []}


# --- lists ---


def pages_of(person: Person) -> list[list[str]]:
    pages: list[list[str]] = []
    after = ""
    while True:
        body = person.get(f"/sessions{after}").json()
        pages.append([session["sessionId"] for session in body["sessions"]])
        if "next" not in body:
            return pages
        assert set(body) == {"sessions", "next"}
        after = f"?after={body['next']}&unknown=1"


@pytest.mark.rule("A33", "A34")
def test_fifty_sessions_are_one_page_and_the_newest_comes_first(alice: Person) -> None:
    made = [alice.create() for _ in range(50)]
    assert pages_of(alice) == [made[::-1]]
    made.append(alice.create())
    assert pages_of(alice) == [made[:0:-1], made[:1]]


@pytest.mark.rule("A35")
def test_a_walk_over_the_pages_shows_each_lasting_session_exactly_once(alice: Person) -> None:
    made = [alice.create() for _ in range(60)]
    first = alice.get("/sessions").json()
    page = [session["sessionId"] for session in first["sessions"]]
    alice.delete(f"/sessions/{page[-1]}")
    alice.create()
    rest = [session["sessionId"] for session in alice.get(f"/sessions?after={first['next']}").json()["sessions"]]
    assert page + rest == made[::-1]


@pytest.mark.rule("A42")
@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "%00", "ä", "x" * 5000, "MTc2MzQ1Ng"])
def test_an_unknown_cursor_is_400(alice: Person, cursor: str) -> None:
    alice.create()
    problem(alice.get(f"/sessions?after={cursor}"), 400)


# --- histories ---


@pytest.mark.rule("A36", "A46", "A47")
def test_a_history_needs_a_kind_that_the_agent_offers(alice: Person) -> None:
    session, bare = alice.create(messages=[HELLO]), alice.create("bare", messages=[HELLO])
    assert alice.history(session, "compacted") == alice.history(session, "full") == [HELLO]
    assert alice.history(bare) == [HELLO]
    problem(alice.get(f"/sessions/{bare}/history?type=compacted"), 404)
    for query in ("", "?type=", "?type=FULL", "?type=all", "?kind=full"):
        problem(alice.get(f"/sessions/{session}/history{query}"), 400)


# --- whatever comes ---

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=6,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.fixed_dictionaries(
            {"name": st.just("pilot") | json_values}, optional={"tools": json_values, "options": json_values}
        )
        | json_values,
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "tool", "tool_permission", "assistant", "system"])},
                optional={"content": json_values, "toolCallId": json_values, "granted": json_values},
            ),
            max_size=2,
        )
        | json_values,
        "tools": json_values,
        "stream": st.sampled_from(["delta", "none"]) | json_values,
        "reason": json_values,
    },
)


@pytest.mark.rule("A4")
@hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
@hypothesis.given(body=bodies | json_values, path=st.sampled_from(["", "/{id}/turns", "/{id}/cancel"]))
def test_no_body_ever_breaks_the_server(alice: Person, body: Any, path: str) -> None:
    session = alice.create()
    response = alice.post("/sessions" + path.format(id=session), json.dumps(body).encode())
    assert response.status_code < 500
    if response.status_code >= 400:
        problem(response, response.status_code)


@pytest.mark.rule("A37", "A100")
def test_a_long_history_is_not_read_while_other_answers_take_all_room(alice: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = [{"role": "user", "content": "x" * 1000}]
    session = alice.create(messages=seed)
    tenant = Session.objects.get(public_id=session).tenant_id
    path = f"/sessions/{session}/history?type=full"
    monkeypatch.setattr(byte_budget, "LEAST_RESERVED", 500)
    read, was_read = stored_messages.read, []

    def noted(*arguments: Any) -> Any:
        was_read.append(byte_budget.ANSWERS.held)
        return read(*arguments)

    monkeypatch.setattr(stored_messages, "read", noted)
    most = byte_budget.ANSWERS._most()
    assert byte_budget.ANSWERS.take(tenant, most, alone=True)
    try:
        with byte_budget.answering(tenant):
            refused = alice.get(path)
        problem(refused, 503)
        assert refused["Retry-After"] == "2"
        assert not was_read
    finally:
        byte_budget.ANSWERS.give_back(tenant, most)
    with byte_budget.answering(tenant):
        assert alice.get(path).json() == {"history": {"full": seed}}
    assert was_read[0] >= 1000
    assert byte_budget.ANSWERS.held == 0
