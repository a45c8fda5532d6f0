"""AHP: files of workspaces, on servers as they are deployed."""

from __future__ import annotations

import secrets
from typing import Any

import httpx
import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from tests.e2e.ahp_steps import create_session, start_action, wait_for_end
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


async def _write(client: Watcher, uri: str, text: str, **params: Any) -> Any:
    return await client.request("resourceWrite", {"uri": uri, "data": text, "encoding": "utf-8", **params})


@pytest.mark.rule("R154", "R330", "R331", "R332", "R333", "R334", "R335", "R336", "R337", "R382")
async def test_files_of_a_session_are_shared_by_its_clients_and_seen_by_its_model(server: Server, model: ModelServer) -> None:
    folder = "file:///harbour/logs"
    tenant, other = (f"t{secrets.token_hex(4)}" for _ in range(2))
    first, second = server.make_keys(f"{tenant}/one/*/", f"{tenant}/two/*/")
    (stranger,) = server.make_keys(f"{other}/all/*/")
    async with watching(server, first) as client, watching(server, second, "two") as friend, watching(server, stranger) as third:
        uri = await create_session(client, workingDirectory=folder)
        assert await _write(client, f"{folder}/may.txt", "Low water at noon.") == {}
        assert (await friend.request("resourceRead", {"uri": f"{folder}/may.txt"}))["data"] == "Low water at noon."
        with pytest.raises(RPCError) as taken:
            await _write(friend, f"{folder}/may.txt", "mine", createOnly=True)
        assert taken.value.code == -32010
        await friend.request("resourceCopy", {"source": f"{folder}/may.txt", "destination": f"{folder}/june.txt"})
        await friend.request("resourceDelete", {"uri": f"{folder}/may.txt"})
        assert (await client.request("resourceList", {"uri": folder}))["entries"] == [{"name": "june.txt", "type": "file"}]
        prompt = model.script([steps.text("seen")])
        action = start_action(uri, prompt)
        action["userMessage"]["attachments"] = [{"type": "resource", "label": "june", "uri": f"{folder}/june.txt"}]
        await client.dispatch(action)
        await wait_for_end(client, uri, action["turnId"])
        sent = next(str(request.messages[-1]["content"]) for request in model.requests if prompt in str(request.messages))
        assert "Low water at noon." in sent
        for refused in (f"{folder}/june.txt", f"{folder}/none", "file:///etc/passwd", f"{folder}/../../etc/passwd"):
            with pytest.raises(RPCError) as outside:
                await third.request("resourceRead", {"uri": refused})
            assert (outside.value.code, outside.value.data) == (-32009, None)


def test_readyz_reports_the_volume(server: Server) -> None:
    # It tells that a volume does not answer in three seconds, which may happen on a busy machine, but not every time.
    said = (httpx.get(f"{server.origin()}/readyz", trust_env=False, timeout=30).json()["workspaces"] for _ in range(5))
    assert "up" in said
