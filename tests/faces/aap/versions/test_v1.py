"""Version 1: its differences from version 2, and histories in the session."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import QueryDict
from rest_framework.exceptions import ParseError

from agents_app import registry
from agents_app.spec import AgentSpec
from sessions_app.aap.versions import v1, v3
from sessions_app.aap.versions.v1 import V1
from sessions_app.aap.versions.v2 import V2
from sessions_app.models import Session
from tests.faces.aap.conftest import BARE, HELLO, PILOT, Person, events, pointers, problem, whole

OLD_WORDS = {"name": "read_log", "description": "", "inputSchema": {"type": "object"}}
NEW_WORDS = {"name": "read_log", "description": "", "parameters": {"type": "object"}}
MUTE = AgentSpec(name="mute", version="1.0.0", model="demo:guide", history=())


@pytest.fixture
def older(alice: Person) -> Person:
    """Alice, with an application of version 1."""
    return Person(alice.key, "/aap/v1")


def opened(person: Person, agent: str = "pilot", **more: Any) -> str:
    stream = "delta" if agent == "bare" else "none"
    body = {"agent": {"name": agent}, "messages": [HELLO], "stream": stream, **more}
    response = person.request("PUT", "/session", body)
    assert response.status_code == (200 if stream == "delta" else 201)
    response.close()
    return str(Session.objects.order_by("-pk").values_list("public_id", flat=True)[0])


# --- conversions ---


@pytest.mark.rule("A112")
def test_a_page_has_only_ids_and_its_cursor_under_both_names() -> None:
    page = {"sessions": [{"sessionId": "s2", "agent": {"name": "x"}}, {"sessionId": "s1", "agent": {"name": "x"}}]}
    assert V1().sessions(page) == {"sessions": ["s2", "s1"]}
    assert json.dumps(V1().sessions({**page, "next": "c"})) == json.dumps(
        {"sessions": ["s2", "s1"], "next": "c", "nextCursor": "c"}
    )
    assert V1().sessions({"sessions": []}) == {"sessions": []}


@pytest.mark.rule("A111", "A115", "A102")
def test_everything_else_is_as_in_version_2() -> None:
    document = v3.meta([PILOT, BARE])
    assert V1().meta(document) == {**V2().meta(document), "version": 1}
    assert V1().session({"sessionId": "s", "tools": [NEW_WORDS]}) == {"sessionId": "s", "tools": [OLD_WORDS]}
    assert V1().to_v3({"tools": [OLD_WORDS]}) == {"tools": [NEW_WORDS]}
    assert V1().fault_path(("tools", 0, "parameters")) == ("tools", 0, "inputSchema")


@pytest.mark.rule("A113", "A114")
def test_which_histories_a_query_asks_for() -> None:
    assert v1.history_kinds(QueryDict("")) == ("compacted", "full")
    assert v1.history_kinds(QueryDict("history=full")) == ["full"]
    assert v1.history_kinds(QueryDict("history=compacted")) == ["compacted"]
    for bad in ("history=", "history=all", "history=FULL", "history=full,compacted"):
        with pytest.raises(ParseError):
            v1.history_kinds(QueryDict(bad))


# --- over HTTP ---


@pytest.mark.rule("A111")
def test_meta_says_its_version(older: Person) -> None:
    answer = older.get("/meta").json()
    assert answer["version"] == 1
    assert [set(tool) for tool in answer["agents"][0]["tools"]] == [{"name", "description", "inputSchema"}]


@pytest.mark.rule("A111")
def test_version_1_has_no_history_endpoint(older: Person) -> None:
    session = opened(older)
    problem(older.get(f"/session/{session}/history?type=full"), 404)
    problem(older.post(f"/session/{session}/history"), 404)


@pytest.mark.rule("A112")
def test_the_list_is_of_bare_ids_newest_first(older: Person) -> None:
    assert older.get("/sessions").json() == {"sessions": []}
    made = [opened(older) for _ in range(2)]
    assert older.get("/sessions").json() == {"sessions": made[::-1]}
    problem(older.get("/sessions?after=x"), 400)


@pytest.mark.rule("A112", "A34")
def test_either_name_of_the_cursor_leads_to_the_next_page(older: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions_app.core.sessions.listing.PAGE", 2)
    made = [opened(older) for _ in range(3)]
    first = older.get("/sessions").json()
    assert list(first) == ["sessions", "next", "nextCursor"]
    assert first["sessions"] == made[:0:-1]
    assert first["next"] == first["nextCursor"]
    assert older.get(f"/sessions?after={first['nextCursor']}").json() == {"sessions": made[:1]}


@pytest.mark.rule("A113", "A114")
def test_a_session_has_the_histories_that_were_asked_for(older: Person) -> None:
    session = opened(older, tools=[OLD_WORDS])
    plain = {"sessionId": session, "agent": {"name": "pilot"}, "tools": [OLD_WORDS]}
    both = {"compacted": [HELLO], "full": [HELLO]}
    assert json.dumps(older.get(f"/session/{session}").json()) == json.dumps({**plain, "history": both})
    assert older.get(f"/session/{session}?history=full").json() == {**plain, "history": {"full": [HELLO]}}
    assert older.get(f"/session/{session}?history=compacted").json() == {**plain, "history": {"compacted": [HELLO]}}
    problem(older.get(f"/session/{session}?history=all"), 400)
    problem(older.get(f"/session/{session}?history="), 400)


@pytest.mark.rule("A113", "A114")
def test_an_undeclared_history_is_left_out(older: Person) -> None:
    session = opened(older, "bare")
    plain = {"sessionId": session, "agent": {"name": "bare"}}
    assert older.get(f"/session/{session}").json() == {**plain, "history": {"full": [HELLO]}}
    assert older.get(f"/session/{session}?history=compacted").json() == plain
    problem(older.get(f"/session/{session}?history=all"), 400)


@pytest.mark.rule("A114")
def test_an_agent_without_histories_shows_none(older: Person) -> None:
    with registry.use([MUTE]):
        session = opened(older, "mute")
        for query in ("", "?history=full", "?history=compacted"):
            assert older.get(f"/session/{session}{query}").json() == {"sessionId": session, "agent": {"name": "mute"}}


@pytest.mark.rule("A113", "A43")
def test_a_session_whose_agent_is_gone_can_still_be_read(older: Person) -> None:
    session = opened(older, "bare")
    with registry.use([PILOT]):
        assert older.get(f"/session/{session}").json()["history"] == {"compacted": [HELLO], "full": [HELLO]}


@pytest.mark.rule("A113", "A31", "A3")
def test_an_unknown_session_is_404_whatever_the_query_says(older: Person, bob: Person) -> None:
    problem(older.get("/session/nothing?history=all"), 404)
    problem(Person(bob.key, "/aap/v1").get(f"/session/{opened(older)}"), 404)


@pytest.mark.rule("A115")
def test_a_creation_runs_the_first_turn(older: Person) -> None:
    assert pointers(older.request("PUT", "/session", {"agent": {"name": "pilot"}, "messages": []})) == {"/messages"}
    response = older.request("PUT", "/session", {"agent": {"name": "pilot"}, "messages": [HELLO], "stream": "message"})
    session = Session.objects.get().public_id
    assert response.status_code == 200
    older.post(f"/session/{session}/cancel")
    assert events(whole(response)) == [
        ("session_start", {"sessionId": session}),
        ("turn_start", {}),
        ("turn_stop", {"stopReason": "end_turn"}),
    ]


@pytest.mark.rule("A115", "A122")
def test_a_creations_address_is_of_its_own_version(older: Person) -> None:
    response = older.request("PUT", "/session", {"agent": {"name": "pilot"}, "messages": [HELLO]})
    assert response["Location"] == f"/aap/v1/session/{Session.objects.get().public_id}"
    response.close()
