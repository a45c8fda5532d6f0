"""Concurrent requests to one session: one outcome, stored once and reported to all clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.e2e import sse
from tests.e2e.client import Client, client_tool, deny, grant, tool, turn_body, user
from tests.e2e.load.concurrent_clients import at_once, statuses
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

ROUNDS = 6
ASKING = {"name": "pilot", "tools": [{"name": "order_rope"}]}


@pytest.fixture
def alice(server: Server) -> Client:
    return server.alice


def post_turn(session: str, *messages: Any, stream: str | None = None) -> Callable[[Client], httpx.Response]:
    return lambda client: client.post(f"/sessions/{session}/turns", turn_body(*messages, stream=stream))


def post_cancel(session: str) -> Callable[[Client], httpx.Response]:
    return lambda client: client.post(f"/sessions/{session}/cancel")


def waiting(alice: Client, model: ModelServer, metres: int, *, mine: bool = False) -> tuple[str, str]:
    """A session whose turn waits for the permission to order so much rope."""
    calls = [steps.call("order_rope", {"metres": metres}, id="ask")]
    if mine:
        calls.append(steps.call("mine", {}, id="mine"))
    prompt = model.script(calls, [steps.text("done")])
    session = alice.create(ASKING, tools=[client_tool("mine")])
    assert alice.turn(session, prompt).stop == "tool_use"
    return session, prompt


def answers_in(history: list[dict[str, Any]], call_id: str) -> list[Any]:
    return [message["content"] for message in history if message.get("toolCallId") == call_id]


@pytest.mark.rule("A79", "A66", "A78")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_grant_and_a_denial_at_the_same_moment_have_one_winner(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    metres = 1000 + number
    session, prompt = waiting(alice, model, metres)
    granted, denied = at_once(server, post_turn(session, grant("ask")), post_turn(session, deny("ask")))
    assert [granted.status_code, denied.status_code].count(200) == 1
    assert {granted.status_code, denied.status_code} <= {200, 409, 422}
    (answer,) = answers_in(alice.history(session), "ask")
    assert (answer == "Tool call denied") == (denied.status_code == 200)
    assert server.tools.executions("order_rope", metres=metres) == (granted.status_code == 200)
    assert len(model.requests_of(prompt)) == 2


@pytest.mark.rule("A121", "A66", "A79")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_grant_and_a_cancel_at_the_same_moment_leave_one_answer(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    metres = 2000 + number
    session, _ = waiting(alice, model, metres)
    granted, cancelled = at_once(server, post_turn(session, grant("ask")), post_cancel(session))
    assert granted.status_code in (200, 409, 422)
    assert cancelled.status_code == 200
    assert len(answers_in(alice.history(session), "ask")) == 1
    assert server.tools.executions("order_rope", metres=metres) <= 1
    if granted.status_code != 200:
        assert cancelled.json()["cancelled"] is True
        assert server.tools.executions("order_rope", metres=metres) == 0
    assert alice.turn(session, "usable?").stop == "end_turn"


@pytest.mark.rule("A76", "A79", "A78")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_grant_and_a_new_user_message_at_the_same_moment_have_one_winner(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    metres = 3000 + number
    session, _ = waiting(alice, model, metres)
    granted, interrupted = at_once(server, post_turn(session, grant("ask")), post_turn(session, "never mind"))
    # Either may come when the other's turn is over already: then both are good, one after the other.
    assert 200 in (granted.status_code, interrupted.status_code)
    assert {granted.status_code, interrupted.status_code} <= {200, 409, 422}
    (answer,) = answers_in(alice.history(session), "ask")
    assert server.tools.executions("order_rope", metres=metres) == (granted.status_code == 200)
    assert ("rope ordered" in answer) == (granted.status_code == 200)


@pytest.mark.rule("A77", "A78", "A79")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_two_partial_answers_at_the_same_moment_make_one_model_call(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    metres = 4000 + number
    session, prompt = waiting(alice, model, metres, mine=True)
    first, second = at_once(server, post_turn(session, grant("ask")), post_turn(session, tool("mine", "r")))
    assert {first.status_code, second.status_code} <= {200, 409}
    assert 200 in (first.status_code, second.status_code)
    if first.status_code == 409:
        assert alice.turn(session, grant("ask")).stop == "end_turn"
    if second.status_code == 409:
        assert alice.turn(session, tool("mine", "r")).stop == "end_turn"
    history = alice.history(session)
    assert len(answers_in(history, "ask")) == len(answers_in(history, "mine")) == 1
    assert history[-1] == {"role": "assistant", "content": "done"}
    assert len(model.requests_of(prompt)) == 2
    assert server.tools.executions("order_rope", metres=metres) == 1


@pytest.mark.rule("A121")
def test_only_one_of_many_cancels_reports_success(server: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("going"), steps.hang()])
    session = alice.create()
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        answers = at_once(server, *[post_cancel(session)] * 5)
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert statuses(answers) == [200] * 5
    assert [answer.json()["cancelled"] for answer in answers].count(True) == 1
    assert [message["content"] for message in alice.history(session)] == [prompt, "going"]


@pytest.mark.rule("A121", "A58", "A56")
@pytest.mark.parametrize("number", range(ROUNDS * 2))
def test_a_cancel_while_the_answer_ends_leaves_what_was_streamed_and_one_end(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    gate = f"cancel race {number} {server.shape}"
    prompt = model.script([steps.text("some "), steps.gate(gate), steps.text(*["more "] * (number * 20))])
    session = alice.create()
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate(gate)
        cancelled, _ = at_once(server, post_cancel(session), lambda _client: model.open_gate(gate))
        assert cancelled is not None
        stream.rest()
        sse.check_turn(stream.seen)
        seen = sse.rebuilt(stream.seen)
    assert alice.history(session) == [user(prompt), *seen]
    with alice.join(session, after=stream.seen[0].id) as joined:
        again = joined.rest()
    assert sse.rebuilt(again) == seen
    assert alice.turn(session, "usable?").text == "echo: usable?"


@pytest.mark.rule("A92", "A32", "A78")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_deletion_and_a_turn_at_the_same_moment_leave_nothing(
    server: Server, alice: Client, model: ModelServer, number: int
) -> None:
    prompt = model.script([steps.text("words"), steps.hang()])
    session = alice.create()
    turned, deleted = at_once(
        server,
        post_turn(session, prompt, stream="delta"),
        lambda client: client.request("DELETE", f"/sessions/{session}"),
    )
    assert deleted.status_code == 204
    assert turned.status_code in (200, 404)
    if turned.status_code == 200:
        events = sse.parse(turned.content)
        assert events[-1].data == {"stopReason": "error"}
    assert alice.get(f"/sessions/{session}").status_code == 404
    for request in model.requests_of(prompt):
        assert model.wait_ended(request) == "closed"


@pytest.mark.rule("A32")
def test_only_one_of_many_deletions_succeeds(server: Server, alice: Client) -> None:
    session = alice.create()
    answers = at_once(server, *[lambda client: client.request("DELETE", f"/sessions/{session}")] * 5)
    assert statuses(answers) == [204] + [404] * 4


@pytest.mark.rule("A71", "A78", "A65")
def test_clients_that_answer_the_moment_they_see_the_turn_stop_are_never_refused(
    server: Server, alice: Client, model: ModelServer
) -> None:
    prompt = model.script(
        *[[steps.call("order_rope", {"metres": 5000 + step}), steps.call("mine", {})] for step in range(8)], [steps.text("done")]
    )

    def converse(client: Client) -> str:
        session = client.create(ASKING, tools=[client_tool("mine")])
        messages: list[Any] = [prompt]
        while True:
            with client.stream(session, *messages) as stream:
                stop = stream.until("turn_stop").data["stopReason"]
                calls = [event.data for event in stream.seen if event.name == "tool_call"]
                if stop != "tool_use":
                    assert len(client.history(session)) == 1 + 8 * 3 + 1
                    return str(stop)
                messages = [
                    grant(call["toolCallId"]) if call["name"] == "order_rope" else tool(call["toolCallId"], "r") for call in calls
                ]
                # The stream is still open when the answer goes out.
                answered = client.post(f"/sessions/{session}/turns", turn_body(*messages, stream="delta"))
                assert answered.status_code == 200, answered.text
                events = sse.parse(answered.content)
                stop, calls = events[-1].data["stopReason"], [event.data for event in events if event.name == "tool_call"]
                if stop != "tool_use":
                    assert len(client.history(session)) == 1 + 8 * 3 + 1
                    return str(stop)
                messages = [
                    grant(call["toolCallId"]) if call["name"] == "order_rope" else tool(call["toolCallId"], "r") for call in calls
                ]

    assert at_once(server, *[converse] * 8) == ["end_turn"] * 8
    assert server.tools.executions("order_rope", metres=5000) == 8


@pytest.mark.rule("A9", "A33")
def test_sessions_made_at_the_same_moment_are_all_there(server: Server) -> None:
    key = server.make_keys("busy/all/*/")[0]
    made = at_once(server, *[lambda client: [client.create() for _ in range(20)]] * 8, key=key)
    wanted = {session for some in made for session in some}
    assert len(wanted) == 160
    listed = [one["sessionId"] for one in server.client(key).all_sessions()]
    assert len(listed) == 160
    assert set(listed) == wanted
