"""Clients of AAP versions 2 and 3 share sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.e2e.client import Client, client_tool, deny, grant, tool, user
from tests.e2e.client_v2 import ClientV2, old_tool
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


@pytest.fixture
def both(server: Server) -> Iterator[tuple[ClientV2, Client]]:
    """A tenant of one's own, with an application of each version."""
    new = server.new_tenant()
    old = ClientV2(server.origin(), new.key)
    yield old, new
    old.close()


@pytest.mark.rule("A116", "A102")
def test_a_session_of_version_2_is_continued_in_version_3_and_listed_in_both(both: tuple[ClientV2, Client]) -> None:
    old, new = both
    session, _ = old.open("echo", "one", tools=[old_tool("mine")])
    assert new.turn(session, "two").text == "echo: two"
    assert old.turn(session, "three").text == "echo: three"
    said = [line["content"] for line in new.history(session)]
    assert said == ["one", "echo: one", "two", "echo: two", "three", "echo: three"]
    assert old.history(session) == new.history(session)
    assert old.ok("GET", "/sessions") == {"sessions": [old.session(session)]}
    assert new.ok("GET", "/sessions") == {"sessions": [new.session(session)]}
    assert old.session(session)["tools"] == [old_tool("mine")]
    assert new.session(session)["tools"] == [client_tool("mine")]


@pytest.mark.rule("A116", "A102", "A103")
def test_a_session_of_version_3_is_continued_and_deleted_in_version_2(both: tuple[ClientV2, Client]) -> None:
    old, new = both
    session = new.create({"name": "pilot", "options": {"tone": "x"}}, tools=[client_tool("mine")], messages=[user("seeded")])
    assert old.history(session) == [user("seeded")]
    assert old.session(session)["tools"] == [old_tool("mine")]
    old.turn(session, "hi", agent={"options": {"units": "imperial"}}, tools=[old_tool("other")])
    shown = new.session(session)
    assert (shown["agent"]["options"], shown["tools"]) == ({"tone": "x", "units": "imperial"}, [client_tool("other")])
    assert old.request("DELETE", f"/session/{session}").status_code == 204
    assert new.get(f"/sessions/{session}").status_code == 404
    assert new.all_sessions() == []


@pytest.mark.rule("A116", "A71")
def test_calls_that_one_version_was_asked_for_are_answered_through_the_other(
    both: tuple[ClientV2, Client], server: Server, model: ModelServer
) -> None:
    old, new = both
    prompt = model.script(
        [
            steps.call("mine", {}, id="c1"),
            steps.call("order_rope", {"metres": 3101}, id="c2"),
            steps.call("order_rope", {"metres": 3102}, id="c3"),
        ],
        [steps.text("Ready.")],
    )
    session, asked = old.open({"name": "pilot", "tools": [{"name": "order_rope"}]}, prompt, tools=[old_tool("mine")])
    assert asked.stop == "tool_use"
    assert new.turn(session, tool("c1", "calm"), stream="delta").stop == "tool_use"
    assert old.turn(session, deny("c3"), stream="message").stop == "tool_use"
    answered = new.turn(session, grant("c2"))
    assert (answered.stop, answered.text) == ("end_turn", "Ready.")
    assert server.tools.executions("order_rope", metres=3101) == 1
    assert server.tools.executions("order_rope", metres=3102) == 0


@pytest.mark.rule("A116", "A120", "A78", "A121")
def test_a_running_turn_is_joined_refused_and_cancelled_through_the_other(
    both: tuple[ClientV2, Client], model: ModelServer
) -> None:
    old, new = both
    prompt = model.script([steps.text("half"), steps.hang()])
    with contextlib.ExitStack() as stack:
        session, first = stack.enter_context(old.open_stream("echo", prompt))
        first.until("text_delta")
        # A position is the session's, whichever version gave it.
        joined = stack.enter_context(new.join(session, after=first.seen[0].id))
        new.refused(session, "me too", status=409)
        assert new.cancel(session)["cancelled"] is True
        assert joined.rest() == [*first.seen[1:], *first.rest()]
    with new.stream(session, model.script([steps.text("more"), steps.hang()])) as third:
        third.until("text_delta")
        with old.join(session, after=third.seen[0].id) as joined:
            assert old.cancel(session)["cancelled"] is True
            assert joined.rest() == [*third.seen[1:], *third.rest()]


@pytest.mark.rule("A116", "A35")
def test_a_cursor_of_one_version_works_in_the_other(both: tuple[ClientV2, Client]) -> None:
    old, new = both
    made = [new.create() for _ in range(52)]
    cursor = old.ok("GET", "/sessions")["next"]
    assert [one["sessionId"] for one in new.ok("GET", "/sessions", params={"after": cursor})["sessions"]] == made[1::-1]
    cursor = new.ok("GET", "/sessions")["next"]
    assert [one["sessionId"] for one in old.ok("GET", "/sessions", params={"after": cursor})["sessions"]] == made[1::-1]
