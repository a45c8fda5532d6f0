"""Turns over HTTP, without a worker: refusals, and how streams begin, are joined and end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from sessions_app.aap import positions
from sessions_app.core.log import journal
from sessions_app.models import Pruned, Session, Turn
from tests.faces.aap.conftest import HELLO, READ_LOG, Person, events, pointers, positioned, problem, whole

CANCELLED = [("turn_start", {}), ("turn_stop", {"stopReason": "end_turn"})]


def _calling(*ids: str, name: str = "read_log") -> list[dict[str, Any]]:
    blocks = [{"type": "tool_use", "toolCallId": call, "name": name, "input": {}} for call in ids]
    return [HELLO, {"role": "assistant", "content": blocks}]


def _result(call: str) -> dict[str, Any]:
    return {"role": "tool", "toolCallId": call, "content": "calm"}


def _permission(call: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool_permission", "toolCallId": call, "granted": True, **more}


# --- refusals ---


@pytest.mark.rule("A6", "A7", "A49", "A50", "A80", "A81", "A82", "A83", "A88", "A89")
@pytest.mark.parametrize(
    ("agent", "body", "expected"),
    [
        ("pilot", {"messages": []}, {"/messages"}),
        ("pilot", {"messages": [HELLO, HELLO]}, {"/messages"}),
        ("pilot", {"messages": [{"role": "system", "content": "x"}]}, {"/messages/0/role"}),
        ("pilot", {"messages": [HELLO], "stream": "fast"}, {"/stream"}),
        ("bare", {"messages": [HELLO]}, {"/stream"}),
        ("bare", {"messages": [HELLO], "stream": "message"}, {"/stream"}),
        ("bare", {"messages": [HELLO], "stream": "delta", "tools": [READ_LOG]}, {"/tools"}),
        ("pilot", {"messages": [HELLO], "agent": {"name": "bare"}}, {"/agent/name"}),
        ("pilot", {"messages": [HELLO], "agent": {"options": {"units": "cubits"}}}, {"/agent/options/units"}),
        ("pilot", {"messages": [HELLO], "agent": {"tools": [{"name": "abacus"}]}}, {"/agent/tools/0/name"}),
        ("pilot", {"messages": [HELLO], "tools": [{**READ_LOG, "name": "current_time"}]}, {"/tools/0/name"}),
        ("pilot", {"messages": [_result("k9")]}, {"/messages/0/toolCallId"}),
        ("pilot", {"messages": [_permission("k9", granted="yes")]}, {"/messages/0/granted"}),
    ],
)
def test_a_turn_that_breaks_a_rule_is_refused_and_changes_nothing(
    alice: Person, agent: str, body: dict[str, Any], expected: set[str]
) -> None:
    session = alice.create(agent, messages=[HELLO])
    before = alice.session(session)
    assert pointers(alice.post(f"/sessions/{session}/turns", body)) == expected
    assert alice.session(session) == before
    assert alice.history(session) == [HELLO]
    assert not Turn.objects.exists()


@pytest.mark.rule("A79")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([_result("k3")], {"/messages/0/toolCallId"}),
        ([_result("k1"), _result("k1")], {"/messages/1/toolCallId"}),
        ([_result("k2"), _permission("k2")], {"/messages/1/toolCallId"}),
        ([_result("k2"), _permission("k1")], {"/messages/1/granted"}),
    ],
)
def test_answers_to_calls_that_are_not_pending_are_refused_at_their_path(
    alice: Person, messages: list[dict[str, Any]], expected: set[str]
) -> None:
    session = alice.create(messages=_calling("k1", "k2"), tools=[READ_LOG])
    assert pointers(alice.turn(session, *messages)) == expected
    assert alice.history(session) == _calling("k1", "k2")


@pytest.mark.rule("A78")
def test_a_second_turn_while_one_runs_is_refused_with_409_and_changes_nothing(alice: Person) -> None:
    session = alice.create()
    first = alice.turn(session)
    problem(alice.turn(session, {"role": "user", "content": "me too"}, agent={"options": {"tone": "loud"}}), 409)
    assert alice.session(session)["agent"] == {"name": "pilot"}
    assert alice.history(session) == [HELLO]
    alice.cancel(session)
    assert events(whole(first)) == CANCELLED


# --- a turn's own stream ---


@pytest.mark.rule("A53", "A54", "A122")
def test_a_stream_has_its_content_type_and_begins_with_turn_start(alice: Person) -> None:
    session = alice.create()
    response = alice.turn(session)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream"
    assert "no-cache" in response["Cache-Control"]
    assert response["X-Accel-Buffering"] == "no"
    assert response["X-Turn-Id"] == Turn.objects.get().public_id
    alice.cancel(session)
    assert events(whole(response)) == CANCELLED


@pytest.mark.rule("A61", "A121", "A122")
def test_the_json_form_is_one_object_after_white_space(alice: Person) -> None:
    session = alice.create()
    response = alice.post(f"/sessions/{session}/turns", {"messages": [HELLO]})
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    assert response["X-Turn-Id"] == Turn.objects.get().public_id
    alice.cancel(session)
    assert json.loads(whole(response)) == {"stopReason": "end_turn", "messages": []}


@pytest.mark.rule("A76")
def test_calls_that_a_new_message_closes_are_shown_unless_they_are_the_clients(alice: Person) -> None:
    seed = [
        HELLO,
        {"role": "assistant", "content": [*_calling("k1")[1]["content"], *_calling("k2", name="calculator")[1]["content"]]},
    ]
    session = alice.create(messages=seed, tools=[READ_LOG], agent_config={"tools": [{"name": "calculator"}]})
    response = alice.turn(session)
    alice.cancel(session)
    closed = "Tool call denied: the user sent a new message instead"
    shown = ("tool_result", {"toolCallId": "k2", "content": closed})
    assert events(whole(response)) == [CANCELLED[0], shown, CANCELLED[1]]
    notes = [{"role": "tool", "toolCallId": call, "content": closed} for call in ("k1", "k2")]
    assert alice.history(session) == [*seed, *notes, HELLO]


@pytest.mark.rule("A63", "A64", "A65", "A71")
def test_denials_are_shown_before_anything_else_and_results_are_not(alice: Person) -> None:
    seed = _calling("k1", "k2", name="calculator")
    session = alice.create(messages=seed, agent_config={"tools": [{"name": "calculator"}]})
    response = alice.turn(session, _permission("k1", granted=False, reason="no"), _result("k2"))
    alice.cancel(session)
    shown = ("tool_result", {"toolCallId": "k1", "content": "Tool call denied: no"})
    assert events(whole(response)) == [CANCELLED[0], shown, CANCELLED[1]]


@pytest.mark.rule("A50", "A69")
def test_a_turns_settings_apply_to_later_turns(alice: Person) -> None:
    session = alice.create(agent_config={"options": {"tone": "formal", "model_key": "sk-1"}})
    config = {"tools": [{"name": "calculator", "trust": True}], "options": {"units": "imperial", "model_key": "***"}}
    response = alice.turn(session, agent=config, tools=[READ_LOG])
    alice.cancel(session)
    whole(response)
    assert alice.session(session) == {
        "sessionId": session,
        "agent": {
            "name": "pilot",
            "tools": [{"name": "calculator", "trust": True}],
            "options": {"tone": "formal", "model_key": "***", "units": "imperial"},
        },
        "tools": [READ_LOG],
    }
    whole_of_it = alice.turn(session, agent={"tools": []}, tools=[])
    alice.cancel(session)
    whole(whole_of_it)
    shown = alice.session(session)
    assert shown["agent"]["tools"] == []
    assert "tools" not in shown


@pytest.mark.rule("A92")
def test_deleting_a_session_ends_its_stream_with_error(alice: Person) -> None:
    session = alice.create()
    response = alice.turn(session)
    assert alice.delete(f"/sessions/{session}").status_code == 204
    assert events(whole(response)) == [("turn_start", {}), ("turn_stop", {"stopReason": "error"})]


# --- cancelling ---


@pytest.mark.rule("A121")
def test_a_cancel_with_nothing_running_says_so(alice: Person) -> None:
    session = alice.create()
    assert alice.cancel(session) == {"cancelled": False}
    alice.turn(session)
    response = alice.post(f"/sessions/{session}/cancel", {"reason": "enough", "x": 1})
    assert response.json() == {"cancelled": True, "providerClosed": True}
    assert alice.cancel(session) == {"cancelled": False}


@pytest.mark.rule("A4", "A121")
def test_the_body_of_a_cancel_is_optional_but_must_be_an_object(alice: Person) -> None:
    session = alice.create()
    assert alice.post(f"/sessions/{session}/cancel", b"", **{"Content-Type": ""}).status_code == 200
    assert alice.post(f"/sessions/{session}/cancel", {"reason": None}).status_code == 200
    assert pointers(alice.post(f"/sessions/{session}/cancel", {"reason": 7})) == {"/reason"}
    problem(alice.post(f"/sessions/{session}/cancel", b"{"), 400)
    problem(alice.post(f"/sessions/{session}/cancel", b"{}", **{"Content-Type": "text/plain"}), 415)


# --- joining a stream ---


def join(person: Person, session: str, query: str = "", **headers: str) -> Any:
    return person.get(f"/sessions/{session}/events/stream?stream=delta{query}", **headers)


def two_turns(alice: Person) -> tuple[str, list[tuple[str, str, Any]]]:
    """A session with two turns behind it, and what their streams said."""
    session = alice.create()
    said = []
    for _ in range(2):
        response = alice.turn(session)
        alice.cancel(session)
        said += positioned(whole(response))
    return session, said


@pytest.mark.rule("A120")
def test_positions_grow_over_the_turns_of_a_session(alice: Person) -> None:
    _, said = two_turns(alice)
    assert [position for position, _, _ in said] == sorted({position for position, _, _ in said})


@pytest.mark.rule("A120")
@pytest.mark.parametrize("mode", ["delta", "message"])
def test_a_stream_joined_after_a_turn_has_all_events_after_its_position(alice: Person, mode: str) -> None:
    session, said = two_turns(alice)
    for index, (position, _, _) in enumerate(said[:-1]):
        joined = alice.get(f"/sessions/{session}/events/stream?stream={mode}&after={position}")
        assert joined.status_code == 200
        assert joined["Content-Type"] == "text/event-stream"
        assert positioned(whole(joined)) == said[index + 1 :]


@pytest.mark.rule("A120")
def test_the_header_wins_over_the_query(alice: Person) -> None:
    session, said = two_turns(alice)
    joined = join(alice, session, f"&after={said[0][0]}", **{"Last-Event-ID": said[2][0]})
    assert positioned(whole(joined)) == said[3:]


@pytest.mark.rule("A120")
def test_nothing_running_and_nothing_new_is_204(alice: Person) -> None:
    session, said = two_turns(alice)
    for response in (join(alice, session), join(alice, session, f"&after={said[-1][0]}"), join(alice, alice.create())):
        assert (response.status_code, response.content) == (204, b"")


@pytest.mark.rule("A120")
def test_a_stream_joined_while_a_turn_runs_begins_with_its_turn_start_and_ends_with_it(alice: Person) -> None:
    session, said = two_turns(alice)
    own = alice.turn(session)
    joined, from_the_first = join(alice, session), join(alice, session, f"&after={said[0][0]}")
    within = join(alice, session, **{"Last-Event-ID": positions_of_running(session)})
    alice.cancel(session)
    third = positioned(whole(own))
    assert [name for _, name, _ in third] == ["turn_start", "turn_stop"]
    assert positioned(whole(joined)) == third
    assert positioned(whole(from_the_first)) == said[1:] + third
    assert positioned(whole(within)) == third[1:]


def positions_of_running(session: str) -> str:
    """Where a reader stands who has seen the turn_start of the run in progress."""
    began = journal.latest_run_start(Session.objects.get(public_id=session).pk)
    assert began is not None
    return positions.write(positions.signing_key(settings.SECRET_KEY), session, began)


@pytest.mark.rule("A120")
@pytest.mark.parametrize("position", ["x", "0" * 28, "0000000000000001", "%00", "ä", "9" * 400])
def test_an_unknown_position_is_400(alice: Person, position: str) -> None:
    session, _ = two_turns(alice)
    problem(join(alice, session, f"&after={position}"), 400)
    problem(join(alice, session, "&after="), 400)


@pytest.mark.rule("A120")
def test_a_position_whose_events_were_deleted_is_410_and_points_to_the_history(alice: Person) -> None:
    session, said = two_turns(alice)
    row = Session.objects.get(public_id=session)
    Pruned.objects.create(session_id=row.pk, through=journal.tail(row.pk).seq)
    assert "history" in problem(join(alice, session, f"&after={said[0][0]}"), 410)["detail"]
    alice.turn(session)
    assert "history" in problem(join(alice, session, f"&after={said[0][0]}"), 410)["detail"]
    alice.cancel(session)


@pytest.mark.rule("A80", "A120")
def test_a_joined_streams_mode_must_be_declared(alice: Person) -> None:
    session, bare = alice.create(), alice.create("bare")
    path = f"/sessions/{bare}/events/stream?stream="
    assert alice.get(path + "delta").status_code == 204
    assert pointers(alice.get(path + "message")) == {"/stream"}
    assert pointers(alice.get(f"/sessions/{session}/events/stream?stream=none")) == {"/stream"}
    problem(alice.get(f"/sessions/{session}/events/stream"), 400)
    problem(join(alice, session, "&follow=perhaps"), 400)


@pytest.mark.rule("A1", "A120")
def test_head_of_a_stream_answers_without_waiting_for_it(alice: Person) -> None:
    session = alice.create()
    alice.turn(session)
    response = alice.request("HEAD", f"/sessions/{session}/events/stream?stream=delta")
    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream")
    assert not response.streaming
    alice.cancel(session)


# --- once, and in time ---


@pytest.mark.rule("A98")
def test_a_repeated_request_gets_the_first_ones_answer(alice: Person) -> None:
    first = alice.post("/sessions", {"agent": {"name": "pilot"}}, **{"Idempotency-Key": "k-1"})
    again = alice.post("/sessions", {"agent": {"name": "pilot"}}, **{"Idempotency-Key": "k-1"})
    assert (again.status_code, again.json(), again["Location"]) == (201, first.json(), first["Location"])
    problem(alice.post("/sessions", {"agent": {"name": "pilot"}, "messages": [HELLO]}, **{"Idempotency-Key": "k-1"}), 422)
    session = first.json()["sessionId"]
    body = {"messages": [HELLO], "stream": "delta"}
    started = alice.post(f"/sessions/{session}/turns", body, **{"Idempotency-Key": "k-2"})
    joined = alice.post(f"/sessions/{session}/turns", body, **{"Idempotency-Key": "k-2"})
    assert joined["X-Turn-Id"] == started["X-Turn-Id"]
    problem(alice.post(f"/sessions/{session}/turns", body), 409)
    alice.cancel(session)
    assert positioned(whole(joined)) == positioned(whole(started))
    none = {"messages": [HELLO]}
    alice_first = alice.post(f"/sessions/{session}/turns", none, **{"Idempotency-Key": "k-3"})
    alice.cancel(session)
    later = alice.post(f"/sessions/{session}/turns", none, **{"Idempotency-Key": "k-3"})
    assert whole(later).strip() == whole(alice_first).strip()
    assert len(alice.history(session)) == 2


@pytest.mark.rule("A98", "A123")
@pytest.mark.parametrize(
    "header",
    [
        {"Idempotency-Key": ""},
        {"Idempotency-Key": "a b"},
        {"Idempotency-Key": "x" * 256},
        {"X-Turn-Deadline": "soon"},
        {"X-Turn-Deadline": "0"},
        {"X-Turn-Deadline": "-1"},
    ],
)
def test_a_malformed_header_is_refused(alice: Person, header: dict[str, str]) -> None:
    session = alice.create()
    answer = alice.post(f"/sessions/{session}/turns", {"messages": [HELLO], "stream": "delta"}, **header)
    assert next(iter(header)) in problem(answer, 400)["detail"]
    assert alice.history(session) == []
