"""MCP servers with real Agenthost servers: tools in /meta, permissions, identities, outages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, start_turn, text_of, wait_for_end
from tests.e2e.ahp_watcher import watching
from tests.e2e.client import Client, grant
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.mcp_server import McpServer, serving
from tests.fakes.model_server import ModelServer

FILE = """
[[agents]]
name = "docker"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-docker"
instructions = "Be brief."
[[agents.tools]]
builtin = "calculator"
[[agents.mcp]]
name = "harbour"
url = "{harbour}"

[[agents]]
name = "agent-of-its-own"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-private"
[[agents.options]]
type = "secret"
name = "token"
[[agents.mcp]]
name = "private"
url = "{private}"
headers = {{ Authorization = "Bearer {{token}}" }}
include = ["who_am_i", "visits"]
"""
HERS, HIS = "hers-canary-4a1", "his-canary-9c2"


@dataclass
class Scene:
    server: Server
    harbour: McpServer
    private: McpServer

    @property
    def alice(self) -> Client:
        return self.server.alice


@pytest.fixture(scope="module", params=servers.shapes())
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("mcp") / request.param
    directory.mkdir()
    with serving() as harbour, serving(old=True, tokens={HERS: "Ada", HIS: "Bob"}) as private:
        path = directory / "servers.toml"
        path.write_text(FILE.format(model=_model_server.url, harbour=harbour.url, private=private.url))
        environment = {"AGENTHOST_AGENTS_FILE": str(path), **servers.DEFAULT_LEASES}
        with servers.running(request.param, directory, _model_server.url, environment=environment) as server:
            yield Scene(server, harbour, private)


def eventually(holds: Callable[[], Any], seconds: float = 90) -> Any:
    until = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.1)
    return found


def ready(server: Server) -> httpx.Response:
    return httpx.get(server.origin() + "/readyz", timeout=30, trust_env=False, verify=False)


def tools(client: Client, agent: str = "docker") -> list[dict[str, Any]]:
    return list(client.agent(agent).get("tools") or [])


@pytest.mark.rule("A16")
def test_meta_has_the_tools_of_mcp_servers(scene: Scene) -> None:
    eventually(lambda: len(tools(scene.alice)) > 1)
    found = {tool["name"]: tool for tool in tools(scene.alice)}
    assert list(found)[:3] == ["calculator", "read_file", "who_am_i"]
    assert found["read_file"] == {
        "name": "read_file",
        "title": "Reads a file",
        "description": "Reads one file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
    assert "odd_name_with_spaces" in found
    assert tools(scene.alice, "agent-of-its-own") == []


def test_a_servers_tool_is_enabled_asked_for_and_run(scene: Scene, model: ModelServer) -> None:
    alice = scene.alice
    session = alice.create({"name": "docker", "tools": [{"name": "read_file"}]})
    prompt = model.script([steps.call("read_file", {"path": "log"}, id="r1")], [steps.text("read")])
    first = alice.turn(session, prompt)
    assert first.stop == "tool_use"
    assert first.calls[0]["name"] == "read_file"
    second = alice.turn(session, grant("r1"))
    assert (second.stop, second.text) == ("end_turn", "read")
    assert second.results == {"r1": "what stands in log"}
    assert alice.refused(session, "again", agent={"tools": [{"name": "no_such_tool"}]})


def test_images_of_a_servers_tool_reach_the_history(scene: Scene, model: ModelServer) -> None:
    alice = scene.alice
    session = alice.create({"name": "docker", "tools": [{"name": "everything", "trust": True}]})
    done = alice.turn(session, model.script([steps.call("everything", {}, id="e1")], [steps.text("seen")]))
    assert done.stop == "end_turn"
    kinds = [block["type"] for block in done.results["e1"]]
    assert kinds.count("image") == 2
    assert kinds.count("text") == 6


def test_two_sessions_share_no_mcp_connection(scene: Scene, model: ModelServer) -> None:
    alice = scene.alice
    for token, who in ((HERS, "Ada"), (HIS, "Bob")):
        session = alice.create({"name": "agent-of-its-own", "options": {"token": token}})
        prompt = model.script([steps.call("who_am_i", {}, id="w"), steps.call("visits", {}, id="v", index=1)], [steps.text("ok")])
        assert alice.turn(session, prompt).stop == "tool_use"
        done = alice.turn(session, grant("w"), grant("v"))
        assert done.results == {"w": who, "v": "1"}
        assert token not in str(alice.history(session)) + str(alice.session(session))
    pairs = {(request.session, request.authorization) for request in scene.private.requests if request.session}
    assert len({session for session, _ in pairs}) == len(pairs) >= 2
    log = scene.server.log_text()
    assert "canary" not in log
    assert not any(session in log for session, _ in pairs if session)


def test_without_a_secret_the_agent_works_and_reports_the_missing_secret(scene: Scene, model: ModelServer) -> None:
    alice = scene.alice
    prompt = model.script([steps.text("ahoy")])
    assert alice.turn(alice.create("agent-of-its-own"), prompt).text == "ahoy"
    assert "cannot be used at the moment: private" in str(model.requests_of(prompt)[0].body["messages"])


def test_an_mcp_server_that_goes_down_and_recovers(scene: Scene, model: ModelServer) -> None:
    alice, known = scene.alice, tools(scene.alice)
    session = alice.create({"name": "docker", "tools": [{"name": "who_am_i", "trust": True}]})

    def ask() -> Any:
        return alice.turn(session, model.script([steps.call("who_am_i", {}, id=None)], [steps.text("ok")])).results

    assert list(ask().values()) == ["nobody"]
    scene.harbour.stop()
    try:
        assert list(ask().values()) == ["Tool execution failed: the MCP server harbour cannot be reached"]
        assert tools(alice) == known
        assert ready(scene.server).status_code == 200
        eventually(lambda: ready(scene.server).json()["mcp"]["down"] == 1)
    finally:
        scene.harbour.start()
    eventually(lambda: ready(scene.server).json()["mcp"]["down"] == 0)
    assert list(ask().values()) == ["nobody"]


def test_a_tool_added_by_an_mcp_server_appears_in_meta_after_its_notification(scene: Scene) -> None:
    eventually(lambda: scene.harbour.listened)
    scene.harbour.add("brand_new")
    eventually(lambda: "brand_new" in {tool["name"] for tool in tools(scene.alice)})


async def test_a_servers_question_is_an_input_request_of_the_session(scene: Scene, model: ModelServer) -> None:
    server = scene.server
    async with watching(server, server.keys.alice, "asked") as client:
        uri = await create_session(client, "docker", config={"approval": "auto"})
        assert {"calculator", "read_file"} <= {tool["name"] for tool in client.state(uri)["serverTools"]}
        turn = await start_turn(client, uri, model.script([steps.call("ask", {}, id="a1")], [steps.text("thanks")]))
        await client.until(lambda: client.state(uri).get("inputRequests"), 60)
        request = client.state(uri)["inputRequests"][0]
        assert request["message"] == "Which ship?"
        assert [question["id"] for question in request["questions"]] == ["name", "length", "side", "tugs"]
        await client.check(uri)
        answers = {
            "name": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}},
            "side": {"state": "submitted", "value": {"kind": "selected", "value": "port"}},
        }
        complete = {"type": "session/inputCompleted", "session": uri, "requestId": request["id"], "response": "accept"}
        echo = await client.echo(await client.dispatch({**complete, "answers": answers}))
        assert "rejectionReason" not in echo, echo
        ended = await wait_for_end(client, uri, turn)
        assert text_of(ended) == "thanks"
        assert "inputRequests" not in client.state(uri)
        await client.check(uri)
        assert "accept: {'name': 'Ada', 'side': 'port'}" in str(ended)


def test_elicitation_by_an_mcp_server_is_declined_over_aap(scene: Scene, model: ModelServer) -> None:
    alice = scene.alice
    session = alice.create({"name": "docker", "tools": [{"name": "ask", "trust": True}]})
    done = alice.turn(session, model.script([steps.call("ask", {}, id="a")], [steps.text("ok")]))
    assert done.results == {"a": "decline: None"}


def test_check_agents_reports_what_the_server_sees(scene: Scene, tmp_path: Path) -> None:
    file = scene.server.environment["AGENTHOST_AGENTS_FILE"]
    said = scene.server.manage("check_agents", file, "--connect")
    assert "docker MCP server harbour: http://127.0.0.1" in said
    assert "needs each session's own token" in said
