"""The state of a session: what a client sees of calls, pending messages and turns before it follows the events."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.core import turns
from sessions_app.core.base.errors import SessionNotFound, TurnUnknown
from sessions_app.core.log import journal
from sessions_app.core.records import session_changes
from sessions_app.core.sessions import deleting, state
from sessions_app.models import ToolCall, Turn
from tests.core.client_actions import make, put, start
from tests.core.conftest import World, claim_one, insert_call
from tests.core.dispatching import action

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("lasting_presence")]


@pytest.mark.parametrize(
    ("columns", "status", "how"),
    [
        ({"state": "pending", "runner": "server"}, "asking", ""),
        ({"state": "pending", "runner": "client"}, "running", ""),
        ({"state": "granted", "runner": "server"}, "running", ""),
        ({"state": "running", "runner": "server"}, "running", ""),
        ({"state": "review", "runner": "server", "result": '"42"'}, "reviewing", ""),
        ({"state": "done", "runner": "server", "result": '"42"'}, "done", ""),
        ({"state": "denied", "runner": "server", "result": '"no"'}, "ended", "denied"),
        ({"state": "denied", "runner": "server", "how": "skipped", "result": '"no"'}, "ended", "skipped"),
    ],
)
def test_a_calls_status_is_what_its_client_can_do_with_it(
    world_with_call: tuple[World, Any], columns: dict[str, str], status: str, how: str
) -> None:
    world, session = world_with_call
    ToolCall.objects.filter(session=session).update(**columns)
    live = state.read(world.caller, session).live
    assert live is not None
    (part,) = live.parts
    assert part.call is not None
    assert (part.call.status, part.call.how, part.call.input) == (status, how, "{}")
    # A result that was withheld from the model is shown to nobody.
    assert part.call.content == ("42" if "42" in columns.get("result", "") else None)


@pytest.fixture
def world_with_call(alice: World) -> tuple[World, Any]:
    """A session whose running turn has one call."""
    session = alice.session()
    accepted = alice.say(session, "ahoy")
    assert claim_one("w") is not None
    insert_call(session, accepted, "c", "add_one", runner="server")
    Turn.objects.filter(pk=accepted.turn_id).update(parts='[{"id": "p", "kind": "call", "call": "c"}]')
    return alice, session


def test_pending_messages_are_shown_by_kind_in_their_order(alice: World) -> None:
    session = make(alice)
    start(alice, session, "ahoy")
    for name, kind in (("m1", "queued"), ("m2", "queued"), ("s1", "steering")):
        put(alice, session, f"message {name}", name, kind)
    found = state.read(alice.caller, session)
    assert [(each["id"], each["message"]["text"]) for each in found.queued] == [("m1", "message m1"), ("m2", "message m2")]
    assert found.steering is not None
    assert found.steering["id"] == "s1"


def test_the_state_names_the_last_event_that_it_includes(alice: World) -> None:
    session = make(alice)
    before = state.read(alice.caller, session)
    session_changes.rename(alice.caller, session, "Another title", dispatched=action())
    after = state.read(alice.caller, session)
    (renamed,) = journal.read_session(session.tenant_id, session.pk, before.seq, limit=10).events
    assert (after.seq, after.summary.title) == (renamed.seq, "Another title")


def test_a_deleted_session_has_no_state_and_no_turns(alice: World) -> None:
    session = make(alice)
    deleting.delete(alice.caller, session)
    with pytest.raises(SessionNotFound):
        state.read(alice.caller, session)
    with pytest.raises(SessionNotFound):
        state.page(alice.caller, session, None, 10)


@pytest.mark.parametrize("before", ["unknown", "", "\0", "t1\0"])
def test_turns_before_one_that_the_session_never_had_are_unknown(alice: World, before: str) -> None:
    session = make(alice)
    start(alice, session, "ahoy")
    turns.cancel_turn(alice.caller, session, "t1", dispatched=action())
    assert [turn.id for turn in state.page(alice.caller, session, None, 10).turns] == ["t1"]
    with pytest.raises(TurnUnknown):
        state.page(alice.caller, session, before, 10)


def test_a_call_that_a_seed_left_open_has_no_result_among_the_seeds_turns(alice: World) -> None:
    calls = [{"type": "tool_use", "toolCallId": "c", "name": "add_one", "input": {"n": 1}}]
    session = alice.session(
        tools=[{"name": "add_one"}],
        seed=[{"role": "user", "content": "add"}, {"role": "assistant", "content": calls}],
        client_tools=[],
    )
    ((turn,)) = state.read(alice.caller, session).turns
    (part,) = turn.parts
    assert part.call is not None
    assert (part.call.status, part.call.how, part.call.input) == ("ended", "skipped", '{"n":1}')
    assert turn.ending == "complete"


def test_an_answered_call_shows_the_clients_own_form_of_its_result(world_with_call: tuple[World, Any]) -> None:
    world, session = world_with_call
    outcome = {"success": True, "message": "Read it", "content": [{"type": "text", "text": "42"}]}
    columns = {"state": "done", "runner": "client", "result": '"42"', "outcome": exact_json.dumps(outcome)}
    ToolCall.objects.filter(session=session).update(**columns)
    live = state.read(world.caller, session).live
    assert live is not None
    assert live.parts[0].call is not None
    assert (live.parts[0].call.content, live.parts[0].call.outcome) == ("42", outcome)
