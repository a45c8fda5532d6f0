"""Calls in a session's state, for each state of their rows, which these tests set themselves."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.core.sessions import state
from sessions_app.models import ToolCall, Turn
from tests.core.conftest import World, claim_one, insert_call

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def world_with_call(alice: World) -> tuple[World, Any]:
    """A session whose running turn has one call."""
    session = alice.session()
    accepted = alice.say(session, "ahoy")
    assert claim_one("w") is not None
    insert_call(session, accepted, "c", "add_one", runner="server")
    Turn.objects.filter(pk=accepted.turn_id).update(parts='[{"id": "p", "kind": "call", "call": "c"}]')
    return alice, session


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


def test_an_answered_call_shows_the_clients_own_form_of_its_result(world_with_call: tuple[World, Any]) -> None:
    world, session = world_with_call
    outcome = {"success": True, "message": "Read it", "content": [{"type": "text", "text": "42"}]}
    columns = {"state": "done", "runner": "client", "result": '"42"', "outcome": exact_json.dumps(outcome)}
    ToolCall.objects.filter(session=session).update(**columns)
    live = state.read(world.caller, session).live
    assert live is not None
    assert live.parts[0].call is not None
    assert (live.parts[0].call.content, live.parts[0].call.outcome) == ("42", outcome)
