"""One session in both protocols at once: made in one, seen and continued in the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.e2e.ahp_steps import (
    call_action,
    create_session,
    rejection_reason,
    run_turn,
    start_action,
    start_turn,
    text_of,
    wait_for_call,
    wait_for_end,
)
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client, client_tool, deny, grant, tool, turn_body
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.embedded_too


@pytest.fixture
def app(server: Server) -> Iterator[Client]:
    """An application that speaks AAP."""
    client = Client(server.origin(), server.keys.alice)
    yield client
    client.close()


@asynccontextmanager
async def watched(server: Server, session: str, agent: str = "echo") -> AsyncIterator[tuple[Watcher, str]]:
    """An AHP client that watches a session of AAP's."""
    uri = f"{agent}:/{session}"
    async with watching(server, server.keys.alice, "watcher") as client:
        await client.subscribe(uri)
        yield client, uri


def in_background(call: Any, *arguments: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(asyncio.to_thread(call, *arguments))


@pytest.mark.rule("R387", "R65")
async def test_a_turn_of_aap_streams_in_ahp_while_it_runs(server: Server, app: Client, model: ModelServer) -> None:
    prompt = model.script([steps.thinking("so"), steps.text("slow", "ly"), steps.gate("faces 1"), steps.text(" done")])
    session = app.create()
    async with watched(server, session) as (client, uri):
        turn = in_background(app.turn, session, prompt)
        await client.until(lambda: "activeTurn" in client.state(uri) and text_of(client.state(uri)["activeTurn"]) == "slowly")
        await client.check(uri)
        assert await rejection_reason(client, start_action(uri, "me too"))
        model.open_gate("faces 1")
        outcome = await turn
        ended = await wait_for_end(client, uri, outcome.turn_id)
        assert (text_of(ended), ended["state"], ended["userMessage"]["text"]) == ("slowly done", "complete", prompt)
        await client.check(uri)


@pytest.mark.rule("R387")
async def test_a_turn_of_ahp_is_in_aaps_history_and_refuses_a_second_one_with_409(
    server: Server, app: Client, model: ModelServer
) -> None:
    prompt = model.script([steps.text("first"), steps.gate("faces 2"), steps.text(" answer")])
    async with watching(server, server.keys.alice, "maker") as client:
        uri = await create_session(client)
        turn = await start_turn(client, uri, prompt)
        listed = (await asyncio.to_thread(app.get, "/sessions")).json()["sessions"]
        session = listed[0]["sessionId"]
        busy = await asyncio.to_thread(app.post, f"/sessions/{session}/turns", turn_body("more"))
        assert busy.status_code == 409
        model.open_gate("faces 2")
        await wait_for_end(client, uri, turn)
        messages = await asyncio.to_thread(app.history, session)
        assert [message["content"] for message in messages] == [prompt, "first answer"]
        again = await asyncio.to_thread(app.turn, session, model.script([steps.text("from the application")]))
        ended = await wait_for_end(client, uri, again.turn_id)
        assert text_of(ended) == "from the application"
        await client.check(uri)


@pytest.mark.rule("R387", "R163")
@pytest.mark.parametrize("answered_in", ["aap", "ahp"])
async def test_a_permission_is_asked_in_both_and_answered_once(
    server: Server, app: Client, model: ModelServer, answered_in: str
) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "Bree"})], [steps.text("done")])
    session = app.create({"name": "pilot", "tools": [{"name": "tide_table"}]})
    async with watched(server, session, "pilot") as (client, uri):
        asked = await asyncio.to_thread(app.turn, session, prompt)
        assert asked.stop == "tool_use"
        call = await wait_for_call(client, uri, "tide_table", "pending-confirmation")
        await client.check(uri)
        confirm = call_action("toolCallConfirmed", uri, asked.turn_id, call["toolCallId"], approved=True, confirmed="user-action")
        if answered_in == "ahp":
            await client.echo(await client.dispatch(confirm))
        else:
            await asyncio.to_thread(app.turn, session, grant(call["toolCallId"]))
        ended = await wait_for_end(client, uri, asked.turn_id)
        done = ended["responseParts"][0]["toolCall"]
        assert (done["status"], done["confirmed"]) == ("completed", "user-action")
        assert text_of(ended) == "done"
        assert await rejection_reason(client, confirm)
        late = await asyncio.to_thread(app.post, f"/sessions/{session}/turns", turn_body(grant(call["toolCallId"])))
        assert late.status_code == 422
        await client.check(uri)
        roles = [message["role"] for message in await asyncio.to_thread(app.history, session)]
        assert roles == ["user", "assistant", "tool", "assistant"]


@pytest.mark.rule("R387")
async def test_a_denial_in_aap_is_a_cancelled_call_in_ahp(server: Server, app: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("order_rope", {"metres": 3})], [steps.text("as you wish")])
    session = app.create({"name": "pilot", "tools": [{"name": "order_rope"}]})
    async with watched(server, session, "pilot") as (client, uri):
        asked = await asyncio.to_thread(app.turn, session, prompt)
        call = await wait_for_call(client, uri, "order_rope", "pending-confirmation")
        await asyncio.to_thread(app.turn, session, deny(call["toolCallId"], "too dear"))
        ended = await wait_for_end(client, uri, asked.turn_id)
        done = ended["responseParts"][0]["toolCall"]
        assert (done["status"], done["reason"], done["reasonMessage"]) == ("cancelled", "denied", "too dear")
        await client.check(uri)


@pytest.mark.rule("R387")
async def test_a_user_message_over_aap_ends_a_waiting_turn_and_starts_its_own(
    server: Server, app: Client, model: ModelServer
) -> None:
    prompt = model.script([steps.text("may I?"), steps.call("order_rope", {"metres": 3})], [steps.text("never")])
    session = app.create({"name": "pilot", "tools": [{"name": "order_rope"}]})
    async with watched(server, session, "pilot") as (client, uri):
        asked = await asyncio.to_thread(app.turn, session, prompt)
        await wait_for_call(client, uri, "order_rope", "pending-confirmation")
        other = await asyncio.to_thread(app.turn, session, model.script([steps.text("something else")]))
        await wait_for_end(client, uri, other.turn_id)
        first, second = client.state(uri)["turns"]
        assert (first["id"], first["state"]) == (asked.turn_id, "cancelled")
        call = first["responseParts"][1]["toolCall"]
        assert (call["status"], call["reason"]) == ("cancelled", "skipped")
        assert (second["id"], text_of(second)) == (other.turn_id, "something else")
        await client.check(uri)


@pytest.mark.rule("R387")
async def test_a_tool_of_an_application_runs_at_the_application_and_is_seen_in_ahp(
    server: Server, app: Client, model: ModelServer
) -> None:
    prompt = model.script([steps.call("lamp", {"on": True})], [steps.text("lit")])
    session = app.create(tools=[client_tool("lamp", on={"type": "boolean"})])
    async with watched(server, session) as (client, uri):
        asked = await asyncio.to_thread(app.turn, session, prompt)
        call = await wait_for_call(client, uri, "lamp", "running")
        assert "toolClientId" not in call
        result = {"success": True, "pastTenseMessage": "Lit"}
        assert await rejection_reason(
            client, call_action("toolCallComplete", uri, asked.turn_id, call["toolCallId"], result=result)
        )
        await client.check(uri)
        await asyncio.to_thread(app.turn, session, tool(call["toolCallId"], "it shines"))
        ended = await wait_for_end(client, uri, asked.turn_id)
        assert ended["responseParts"][0]["toolCall"]["content"] == [{"type": "text", "text": "it shines"}]
        await client.check(uri)


@pytest.mark.rule("R387", "R117", "R72")
async def test_deleting_in_one_protocol_removes_in_the_other(server: Server, app: Client, model: ModelServer) -> None:
    session = app.create()
    async with watched(server, session) as (client, uri):
        await asyncio.to_thread(partial(app.ok, "DELETE", app.at(session), status=204))
        await client.until(lambda: {"type": "notify/sessionRemoved", "session": uri} in client.heard)
        mine = await create_session(client)
        await run_turn(client, mine, model.script([steps.text("hello")]))
        listed = (await asyncio.to_thread(app.get, "/sessions")).json()["sessions"]
        session = listed[0]["sessionId"]
        await client.request("disposeSession", {"session": mine})
        gone = await asyncio.to_thread(app.get, f"/sessions/{session}")
        assert gone.status_code == 404


@pytest.mark.rule("R387", "R146")
async def test_a_cancel_in_either_protocol_stops_the_turn_of_the_other(server: Server, app: Client, model: ModelServer) -> None:
    session = app.create()
    async with watched(server, session) as (client, uri):
        prompt = model.script([steps.text("on and on"), steps.hang()])
        running = in_background(app.turn, session, prompt)
        await client.until(lambda: text_of(client.state(uri).get("activeTurn", {"responseParts": []})) == "on and on")
        turn = client.state(uri)["activeTurn"]["id"]
        await client.echo(await client.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": turn}))
        assert (await running).stop == "end_turn"
        turn = await start_turn(client, uri, model.script([steps.text("more"), steps.hang()]))
        await client.until(lambda: text_of(client.state(uri).get("activeTurn", {"responseParts": []})) == "more")
        await asyncio.to_thread(app.cancel, session)
        assert (await wait_for_end(client, uri, turn))["state"] == "cancelled"
        await client.check(uri)
