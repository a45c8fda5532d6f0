"""Turns whose tools are programs: real programs in real sandboxes, a real worker, real workspaces."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_app import exact_json, registry
from agents_app.mcp import pool
from agents_app.mcp.catalogue import catalogue
from agents_app.spec import AgentSpec, McpSpec, OptionSpec, ProgramSpec
from sessions_app.core.records import stored_messages
from sessions_app.core.sessions import creating, deleting
from sessions_app.core.tenancy import access
from sessions_app.core.workspaces import making, places, volume
from sessions_app.models import AgentDefinition, Session, Turn, Workspace
from sessions_app.workspace import sandbox
from tests.core.conftest import World, wait_for, wait_for_state
from tests.core.dispatching import events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.mcp_program import COMMAND
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]


@pytest.fixture(scope="module", autouse=True)
def _a_sandbox_can_be_had() -> None:
    if reason := sandbox.check():
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _commands_are_on(settings: Any, tmp_path: Path) -> Iterator[None]:
    settings.AGENTHOST_MCP_COMMANDS = True
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "volume"
    volume.forget()
    yield
    catalogue.close()
    volume.forget()


Harbour = Callable[..., None]


@pytest.fixture
def harbour(agents: Callable[..., AgentSpec], alice: World) -> Harbour:
    """Gives the agent the program's tools, which ask nobody."""

    def make(**given: Any) -> None:
        program = ProgramSpec(given.pop("command", COMMAND), **given)
        options = (OptionSpec("secret", "token"),)
        agents(mcp=(McpSpec("harbour", program=program, expose=False),), tools=(), options=options)
        wait_for(lambda: (found := registry.find("sailor")) and found.tools, "the program's list")

    return make


def session_at(world: World, directory: str) -> Session:
    workspace = making.working_directory(world.caller, directory)
    uri = f"sailor:/{next(_numbers)}"
    wanted = creating.ClientSessionRequest(uri, world.agent, directory=directory, workspace=workspace)
    return access.session(world.caller, creating.create(world.caller, wanted).public_id)


_numbers = itertools.count()


def run(world: World, model: ModelServer, session: Session, *steps: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results of these calls, each in a step of its own."""
    before = len(results(session))
    script = model.script(*([call(name, given, id=f"c{at}")] for at, (name, given) in enumerate(steps)), [text("ok")])
    assert wait_for_state(world.say(session, script), "done", "error").state == "done"
    return results(session)[before:]


def results(session: Session) -> list[Any]:
    return [exact_json.loads(line.content) for line in stored_messages.read(session, "full") if line.role == "tool"]


def test_a_program_gets_its_sessions_secret_and_nobody_else_sees_it(
    alice: World, bob: World, harbour: Harbour, start_worker: Any, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    harbour(env={"TOKEN": "{token}", "FIXED": "canary-fixed"})
    start_worker()
    for world, token in ((alice, "canary-hers"), (bob, "canary-his")):
        session = world.session(options={"token": token})
        (failed, counted) = run(world, model, session, ("fail", {}), ("count", {}))
        assert failed == "Tool execution failed: ValueError: no such berth for ***"
        # A process of its own.
        assert counted == "1"
        for stored in (*events(session), *AgentDefinition.objects.values_list("document", flat=True)):
            assert "canary" not in str(stored)
    assert "canary" not in caplog.text
    assert set(Turn.objects.values_list("format", flat=True)) == {3}


def test_a_program_shares_the_sessions_workspace_if_its_file_says_so(
    alice: World, bob: World, harbour: Harbour, start_worker: Any, model: ModelServer
) -> None:
    harbour(workspace="write", command=(*COMMAND, "{workspace}"))
    start_worker()
    one, two, other = (
        session_at(alice, "file:///project/a"),
        session_at(alice, "file:///project/a"),
        session_at(bob, "file:///project/a"),
    )
    note = {"path": "/project/a/note", "text": "from one"}
    seen, written = run(alice, model, one, ("where", {}), ("write", note))
    assert json.loads(seen)["environment"]["AGENTHOST_WORKSPACE"] == "/project/a"
    # Runtimes load code from the directory in which they start.
    assert json.loads(seen)["directory"] == json.loads(seen)["environment"]["HOME"] == "/tmp/home"
    assert written == "written"
    row = Workspace.objects.get(tenant_id=one.tenant_id)
    assert (places.directory_of(row.tenant_id, row.public_id) / "tree" / "note").read_text() == "from one"
    assert run(alice, model, two, ("read", {"path": "/project/a/note"})) == ["from one"]
    (missing,) = run(bob, model, other, ("read", {"path": "/project/a/note"}))
    assert "No such file" in missing


def test_a_program_that_may_only_read_the_workspace_cannot_change_it(
    alice: World, harbour: Harbour, start_worker: Any, model: ModelServer
) -> None:
    harbour(workspace="read")
    start_worker()
    session = alice.session()
    at = f"/sessions/{session.public_id}"
    refused, aside = run(
        alice, model, session, ("write", {"path": f"{at}/x", "text": "x"}), ("write", {"path": "/tmp/x", "text": "x"})
    )
    assert "Read-only file system" in refused
    assert aside == "written"


@pytest.mark.parametrize("directory", ["file:///opt/berths", "file:///tmp/x", "file:///srv/x", "file:///node_modules"])
def test_a_client_cannot_put_its_workspace_in_the_place_of_the_operators_program(
    alice: World, harbour: Harbour, start_worker: Any, model: ModelServer, directory: str, settings: Any
) -> None:
    """Else its own files would run with the operator's secrets."""
    harbour(workspace="write", env={"EXTRA": "/opt/berths/extra.py", "SECRET": "canary"})
    settings.AGENTHOST_MCP_MOUNTS = (Path("/srv"),)
    start_worker()
    (said,) = run(alice, model, session_at(alice, directory), ("count", {}))
    assert said == "Tool execution failed: the MCP server harbour cannot be started on this server"


def test_the_program_of_a_deleted_session_ends(
    alice: World, harbour: Harbour, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LOOK_SECONDS", 0.05)
    harbour()
    worker = start_worker()
    session, other = alice.session(), alice.session()
    for each in (session, other):
        assert run(alice, model, each, ("count", {})) == ["1"]
    (found,) = [each for loop, each in pool._pools.items() if loop is worker.loop]
    assert found.size == 2
    deleting.delete(alice.caller, session)
    wait_for(lambda: found.size == 1, "the end of the program")
    assert run(alice, model, other, ("count", {})) == ["2"]


def test_a_server_that_may_start_no_programs_works_without_their_tools(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer, settings: Any
) -> None:
    settings.AGENTHOST_MCP_COMMANDS = False
    agents(mcp=(McpSpec("harbour", program=ProgramSpec(COMMAND)),), tools=())
    start_worker()
    session = alice.session()
    script = model.script([text("ahoy")])
    assert wait_for_state(alice.say(session, script), "done", "error").state == "done"
    system = model.requests_of(script)[0].body["messages"][0]["content"]
    assert "The tools of these MCP servers cannot be used at the moment: harbour." in system
    assert catalogue.standing() == (1, 1)
