"""The example of a coding agent fixes a failing test in its sandbox, as clients of both protocols see it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions_app.ahp.versions.v0_1.wire.state import ROOT as HOST
from tests.e2e import server as servers
from tests.e2e.ahp_mirror import V0_9, chat_uri, mirroring
from tests.e2e.ahp_steps import call_action, call_of, create_session, start_turn, wait_for_call, wait_for_end
from tests.e2e.ahp_terminals import listed, screen_of, shows, type_into
from tests.e2e.ahp_watcher import Watcher, url_of, watching
from tests.e2e.client import Client, Outcome, grant, user
from tests.e2e.server import Server
from tests.e2e.test_ahp_terminals import MARK, until_available, until_programs
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

pytestmark = pytest.mark.sandbox

EXAMPLE = ROOT / "examples" / "coding_agent"
TESTS = "python3 -m unittest -q"
FAULT = "sum(speeds) / (len(speeds) - 1)"
FIX = "sum(speeds) / len(speeds)"


def _shapes() -> list[Any]:
    """In production a worker, a web process and a terminal service work together; the embedded server is the easier case."""
    *easier, last = servers.shapes()
    return [last, *(pytest.param(shape, marks=pytest.mark.slow) for shape in easier)]


@pytest.fixture(scope="module", params=_shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("coding")
    agents = directory / "example.toml"
    # A provider is one line; here it has an address too.
    provider = f'base_url = "{_model_server.url}"\napi_key = "sk-coder"\ncontext_tokens'
    agents.write_text((EXAMPLE / "agents.toml").read_text().replace("context_tokens", provider, 1))
    environment = {
        "AGENTHOST_TERMINALS": "on",
        "AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces"),
        "AGENTHOST_AGENTS_FILE": str(agents),
    }
    with servers.running(request.param, directory, _model_server.url, environment=environment) as one:
        if one.shape == "production":
            one.start_terminals()
        asyncio.run(until_available(one))
        yield one


def fixing(model: ModelServer) -> str:
    return model.script(
        [steps.call("run_command", {"command": TESTS}, id="red")],
        [steps.call("read_file", {"path": "report.py"}, id="read")],
        [steps.call("edit_file", {"path": "report.py", "old_text": FAULT, "new_text": FIX}, id="edit")],
        [steps.call("run_command", {"command": TESTS}, id="green")],
        [steps.text("The mean divided by one too few. All tests pass.")],
    )


async def until_idle(client: Watcher, uri: str) -> None:
    await client.until(lambda: "activeTurn" not in client.state(uri))


async def until_no_terminal(client: Watcher) -> None:
    await client.until(lambda: not listed(client))


async def exit_code(client: Watcher, terminal: str) -> Any:
    return await client.until(lambda: listed(client)[terminal].get("exitCode"))


@pytest.mark.rule("R172", "R305", "R314", "V167", "V233")
async def test_an_application_lets_the_agent_fix_a_test_while_two_clients_watch(server: Server, model: ModelServer) -> None:
    application = Client(server.origin(), server.keys.alice)
    names = ("list_files", "search_files", "read_file", "edit_file", "run_command")
    tools = [{"name": name, **({"trust": True} if name == "read_file" else {})} for name in names]
    session = await asyncio.to_thread(application.create, {"name": "coder", "tools": tools})
    uri = f"coder:/{session}"
    async with watching(server, server.keys.alice, "one") as one, watching(server, server.keys.alice, "two") as two:
        for client in (one, two):
            await client.subscribe(uri)
        for file in (EXAMPLE / "repository").glob("*.py"):
            place = f"file:///sessions/{session}/{file.name}"
            await one.request("resourceWrite", {"uri": place, "data": file.read_text(), "encoding": "utf-8"})

        def turn(message: dict[str, Any]) -> Outcome:
            return application.turn(session, message)

        asked = await asyncio.to_thread(turn, user(fixing(model)))
        assert (asked.stop, [call["name"] for call in asked.calls]) == ("tool_use", ["run_command"])
        red = await asyncio.to_thread(turn, grant("red"))
        assert re.match(r"Exit code 1 after [\d.]+ s\.\n=====", red.results["red"])
        assert "FAILED (failures=1, errors=1)" in red.results["red"]
        assert FAULT in red.results["read"]
        edited = await asyncio.to_thread(turn, grant("edit"))
        assert f"\n+    return {FIX}\n" in edited.results["edit"]
        green = await asyncio.to_thread(turn, grant("green"))
        assert re.match(r"Exit code 0 after [\d.]+ s\.\n-+\nRan 4 tests in [\d.]+s\n\nOK$", green.results["green"])
        assert green.text == "The mean divided by one too few. All tests pass."
        for client in (one, two):
            await until_idle(client, uri)
            shown = [
                each["action"]["content"]
                for each in client.seen
                if each["action"]["type"] == "session/toolCallContentChanged" and each["action"]["session"] == uri
            ]
            assert [block["title"] for blocks in shown for block in blocks if block["type"] == "terminal"] == [TESTS, TESTS]
            # The results have the output; the terminals are gone.
            await until_no_terminal(client)
            await client.check(uri)
            await client.check(HOST)
        assert one.state(uri)["turns"] == two.state(uri)["turns"]
        assert [each["after"]["uri"] for each in one.state(uri)["summary"]["diffs"]] == [f"file:///sessions/{session}/report.py"]
    await newer_clients_read_how_the_commands_ended(server, f"ahp-session:/{session}")
    application.close()


async def newer_clients_read_how_the_commands_ended(server: Server, uri: str) -> None:
    async with (
        mirroring(url_of(server), server.keys.alice, "newer") as newer,
        mirroring(url_of(server), server.keys.alice, "nine", version=V0_9) as nine,
    ):
        for client in (newer, nine):
            turns = (await client.subscribe(chat_uri(uri)))["turns"]
            blocks = [
                block
                for turn in turns
                for part in turn["responseParts"]
                for block in part.get("toolCall", {}).get("content", [])
                if block["type"] == "terminal"
            ]
            assert [(each["title"], each["result"]["exitCode"]) for each in blocks] == [(TESTS, 1), (TESTS, 0)]
            assert "FAILED (failures=1, errors=1)" in blocks[0]["result"]["preview"]
            for block in blocks:
                state = await client.subscribe(block["resource"])
                assert state["lifecycle"] == {"status": "exited", "exitCode": block["result"]["exitCode"]}
                assert (state["claim"]["session"], state["claim"]["chat"]) == (uri, chat_uri(uri))
                last = block["result"]["preview"].splitlines()[-1]
                assert last in screen_of(client, block["resource"])
            assert listed(client) == {}


@pytest.mark.rule("R306", "R314", "R172")
async def test_two_clients_watch_a_command_and_one_puts_it_into_the_background(server: Server, model: ModelServer) -> None:
    line = 'echo "which port?"; read port; echo "serving at $port"; read end; exit 7'
    script = model.script([steps.call("run_command", {"command": line}, id="serve")], [steps.text("It runs.")])
    async with watching(server, server.keys.alice, "one") as one, watching(server, server.keys.alice, "two") as two:
        uri = await create_session(one, "coder")
        await two.subscribe(uri)
        turn = await start_turn(one, uri, script)
        asked = await wait_for_call(two, uri, "run_command", "pending-confirmation")
        await two.dispatch(
            call_action("toolCallConfirmed", uri, turn, asked["toolCallId"], approved=True, confirmed="user-action")
        )
        call = await one.until(lambda: (call := call_of(one, uri, "run_command")) and call.get("content") and call)
        [block] = call["content"]
        assert (block["type"], block["title"], call["status"]) == ("terminal", line, "running")
        terminal = block["resource"]
        for client in (one, two):
            await client.subscribe(terminal)
            await shows(client, terminal, "which port?")
        claim = {"kind": "session", "session": uri, "turnId": turn, "toolCallId": "serve"}
        assert one.state(terminal)["claim"] == listed(two)[terminal]["claim"] == claim
        assert [part["commandLine"] for part in one.state(terminal)["content"]] == [line]
        await type_into(one, terminal, "8080\n")
        await shows(two, terminal, "serving at 8080")
        await two.dispatch({"type": "terminal/claimed", "terminal": terminal, "claim": {"kind": "session", "session": uri}})
        ended = [await wait_for_end(client, uri, turn) for client in (one, two)]
        assert ended[0] == ended[1]
        [done] = [part["toolCall"] for part in ended[0]["responseParts"] if part["kind"] == "toolCall"]
        result, stays = done["content"]
        assert result["text"].startswith("A user has put the command into the background after ")
        assert result["text"].endswith("serving at 8080")
        assert stays == block
        await type_into(two, terminal, "stop\n")
        for client in (one, two):
            assert await exit_code(client, terminal) == 7
            await client.check(terminal)
            await client.check(uri)
            await client.check(HOST)
        assert one.state(terminal)["content"] == two.state(terminal)["content"]
        await one.request("disposeTerminal", {"terminal": terminal})


@pytest.mark.slow
@pytest.mark.rule("R308")
@pytest.mark.parametrize("killed", ["terminals", "workers"])
async def test_a_command_is_not_repeated_when_a_process_is_killed(server: Server, model: ModelServer, killed: str) -> None:
    if server.shape == "embedded":
        pytest.skip("its one process has all roles")
    command = f"echo once >> log; echo up$((1)); exec -a {MARK} sleep 1000"
    script = model.script(
        [steps.call("run_command", {"command": command}, id="c")],
        [steps.call("read_file", {"path": "log"}, id="r")],
        [steps.text("done")],
    )
    async with watching(server, server.keys.alice, "one") as one:
        uri = await create_session(one, "coder", config={"approval": "auto"})
        turn = await start_turn(one, uri, script)
        call = await one.until(lambda: (call := call_of(one, uri, "run_command")) and call.get("content") and call)
        terminal = call["content"][0]["resource"]
        await one.subscribe(terminal)
        await shows(one, terminal, "up1")
        await until_programs(1)
        getattr(server, killed)[-1].kill()
        if killed == "workers":
            server.start_worker()
        ended = await wait_for_end(one, uri, turn)
        first, log = [part["toolCall"] for part in ended["responseParts"] if part["kind"] == "toolCall"]
        reason = "the command's outcome is unknown" if killed == "terminals" else "interrupted, it may have run"
        assert first["content"][0]["text"].startswith(f"Tool execution failed: {reason}")
        assert log["content"][0]["text"].endswith("1\tonce")
        await until_programs(0)
        await one.until(lambda: terminal not in listed(one))
    if killed == "terminals":
        server.start_terminals()
        await until_available(server)


def test_the_program_of_the_example_brings_the_fixed_file_back(server: Server, model: ModelServer, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "repository", tmp_path / "report", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "report" / "logs" / "may '26").mkdir(parents=True)
    (tmp_path / "report" / "logs" / "may '26" / "1.txt").write_text("calm")
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / "fix.py"), str(tmp_path / "report"), fixing(model)],
        env={
            **os.environ,
            "AGENTHOST_KEY": server.keys.alice,
            "AGENTHOST_URL": server.origin().replace("http", "ws") + "/ahp",
        },
        input="y\n" * 4,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "All tests pass." in ran.stdout
    assert FIX in (tmp_path / "report" / "report.py").read_text()
