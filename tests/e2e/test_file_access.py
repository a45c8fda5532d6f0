"""An agent and two clients under the operator's rules of access, on a whole server."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e.ahp_steps import call_action, create_session, start_turn, wait_for_call, wait_for_end
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client, grant
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


def results(turn: dict[str, Any]) -> list[str]:
    calls = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    return [call["content"][0]["text"] if call["status"] == "completed" else call["status"] for call in calls]


async def data_of_refusal(client: Watcher, method: str, **params: Any) -> Any:
    with pytest.raises(RPCError) as failed:
        await client.request(method, params)
    assert failed.value.code == -32009
    return failed.value.data


@pytest.mark.rule("R163", "R335", "R337", "R389")
async def test_an_agent_asks_two_clients_and_one_of_them_asks_the_host(server: Server, model: ModelServer) -> None:
    script = model.script(
        [steps.call("write_file", {"path": "open.txt", "content": "open\n"}, id="o")],
        [steps.call("write_file", {"path": "vault/plan", "content": "the plan\n"}, id="w")],
        [steps.call("read_file", {"path": "vault/plan"}, id="r")],
        [steps.call("read_file", {"path": "vault/sealed/key"}, id="s")],
        [steps.text("done")],
    )
    key = server.keys.alice
    async with watching(server, key, "worker") as one, watching(server, key, "guard") as two:
        # Every tool runs without asking, as far as the session is concerned.
        uri = await create_session(one, "coder", config={"approval": "auto"}, workingDirectory="file:///office")
        await two.subscribe(uri)
        turn = await start_turn(one, uri, script)
        write = await wait_for_call(two, uri, "write_file", "pending-confirmation")
        assert "vault/plan" in write["toolInput"]
        confirmed = {"approved": True, "confirmed": "user-action"}
        await two.dispatch(call_action("toolCallConfirmed", uri, turn, write["toolCallId"], **confirmed))
        # The permission was for writing, once.
        read = await wait_for_call(one, uri, "read_file", "pending-confirmation")
        await one.dispatch(call_action("toolCallConfirmed", uri, turn, read["toolCallId"], approved=False, reason="denied"))
        ended = [await wait_for_end(client, uri, turn) for client in (one, two)]
        assert ended[0] == ended[1]
        created, written, denied, sealed = results(ended[0])
        assert (created, written, denied) == ("Created open.txt (1 line).", "Created vault/plan (1 line).", "cancelled")
        assert "rules of access do not permit this: vault/sealed/key" in sealed
        await one.check(uri)

        # The same rules hold for clients, each for itself.
        plan = "file:///office/vault/plan"
        for client in (one, two):
            assert await data_of_refusal(client, "resourceRead", uri=plan) == {"request": {"uri": plan, "read": True}}
        assert await one.request("resourceRequest", {"uri": plan, "read": True}) == {}
        assert (await one.request("resourceRead", {"uri": plan}))["data"] == "the plan\n"
        assert await data_of_refusal(two, "resourceRead", uri=plan) is not None
        assert await data_of_refusal(one, "resourceRequest", uri="file:///office/vault/sealed") is None
        listed = await one.request("resourceList", {"uri": "file:///office"})
        assert listed["entries"] == [{"name": "open.txt", "type": "file"}, {"name": "vault", "type": "directory"}]


def test_over_aap_a_trusted_tool_asks_where_a_rule_says_so(alice: Client, model: ModelServer) -> None:
    script = model.script(
        [steps.call("write_file", {"path": "free", "content": "x\n"}, id="f")],
        [steps.call("write_file", {"path": "vault/x", "content": "x\n"}, id="v")],
        [steps.text("done")],
    )
    session = alice.create({"name": "coder", "tools": [{"name": "write_file", "trust": True}]})
    first = alice.turn(session, {"role": "user", "content": script})
    assert (first.stop, first.results["f"]) == ("tool_use", "Created free (1 line).")
    second = alice.turn(session, grant("v"))
    assert (second.stop, second.results["v"]) == ("end_turn", "Created vault/x (1 line).")
