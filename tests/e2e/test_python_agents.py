"""Agents written in Python, in real servers: loading, stored state, cancelling, missing code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client, grant
from tests.e2e.server import Server
from tests.fakes.model_server import ModelServer

CODE = '''
import asyncio, pathlib, time
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.test import TestModel
from agents_app.python_agent import Agent, State, ThinkingDelta, ToolCall

HERE = pathlib.Path(__file__).parent


def moor(boat: str) -> str:
    """Moors a boat."""
    return f"{boat} is moored"


class Dock(Agent):
    """Counts the boats of a conversation."""

    instructions = "Speak {language}."
    options = [{"type": "text", "name": "language", "default": "English"}, {"type": "secret", "name": "pin"}]
    tools = [moor]

    async def respond(self, request):
        if not request.results:
            yield ThinkingDelta("a boat")
            yield ToolCall("moor", {"boat": request.text})
            return
        count = (request.state or {"boats": 0})["boats"] + 1
        yield f"{request.results[0].text}, number {count}. "
        yield f"{request.instructions} {'The pin is right.' if request.options['pin'] == '4711' else 'No pin.'}"
        yield State({"boats": count})


class Slow(Agent):
    async def respond(self, request):
        try:
            yield "begun "
            await asyncio.Event().wait()
        finally:
            (HERE / "stopped").touch()


class Blocking:
    def respond(self, request):
        yield "begun "
        time.sleep(0.2)
        yield "ended"


class Breaks(Agent):
    async def respond(self, request):
        yield "half"
        raise ValueError(request.text)


tester = PydanticAgent(TestModel(custom_output_text="tested"), instructions="Test.", tools=[moor])
'''
AGENTS = """
[[agents]]
name = "dock"
python = "wharf:Dock"
[[agents]]
name = "slow"
python = "wharf:Slow"
[[agents]]
name = "blocking"
python = "wharf:Blocking"
[[agents]]
name = "breaks"
python = "wharf:Breaks"
[[agents]]
name = "tester"
python = "wharf:tester"
"""
TRUSTED: dict[str, Any] = {"tools": [{"name": "moor", "trust": True}]}


@pytest.fixture(scope="module", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("wharf")
    (folder / "wharf.py").write_text(CODE)
    (folder / "agents.toml").write_text(AGENTS)
    environment = {"AGENTHOST_AGENTS_FILE": str(folder / "agents.toml")}
    directory = tmp_path_factory.mktemp(request.param)
    with servers.running(request.param, directory, _model_server.url, environment=environment) as running:
        yield running


@pytest.fixture
def alice(server: Server) -> Client:
    return server.alice


def folder_of(server: Server) -> Path:
    return Path(server.environment["AGENTHOST_AGENTS_FILE"]).parent


def restart(server: Server) -> None:
    """Kill everything that runs turns and start it again."""
    server.kill_workers()
    if server.shape == "production":
        server.start_worker()
    else:
        server.start_web(0)
        server.wait_ready(0)


def test_a_class_next_to_the_agents_file_answers_calls_tools_and_keeps_state(alice: Client) -> None:
    session = alice.create({"name": "dock", **TRUSTED, "options": {"language": "Welsh", "pin": "4711"}})
    first = alice.turn(session, "Teal", stream="delta")
    assert [block["name"] for block in first.calls] == ["moor"]
    assert first.text == "Teal is moored, number 1. Speak Welsh. The pin is right."
    assert alice.turn(session, "Dunlin").text == "Dunlin is moored, number 2. Speak Welsh. The pin is right."
    assert "4711" not in str(alice.history(session)) + str(alice.session(session))


def test_state_of_a_python_agent_survives_a_permission_and_a_restart(server: Server, alice: Client) -> None:
    session = alice.create({"name": "dock", **TRUSTED})
    assert alice.turn(session, "Teal").text.startswith("Teal is moored, number 1.")
    waiting = alice.turn(session, "Dunlin", agent={"tools": [{"name": "moor"}]})
    assert waiting.stop == "tool_use"
    restart(server)
    done = alice.turn(session, grant(waiting.calls[0]["toolCallId"]))
    assert done.text.startswith("Dunlin is moored, number 2.")


def test_a_cancel_stops_it_where_it_waits(server: Server, alice: Client) -> None:
    stopped = folder_of(server) / "stopped"

    def cancel_one() -> bool:
        stopped.unlink(missing_ok=True)
        session = alice.create("slow")
        with alice.stream(session, "go") as stream:
            stream.until("text_delta")
            answer = alice.cancel(session)
            stream.rest()
        assert answer["cancelled"] is True
        closed = bool(answer["providerClosed"])
        end = time.monotonic() + 60
        while not stopped.exists():
            assert not closed, "it was said to have stopped"
            assert time.monotonic() < end, "it goes on"
            time.sleep(0.01)
        return closed

    # A cancel waits a second for the agent's end. A machine under pressure may lose one, but not every time.
    assert any(cancel_one() for _ in range(5))


def test_a_blocking_python_agent_runs_in_a_thread(alice: Client) -> None:
    session = alice.create("blocking")
    assert alice.turn(session, "go").text == "begun ended"


def test_an_exception_in_a_python_agent_ends_the_turn_and_the_log_has_no_user_text(server: Server, alice: Client) -> None:
    session = alice.create("breaks")
    outcome = alice.turn(session, "my-private-words")
    assert (outcome.stop, outcome.text) == ("error", "half")
    log = server.log_text()
    assert "Breaks.respond raised" in log
    assert "my-private-words" not in log


def test_a_pydantic_agent_with_a_model_of_its_own_is_asked_and_its_tools_run(alice: Client) -> None:
    session = alice.create({"name": "tester", **TRUSTED})
    outcome = alice.turn(session, "test")
    assert (outcome.text, list(outcome.results.values())) == ("tested", ["a is moored"])


def test_a_worker_without_the_code_ends_the_turn_and_says_what_it_lacks(server: Server, alice: Client, tmp_path: Path) -> None:
    if server.shape != "production":
        pytest.skip("the embedded server has no worker of another mind")
    other = tmp_path / "agents.toml"
    other.write_text('[[agents]]\nname = "demo"\nmodel = "demo:"\n')
    for process in server.workers:
        process.terminate()
        process.stop()
    server.workers.clear()
    server.workers.append(server._start("worker", AGENTHOST_AGENTS_FILE=str(other)))
    try:
        session = alice.create("dock")
        assert alice.turn(session, "Teal").stop == "error"
        assert "cannot import wharf: no such module" in server.log_text()
    finally:
        restart(server)
