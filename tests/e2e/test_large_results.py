"""Results of tools that are too large for the state of a session: clients get references, and read them."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e.ahp_steps import create_session, run_turn
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

LETTERS = 300_000


async def code_of(client: Watcher, uri: str) -> int:
    with pytest.raises(RPCError) as failed:
        await client.request("resourceRead", {"uri": uri})
    return failed.value.code


def blocks_of(turn: dict[str, Any]) -> list[dict[str, Any]]:
    [call] = [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]
    content: list[dict[str, Any]] = call["content"]
    return content


@pytest.mark.rule("R156", "R172", "R339", "R381")
async def test_a_large_result_is_a_reference_that_clients_of_the_tenant_read(server: Server, model: ModelServer) -> None:
    script = model.script([steps.call("verbose", {"letters": LETTERS}, id="v/1")], [steps.text("done")])
    async with watching(server, server.keys.alice, "one") as one, watching(server, server.keys.bob, "other") as other:
        uri = await create_session(one, "pilot", config={"approval": "auto"})
        turn = await run_turn(one, uri, script)
        text, reference = blocks_of(turn)
        assert text["type"] == "text"
        assert len(text["text"]) < 5_000
        assert (reference["type"], reference["sizeHint"], reference["contentType"]) == ("resource", LETTERS, "text/plain")
        # The snapshot shows the same.
        await one.check(uri)
        read = await one.request("resourceRead", {"uri": reference["uri"]})
        assert (read["data"], read["encoding"], read["contentType"]) == ("x" * LETTERS, "utf-8", "text/plain")
        there = reference["uri"]
        assert await code_of(other, there) == -32006
        name = there.rpartition("/content/")[2]
        for wrong in (
            name.replace("result-0-", "result-1-"),
            name.replace("result-0-", "result-00-"),
            name.replace("result-0-", "result-99999999-"),
            name.replace("%2F", "/"),
            name + "x",
            "result-0-",
            "result-",
            "result-0-%00",
        ):
            assert await code_of(one, f"{uri}/content/{wrong}") == -32006, wrong
        await one.request("disposeSession", {"session": uri})
        assert await code_of(one, there) == -32006


def test_applications_get_the_whole_result(alice: Client, model: ModelServer) -> None:
    script = model.script([steps.call("verbose", {"letters": LETTERS}, id="v")], [steps.text("done")])
    session = alice.create({"name": "pilot", "tools": [{"name": "verbose", "trust": True}]})
    assert alice.turn(session, {"role": "user", "content": script}).results["v"] == "x" * LETTERS
