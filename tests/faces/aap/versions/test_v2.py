"""Version 2: its differences from version 3, and creating a session with its first turn."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.aap import positions
from sessions_app.aap.versions import v2, v3
from sessions_app.aap.versions.v2 import V2
from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput
from sessions_app.core.records import idempotency
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.turns import Overrides, tasks
from sessions_app.models import IdempotencyRecord, Measure, Message, Session, Turn
from tests.faces.aap.conftest import (
    BARE,
    HELLO,
    PILOT,
    Person,
    events,
    key_of,
    pointers,
    positioned,
    problem,
    whole,
)

SCHEMA = {"type": "object", "zeta": 1, "alpha": 2, "parameters": {"type": "string"}}
NEW_WORDS = {"name": "read_log", "parameters": SCHEMA, "description": ""}
OLD_WORDS = {"name": "read_log", "inputSchema": SCHEMA, "description": ""}
CANCELLED = [("turn_start", {}), ("turn_stop", {"stopReason": "end_turn"})]


def calling(*ids: str, name: str = "read_log") -> list[dict[str, Any]]:
    blocks = [{"type": "tool_use", "toolCallId": call, "name": name, "input": {}} for call in ids]
    return [HELLO, {"role": "assistant", "content": blocks}]


def opening(*messages: Any, agent: str = "pilot", **more: Any) -> dict[str, Any]:
    return {"agent": {"name": agent}, "messages": list(messages) or [HELLO], **more}


@pytest.fixture
def old(alice: Person) -> Person:
    """Alice, with an application of version 2."""
    return Person(alice.key, "/aap/v2")


def opened(person: Person, *messages: Any, **more: Any) -> str:
    """A session whose first turn waits for a worker."""
    response = person.request("PUT", "/session", opening(*messages, **more))
    assert response.status_code == 201
    response.close()
    return str(Session.objects.order_by("-pk").values_list("public_id", flat=True)[0])


# --- conversions ---


@pytest.mark.rule("A102", "A11")
def test_a_request_is_converted_with_its_schemas_renamed_in_place() -> None:
    body = {"messages": [], "tools": [OLD_WORDS], "agent": {"tools": [{"name": "x"}]}}
    converted = V2().to_v3(body)
    assert json.dumps(converted) == json.dumps({**body, "tools": [NEW_WORDS]})
    assert body["tools"] == [OLD_WORDS], "what was given is not changed"


TOOL = st.dictionaries(
    st.sampled_from(["name", "title", "description", "inputSchema", "other"]), st.integers() | st.just({"a": 1})
)


@pytest.mark.rule("A102", "A11")
@given(st.lists(TOOL))
def test_tools_keep_their_keys_and_order_through_both_conversions(tools: list[dict[str, Any]]) -> None:
    assert json.dumps(V2().session(V2().to_v3({"tools": tools}))) == json.dumps({"tools": tools})


@pytest.mark.rule("A102")
def test_the_new_name_of_a_schema_is_ignored_in_an_old_request() -> None:
    assert V2().to_v3({"tools": [NEW_WORDS]}) == {"tools": [{"name": "read_log", "description": ""}]}
    assert V2().to_v3({"tools": [{**NEW_WORDS, "inputSchema": {}}]})["tools"][0]["parameters"] == {}


@pytest.mark.rule("A4")
@pytest.mark.parametrize("tools", [None, 1, "x", {}, [None, 1, "x", []], []])
def test_tools_of_any_wrong_shape_are_left_for_version_3_to_refuse(tools: Any) -> None:
    assert V2().to_v3({"tools": tools}) == {"tools": tools}
    assert V2().to_v3({}) == {}


@pytest.mark.rule("A101", "A102")
def test_answers_are_converted_with_their_schemas_renamed() -> None:
    session = {"sessionId": "s", "agent": {"name": "pilot", "tools": [{"name": "x"}]}, "tools": [NEW_WORDS]}
    shown = {**session, "tools": [OLD_WORDS]}
    assert json.dumps(V2().session(session)) == json.dumps(shown)
    assert V2().session({"sessionId": "s"}) == {"sessionId": "s"}
    assert V2().sessions({"sessions": [session], "next": "n"}) == {"sessions": [shown], "next": "n"}
    meta = V2().meta(v3.meta([PILOT, BARE]))
    assert meta["version"] == 2
    assert meta["agents"][0]["tools"][0] == {
        "name": "calculator",
        "description": "Reckons",
        "inputSchema": {"type": "object", "properties": {}},
    }
    assert meta["agents"][1] == v3.meta([BARE])["agents"][0]


@pytest.mark.rule("A102", "A6")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("tools", 0, "parameters"), ("tools", 0, "inputSchema")),
        (("tools", 1, "parameters", "parameters"), ("tools", 1, "inputSchema", "parameters")),
        (("tools", 0, "name"), ("tools", 0, "name")),
        (("tools",), ("tools",)),
        (("agent", "tools", 0, "name"), ("agent", "tools", 0, "name")),
        (("messages", 0, "parameters"), ("messages", 0, "parameters")),
        ((), ()),
    ],
)
def test_fault_paths_are_those_of_the_clients_version(theirs: tuple[str | int, ...], ours: tuple[str | int, ...]) -> None:
    assert V2().fault_path(theirs) == ours


@pytest.mark.rule("A103")
def test_an_opening_is_a_creation_and_a_turn() -> None:
    body = {
        "agent": {"name": "pilot", "options": {"tone": "dry"}, "tools": [{"name": "calculator"}]},
        "messages": [{"role": "system", "content": "s"}, HELLO, {"role": "user", "content": "now"}],
        "tools": [NEW_WORDS],
        "stream": "delta",
    }
    found = v2.opening(body, {"pilot": PILOT}.__getitem__)
    assert found.creation == SessionRequest(
        "pilot", [{"name": "calculator"}], {"tone": "dry"}, [NEW_WORDS], [{"role": "system", "content": "s"}, HELLO]
    )
    assert found.turn == v3.TurnRequest("delta", "now", [], Overrides())


@pytest.mark.rule("A103", "A6")
def test_all_faults_of_an_opening_are_reported_at_once_with_their_paths() -> None:
    body = {
        "agent": {"name": "pilot", "tools": [{}]},
        "messages": [{"role": "robot"}, HELLO, {"role": "user", "content": [{"type": "image", "url": "ftp://x"}]}],
        "tools": [{"name": "x y"}],
        "stream": "fast",
    }
    with pytest.raises(InvalidInput) as refusal:
        v2.opening(body, {"pilot": PILOT}.__getitem__)
    assert {fault.path for fault in refusal.value.faults} == {
        ("agent", "tools", 0, "name"),
        ("messages", 0, "role"),
        ("messages", 2, "content", 0),
        ("tools", 0, "name"),
        ("tools", 0, "description"),
        ("tools", 0, "parameters"),
        ("stream",),
    }


# --- refusals ---


@pytest.mark.rule("A103", "A102", "A7", "A28", "A80", "A81", "A82", "A83", "A88", "A89", "A90")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, {"/agent", "/messages"}),
        ({"agent": {"name": "pilot"}}, {"/messages"}),
        ({"agent": {"name": "pilot"}, "messages": "hi"}, {"/messages"}),
        ({"agent": {"name": "pilot"}, "messages": []}, {"/messages"}),
        ({"agent": {"name": "pilot"}, "messages": ["hi"]}, {"/messages/0"}),
        ({"messages": [HELLO]}, {"/agent"}),
        (opening(agent="nobody"), {"/agent/name"}),
        (opening(HELLO, {"role": "assistant", "content": "x"}), {"/messages/1/role"}),
        (opening(*calling("k1"), {"role": "tool", "toolCallId": "k1", "content": "x"}), {"/messages/2/role"}),
        (opening({"role": "tool_permission", "toolCallId": "k1", "granted": True}), {"/messages/0/role"}),
        (opening({"role": "tool_permission", "toolCallId": "k1", "granted": True}, HELLO), {"/messages/0/role"}),
        (opening({"role": "tool", "toolCallId": "k9", "content": "x"}, HELLO), {"/messages/0/toolCallId"}),
        (opening(HELLO, {"role": "user", "content": " "}), {"/messages/1/content"}),
        (opening(HELLO, {"role": "user"}), {"/messages/1/content"}),
        (opening(HELLO, HELLO, {"role": "user", "content": [{"type": "sound"}]}), {"/messages/2/content/0/type"}),
        (opening(stream="fast"), {"/stream"}),
        (opening(agent="bare"), {"/stream"}),
        (opening(agent="bare", stream="delta", tools=[OLD_WORDS]), {"/tools"}),
        (opening(tools=[NEW_WORDS]), {"/tools/0/inputSchema"}),
        (opening(tools=[{**OLD_WORDS, "inputSchema": []}]), {"/tools/0/inputSchema"}),
        (opening(tools=[{**OLD_WORDS, "name": "current_time"}]), {"/tools/0/name"}),
    ],
)
def test_a_creation_that_breaks_a_rule_is_refused_and_makes_no_session(old: Person, body: Any, expected: set[str]) -> None:
    assert pointers(old.request("PUT", "/session", body)) == expected
    assert not Session.objects.exists()
    assert not Turn.objects.exists()


@pytest.mark.rule("A102", "A6")
def test_a_missing_schema_is_reported_under_its_old_name(old: Person) -> None:
    session = opened(old)
    old.request("POST", f"/session/{session}/cancel")
    assert pointers(old.post(f"/session/{session}", {"messages": [HELLO], "tools": [NEW_WORDS]})) == {"/tools/0/inputSchema"}


@pytest.mark.rule("A96", "A102")
def test_an_unstorable_character_is_reported_at_its_path_in_the_clients_version(old: Person) -> None:
    body = opening(tools=[{**OLD_WORDS, "parameters": {"x": "\0"}}])
    assert pointers(old.request("PUT", "/session", body)) == {"/tools/0/parameters/x"}


# --- addresses ---


@pytest.mark.rule("A101", "A1")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/session", {"PUT"}),
        ("GET", "/session", {"PUT"}),
        ("POST", "/sessions", {"GET", "HEAD"}),
        ("PUT", "/session/x", {"GET", "HEAD", "POST", "DELETE"}),
        ("POST", "/session/x/history", {"GET", "HEAD"}),
        ("POST", "/meta", {"GET", "HEAD"}),
        ("DELETE", "/session/x/cancel", {"POST"}),
    ],
)
def test_a_wrong_method_is_405_and_names_the_right_ones(old: Person, method: str, path: str, allowed: set[str]) -> None:
    response = old.request(method, path)
    problem(response, 405)
    assert {word.strip() for word in response["Allow"].split(",")} == allowed


@pytest.mark.rule("A101", "A1")
@pytest.mark.parametrize("path", ["", "/", "/session/x/turns", "/sessions/x", "/session/", "/session/x/history/", "/Meta"])
def test_paths_of_other_versions_and_none_are_404(old: Person, path: str) -> None:
    problem(old.get(path), 404)


@pytest.mark.rule("A2")
def test_a_creation_needs_a_key_that_may_write(alice: Person) -> None:
    reader = Person(key_of("reader", ["meta:read", "sessions:read"]), "/aap/v2")
    problem(reader.request("PUT", "/session", b"no json"), 403)
    nobody = Person(None, "/aap/v2")
    problem(nobody.request("PUT", "/session", opening()), 401)
    assert not Session.objects.exists()


# --- the creation that runs ---


@pytest.mark.rule("A104", "A54", "A122")
def test_a_stream_begins_with_session_start_and_each_event_has_a_position(old: Person) -> None:
    response = old.request("PUT", "/session", opening(stream="delta"))
    session = Session.objects.get()
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"
    assert response["X-Turn-Id"] == Turn.objects.get().public_id
    old.request("POST", f"/session/{session.public_id}/cancel")
    found = positioned(whole(response))
    assert [(name, data) for _, name, data in found] == [("session_start", {"sessionId": session.public_id}), *CANCELLED]
    key = positions.signing_key(settings.SECRET_KEY)
    places = [positions.read([key], session.public_id, position) for position, _, _ in found]
    assert places == sorted(set(places))


@pytest.mark.rule("A104", "A120")
def test_a_stream_is_joined_from_session_start_on_without_a_gap_or_a_repeat(old: Person) -> None:
    response = old.request("PUT", "/session", opening(stream="delta"))
    session = Session.objects.get().public_id
    old.request("POST", f"/session/{session}/cancel")
    first = positioned(whole(response))
    again = old.get(f"/session/{session}/events/stream?stream=delta", **{"Last-Event-ID": first[0][0]})
    assert positioned(whole(again)) == first[1:]


@pytest.mark.rule("A104", "A122")
def test_the_json_form_is_201_with_the_sessions_id_and_its_address(old: Person) -> None:
    response = old.request("PUT", "/session", opening())
    session = Session.objects.get().public_id
    assert response.status_code == 201
    assert response["Content-Type"] == "application/json"
    assert response["Location"] == f"/aap/v2/session/{session}"
    old.request("POST", f"/session/{session}/cancel")
    body = whole(response)
    assert json.loads(body) == {"sessionId": session, "stopReason": "end_turn", "messages": []}
    assert old.get(response["Location"].removeprefix("/aap/v2")).json()["sessionId"] == session


@pytest.mark.rule("A104")
def test_a_turns_answer_does_not_contain_the_session_id(old: Person) -> None:
    session = opened(old)
    old.request("POST", f"/session/{session}/cancel")
    streamed = old.post(f"/session/{session}", {"messages": [HELLO], "stream": "delta"})
    assert streamed.status_code == 200
    old.request("POST", f"/session/{session}/cancel")
    assert events(whole(streamed)) == CANCELLED
    whole_answer = old.post(f"/session/{session}", {"messages": [HELLO]})
    assert whole_answer.status_code == 200
    assert "Location" not in whole_answer
    old.request("POST", f"/session/{session}/cancel")
    assert json.loads(whole(whole_answer)) == {"stopReason": "end_turn", "messages": []}


@pytest.mark.rule("A103", "A76", "A90")
def test_calls_left_open_by_the_seed_are_closed_before_the_first_message(old: Person) -> None:
    closing = "Tool call denied: the user sent a new message instead"
    seed = calling("k1")
    calculating = {"type": "tool_use", "toolCallId": "k2", "name": "calculator", "input": {}}
    seed[-1]["content"].append(calculating)
    body = opening(*seed, {"role": "user", "content": "well?"}, stream="delta", tools=[OLD_WORDS])
    body["agent"]["tools"] = [{"name": "calculator"}]
    response = old.request("PUT", "/session", body)
    session = Session.objects.get().public_id
    old.request("POST", f"/session/{session}/cancel")
    # Of the client's own call nothing is said; it knows.
    assert events(whole(response))[1:] == [
        ("turn_start", {}),
        ("tool_result", {"toolCallId": "k2", "content": closing}),
        ("turn_stop", {"stopReason": "end_turn"}),
    ]
    history = old.get(f"/session/{session}/history?type=full").json()["history"]["full"]
    assert history == [
        *seed,
        {"role": "tool", "toolCallId": "k1", "content": closing},
        {"role": "tool", "toolCallId": "k2", "content": closing},
        {"role": "user", "content": "well?"},
    ]


@pytest.mark.rule("A98")
def test_a_creation_sent_twice_joins_the_first(old: Person) -> None:
    first = old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"})
    second = old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"})
    session = Session.objects.get().public_id
    assert first["X-Turn-Id"] == second["X-Turn-Id"]
    old.request("POST", f"/session/{session}/cancel")
    whole_first = whole(first)
    assert whole(second) == whole_first
    third = old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"})
    assert whole(third) == whole_first
    assert Session.objects.count() == Turn.objects.count() == Message.objects.count() == 1


@pytest.mark.rule("A98")
def test_a_creation_sent_twice_in_json_gets_the_same_answer(old: Person) -> None:
    first = old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"})
    session = Session.objects.get().public_id
    old.request("POST", f"/session/{session}/cancel")
    again = old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"})
    assert (again.status_code, again["Location"]) == (201, first["Location"])
    assert (
        json.loads(whole(again))
        == json.loads(whole(first))
        == {
            "sessionId": session,
            "stopReason": "end_turn",
            "messages": [],
        }
    )


@pytest.mark.rule("A98")
def test_a_creations_key_with_another_body_is_422_and_makes_nothing(old: Person) -> None:
    old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"}).close()
    problem(old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"}), 422)
    assert Session.objects.count() == 1


@pytest.mark.rule("A98", "A7")
def test_a_creation_that_was_refused_is_not_remembered(old: Person) -> None:
    problem(old.request("PUT", "/session", opening(stream="fast"), **{"Idempotency-Key": "k"}), 422)
    assert not IdempotencyRecord.objects.exists()
    old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"}).close()
    assert Session.objects.count() == 1


@pytest.mark.rule("A98", "A32")
def test_a_creation_repeated_after_its_session_was_deleted_is_404(old: Person) -> None:
    old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"}).close()
    old.delete(f"/session/{Session.objects.get().public_id}")
    problem(old.request("PUT", "/session", opening(), **{"Idempotency-Key": "k"}), 404)


@pytest.mark.rule("A98")
def test_two_at_once_with_one_key_make_one_session(old: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is being accepted when the first has just won."""
    recall = idempotency.find
    late: list[Any] = []

    def not_yet(*given: Any) -> Any:
        if not late:
            # Looked up nothing; then another request with the same key was accepted.
            late.append(None)
            late.append(old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"}))
            return None
        return recall(*given)

    monkeypatch.setattr(idempotency, "find", not_yet)
    second = old.request("PUT", "/session", opening(stream="delta"), **{"Idempotency-Key": "k"})
    session = Session.objects.get().public_id
    old.request("POST", f"/session/{session}/cancel")
    assert whole(second) == whole(late[1])
    assert Turn.objects.count() == 1


@pytest.mark.rule("A123")
def test_a_deadline_applies_to_the_first_turn_too(old: Person) -> None:
    response = old.request("PUT", "/session", opening(stream="delta"), **{"X-Turn-Deadline": "0.001"})
    until_overdue()
    assert events(whole(response))[-1] == ("turn_stop", {"stopReason": "error"})
    problem(old.request("PUT", "/session", opening(), **{"X-Turn-Deadline": "soon"}), 400)
    assert Session.objects.count() == 1


def until_overdue() -> None:
    """The deadline is by the database's clock, and there is no worker here to watch it."""
    for _ in range(10_000):
        if turns.stop_overdue():
            return
    raise AssertionError("the deadline never came")


@pytest.mark.rule("A7")
def test_a_tenant_that_may_start_no_turn_gets_no_session_either(old: Person, settings: Any) -> None:
    settings.AGENTHOST_QUOTAS = {**settings.AGENTHOST_QUOTAS, "turns_at_once": 1}
    opened(old)
    response = old.request("PUT", "/session", opening())
    problem(response, 429)
    assert int(response["Retry-After"]) > 0
    assert Session.objects.count() == Turn.objects.count() == 1


@pytest.mark.rule("A7")
def test_a_tenant_that_may_have_no_more_sessions_starts_no_turn_either(old: Person, settings: Any) -> None:
    settings.AGENTHOST_QUOTAS = {**settings.AGENTHOST_QUOTAS, "sessions": 1}
    opened(old)
    problem(old.request("PUT", "/session", opening()), 429)
    assert Session.objects.count() == Turn.objects.count() == 1


def test_bytes_of_a_creation_that_runs_are_all_counted(old: Person) -> None:
    session_id = opened(old, HELLO, HELLO, tools=[OLD_WORDS])
    session = Session.objects.get(public_id=session_id)
    counted = usage_entries.used(session.tenant_id, Measure.BYTES)
    assert counted == usage_entries.bytes_of_settings(session) + usage_entries.bytes_of_history(session)


def test_a_worker_is_woken_for_a_creation_that_runs(old: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(tasks, "wake", lambda _: woken.append(True))
    opened(old)
    assert woken == [True]


# --- all else is version 3's ---


@pytest.mark.rule("A106", "A29", "A102")
def test_a_session_shows_what_its_client_set(old: Person) -> None:
    body = opening(tools=[OLD_WORDS])
    body["agent"] |= {"tools": [{"name": "calculator", "trust": True}], "options": {"tone": "dry", "model_key": "sk-mine"}}
    old.request("PUT", "/session", body).close()
    session = Session.objects.get().public_id
    shown = {
        "sessionId": session,
        "agent": {
            "name": "pilot",
            "tools": [{"name": "calculator", "trust": True}],
            "options": {"tone": "dry", "model_key": "***"},
        },
        "tools": [OLD_WORDS],
    }
    assert old.get(f"/session/{session}").json() == shown
    assert list(old.get(f"/session/{session}").json()["tools"][0]) == list(OLD_WORDS)
    assert old.get("/sessions").json() == {"sessions": [shown]}


@pytest.mark.rule("A106", "A46", "A47", "A31")
def test_histories_are_refused_as_in_version_3(old: Person) -> None:
    old.request("PUT", "/session", opening(agent="bare", stream="delta")).close()
    session = Session.objects.get().public_id
    problem(old.get(f"/session/{session}/history?type=compacted"), 404)
    problem(old.get(f"/session/{session}/history?type=all"), 400)
    problem(old.get(f"/session/{session}/history"), 400)
    problem(old.get("/session/nothing/history?type=full"), 404)
    assert old.get(f"/session/{session}/history?type=full").json() == {"history": {"full": [HELLO]}}
