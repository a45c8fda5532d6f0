"""MCP servers that are started as programs: real programs in real sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from agents_app import registry
from agents_app.errors import ToolFailed
from agents_app.fair.threads import FairPool
from agents_app.mcp import pool as module
from agents_app.mcp import programs, stdio
from agents_app.mcp.access import access
from agents_app.mcp.catalogue import catalogue
from agents_app.mcp.connection import Connection
from agents_app.mcp.listing import source
from agents_app.mcp.pool import pool
from agents_app.mcp.toolset import WithServers
from agents_app.runtime.interface import Ask, FormAnswer, Limits
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec, McpSpec, ProgramSpec, ToolSpec
from agents_app.tools.toolset import ServerTools
from sessions_app.core.programs import launcher, private
from sessions_app.workspace import sandbox
from sessions_app.workspace.outlet import PORT
from tests.fakes.mcp_program import COMMAND, TOOLS
from tests.mcp_lists import wait_for_lists

LIMITS = Limits(connect=5, tool_seconds=60, tool_output_bytes=100_000)


@pytest.fixture(scope="module", autouse=True)
def _a_sandbox_can_be_had() -> None:
    if reason := sandbox.check():
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _commands_are_on(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.AGENTHOST_MCP_COMMANDS = True
    wait_for_lists(monkeypatch)


@pytest.fixture(autouse=True)
async def _nothing_stays() -> AsyncIterator[None]:
    before = left_directories()
    yield
    await pool().close()
    await eventually(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("mcp")])
    await eventually(lambda: not stdio._closing)
    # Another process may run programs at the same time.
    await eventually(lambda: left_directories() <= before)


def left_directories() -> set[str]:
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(private.PREFIX)}  # noqa: PTH208


async def eventually(holds: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        await asyncio.sleep(0.01)


def tools(
    owner: str = "one session",
    tenant: int | None = 1,
    limits: Limits = LIMITS,
    values: Mapping[str, str] | None = None,
    timeout: float | None = None,
    command: tuple[str, ...] = COMMAND,
    **given: Any,
) -> WithServers:
    spec = McpSpec("harbour", program=ProgramSpec(command, **given))
    specs = [ToolSpec(name, source("harbour", name), timeout=timeout) for name in TOOLS]
    own = ServerTools([], FairPool(1), "tenant", limits)
    return WithServers(own, specs, {"harbour": access(spec, values or {}, limits, owner, tenant)}, limits)


async def call(name: str, arguments: Mapping[str, Any] | None = None, **given: Any) -> Content:
    ask: Ask | None = given.pop("ask", None)
    return await tools(**given).run(name, arguments or {}, ask)


async def failure(name: str, arguments: Mapping[str, Any] | None = None, **given: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await call(name, arguments, **given)
    return caught.value.reason


async def found(name: str, **given: Any) -> dict[str, Any]:
    text = await call(name, **given)
    assert isinstance(text, str)
    read: dict[str, Any] = json.loads(text)
    return read


def running(mark: str) -> list[int]:
    """The processes of this machine with ``mark`` on their command line."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    pids.append(int(entry.name))
    return pids


# --- what it sees ---


async def test_a_program_sees_its_own_variables_an_empty_directory_and_nothing_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTHOST_CANARY", "canary-of-the-server")
    seen = await found("where", env={"TOKEN": "Bearer {token}", "MISSING": "{none}"}, values={"token": "canary", "none": ""})
    environment = seen["environment"]
    assert environment["TOKEN"] == "Bearer canary"
    assert environment["HOME"] == seen["directory"] == "/private"
    assert environment.keys() <= {
        "TOKEN",
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "TERM",
        "PWD",
        "SHLVL",
        "_",
        "LC_CTYPE",
    }
    assert seen["files"] == []
    assert len(seen["processes"]) < 5
    assert await call("write", {"path": "note", "text": "mine"}) == "written"
    assert await call("read", {"path": "/private/note"}) == "mine"
    assert "Errno" in await failure("read", {"path": str(Path(__file__))})
    assert "Errno" in await failure("write", {"path": "/usr/note", "text": "mine"})


async def test_a_program_without_network_reaches_nobody_and_one_with_it_the_proxy_if_the_operator_allows_it(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert "Error" in await failure("reach", {"port": port})
        assert await failure("reach", {"port": port}, network=True) == "the MCP server harbour cannot be started on this server"
        assert "AGENTHOST_SANDBOX_NETWORK" in caplog.text
        settings.AGENTHOST_SANDBOX_NETWORK = "agents"
        assert "Error" in await failure("reach", {"port": port}, network=True, owner="a")
        assert await call("reach", {"port": PORT}, network=True, owner="a") == "reached"
        assert "Error" in await failure("reach", {"port": PORT}, owner="b")
        settings.AGENTHOST_UNSAFE_SANDBOX_MACHINE_NETWORK = True
        assert await call("reach", {"port": port}, network=True, owner="c") == "reached"


async def test_directories_of_the_operator_can_be_read_at_their_place_and_not_changed(settings: Any) -> None:
    place = next(path for path in (Path("/srv"), Path("/opt"), Path("/mnt"), Path("/media")) if path.is_dir())
    settings.AGENTHOST_MCP_MOUNTS = (place,)
    seen = await found("where", env={"LOOK_AT": str(place)})
    assert seen["files"] == os.listdir(place)  # noqa: PTH208
    assert "Read-only" in await failure("write", {"path": f"{place}/note", "text": "x"})
    settings.AGENTHOST_MCP_MOUNTS = (place / "no-such-directory",)
    assert await failure("count", owner="another") == "the MCP server harbour cannot be started on this server"


# --- who shares it ---


async def test_each_session_has_a_process_of_its_own() -> None:
    assert [await call("count", owner=owner) for owner in ("one", "two", "one")] == ["1", "1", "2"]


async def test_sessions_of_a_tenant_may_share_a_process_and_those_of_two_tenants_never_do() -> None:
    shared: dict[str, Any] = {"per": "tenant", "env": {"TOKEN": "{token}"}}
    callers = [("one", 1, "a"), ("two", 1, "a"), ("three", 2, "a"), ("one", 1, "b"), ("four", 1, "a")]
    counts = [
        await call("count", owner=owner, tenant=tenant, values={"token": token}, **shared) for owner, tenant, token in callers
    ]
    # The third has another tenant, the fourth another secret.
    assert counts == ["1", "2", "1", "1", "3"]


async def test_a_tenant_and_a_worker_have_a_limited_number_of_processes(settings: Any) -> None:
    settings.AGENTHOST_TENANT_MCP_PROCESSES, settings.AGENTHOST_MCP_PROCESSES = 2, 3
    busy = [asyncio.create_task(call("hang", owner=owner, timeout=600)) for owner in ("a", "b")]
    await eventually(lambda: sum(each.busy for each in pool()._opened.values()) == 2)
    assert await failure("count", owner="c") == "the MCP server harbour has too many connections already"
    assert await call("count", owner="d", tenant=2) == "1"
    # The one of the other tenant is idle: it makes room.
    assert await call("count", owner="e", tenant=3) == "1"
    assert pool().size == 3
    assert await call("count", owner="d", tenant=2) == "1"
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)
    assert await call("count", owner="c") == "1"


# --- its end ---


async def test_an_idle_program_is_ended_with_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    await call("count", idle_seconds=0.1, command=(*COMMAND, "idle-mark-1"))
    await eventually(lambda: pool().size == 0)
    await eventually(lambda: not running("idle-mark-1"))


async def test_the_program_of_a_deleted_session_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: set[str] = set()

    async def deleted(sessions: Any) -> set[str]:
        return gone & set(sessions)

    monkeypatch.setattr(programs.launcher(), "deleted", deleted)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    await call("count", owner="stays")
    await call("count", owner="goes")
    gone.add("goes")
    await eventually(lambda: pool().size == 1)
    assert await call("count", owner="stays") == "2"


async def test_a_program_that_dies_in_a_call_is_a_clear_error_and_starts_again_three_times(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    given: dict[str, Any] = {"env": {"TOKEN": "{token}"}, "values": {"token": "canary-17"}}
    for number in range(3):
        assert await failure("crash", {"leave": "86399.25"}, **given) == "the MCP server harbour has ended unexpectedly"
        assert caplog.text.count("it ended with exit code 3") >= number
        if number < 2:
            assert await call("count", **given) == "1"
    await eventually(lambda: not running("86399.25"))
    down = "the MCP server harbour has failed too often and is not started at the moment"
    assert await failure("count", **given) == down
    assert "it has failed 3 times" in caplog.text
    assert "Last: it ended with exit code 3" in caplog.text
    assert await call("count", owner="another session", **given) == "1"
    assert "it goes wrong with ***" in caplog.text
    assert "canary" not in caplog.text
    monkeypatch.setattr(module, "FAILURE_SECONDS", 0.0)
    assert await call("count", **given) == "1"


@pytest.mark.parametrize(
    ("mode", "said", "logged"),
    [
        ("dies", "has ended unexpectedly", "it ended with exit code 4"),
        pytest.param("is silent", "did not answer in time", "it does not answer in time", marks=pytest.mark.slow),
    ],
)
async def test_a_program_that_does_not_begin_is_a_clear_error(
    mode: str, said: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    env = {"MODE": mode, "TOKEN": "canary-18"}
    assert await failure("count", env=env, start_seconds=60.0 if mode == "dies" else 2.0) == f"the MCP server harbour {said}"
    assert logged in caplog.text
    assert "canary" not in caplog.text
    assert pool().size == 0


async def test_a_command_that_does_not_exist_is_a_clear_error(caplog: pytest.LogCaptureFixture) -> None:
    assert await failure("count", command=("no-such-program",)) == "the MCP server harbour has ended unexpectedly"
    assert "it ended with exit code 127: the sandbox does not see the command (AGENTHOST_MCP_MOUNTS" in caplog.text


async def test_a_program_that_takes_too_much_memory_is_killed_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    said = await failure("eat", memory_bytes=64 * 1024**2)
    # Either the program notices, or it is killed.
    assert said.startswith("MemoryError") or said == "the MCP server harbour has ended unexpectedly"


async def test_a_cancelled_call_of_a_program_that_does_not_listen_ends_at_once_and_its_process_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging = asyncio.create_task(call("hang", command=(*COMMAND, "cancel-mark-1"), idle_seconds=0.1))
    await eventually(lambda: any(each.busy for each in pool()._opened.values()))
    hanging.cancel()
    # Not when its time is over, which takes a minute.
    await asyncio.wait_for(asyncio.wait({hanging}), 30)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)
    await call("count", owner="another")
    await pool().close()
    await eventually(lambda: not running("cancel-mark-1"))


async def test_a_call_that_takes_too_long_is_a_failure() -> None:
    assert await failure("hang", timeout=0.5) == "timed out after 0.5 s"


async def test_a_program_that_does_not_read_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio, "WRITE_SECONDS", 0.3)
    deaf = asyncio.create_task(call("hang", timeout=30))
    await eventually(lambda: any(each.busy for each in pool()._opened.values()))
    said = await failure("count", {"filler": "x" * 2_000_000}, timeout=30)
    assert said == "the MCP server harbour did not answer in time"
    assert "it does not read its input" in caplog.text
    with pytest.raises(ToolFailed):
        await deaf


# --- what it prints ---


async def test_lines_that_are_no_messages_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert await call("noise") == "after all"
    assert "mcp_program_prints server=harbour reason=output_is_not_mcp: Server ready!" in caplog.text


async def test_a_program_that_prints_rubbish_is_ended_and_nothing_else_is_disturbed(caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"env": {"TOKEN": "canary-19"}}
    async with heartbeat() as gaps:
        said = await failure("rubbish", **given)
    assert said == "the MCP server harbour gave an answer that cannot be understood"
    assert "100 of its lines in a row are not MCP" in caplog.text
    assert "canary" not in caplog.text
    assert max(gaps) < 1


@pytest.mark.slow
async def test_a_program_that_never_stops_talking_is_slowed_down_and_nothing_else_is_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = 0

    async def listen(_self: Connection, _message: Any) -> None:
        nonlocal heard
        heard += 1

    monkeypatch.setattr(Connection, "_on_message", listen)
    async with heartbeat() as gaps:
        talking = asyncio.create_task(failure("chatter", timeout=2))
        assert await call("count", owner="another") == "1"
        assert await talking == "timed out after 2 s"
    assert max(gaps) < 1
    assert 0 < heard <= 3 * stdio.MOST_MESSAGES


async def test_an_answer_that_is_too_large_fails_its_call_and_the_program_stays() -> None:
    assert await call("count") == "1"
    assert await failure("large", {"bytes": 5_000_000}) == "the MCP server harbour gave an answer that is too large"
    assert await failure("nested") == "the MCP server harbour gave an answer that is too large"
    text = await call("large", {"bytes": 200_000})
    assert isinstance(text, str)
    assert text.endswith("[cut after 100000 bytes]")
    assert await call("count") == "2"


@pytest.mark.slow
async def test_a_line_without_an_end_takes_no_memory_and_ends_with_the_call() -> None:
    async with heartbeat() as gaps:
        assert await failure("endless", timeout=2) == "timed out after 2 s"
    assert max(gaps) < 1


async def test_what_it_complains_of_is_logged_within_limits_and_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    given: dict[str, Any] = {"env": {"TOKEN": "{token}"}, "values": {"token": "canary two words"}}
    assert await call("complain", {"lines": 500}, **given) == "complained"
    await pool().close()
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("mcp_program_errors")]
    assert len(lines) <= 22
    assert lines[0].startswith("mcp_program_errors server=harbour: complaint 0 ***")
    assert max(map(len, lines)) < 1_100
    assert "\x1b" not in "".join(lines)
    assert "canary" not in caplog.text
    assert "480 lines more" in caplog.text


async def test_a_tools_failure_is_told_without_the_values_of_variables() -> None:
    assert await failure("fail", env={"TOKEN": "canary-20"}) == "ValueError: no such berth for ***"


@contextlib.asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """The seconds that this loop worked at a time. Nothing may block it for long, either."""
    worked, passed = [0.0], [0.0]

    async def beat() -> None:
        while True:
            work, clock = time.thread_time(), time.monotonic()
            await asyncio.sleep(0.01)
            worked.append(time.thread_time() - work)
            passed.append(time.monotonic() - clock)

    task = asyncio.create_task(beat())
    try:
        yield worked
    finally:
        task.cancel()
    assert max(passed) < 15, "something blocked the loop"


async def test_arguments_that_are_no_json_fail_their_call_alone() -> None:
    assert await call("count") == "1"
    said = await failure("count", {"x": "\ud800"})
    assert said == "the MCP server harbour answered with an error: the arguments cannot be sent as JSON (-32602)"
    assert await call("count") == "2"


async def test_a_start_that_is_given_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    making, may_make = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(private.PrivateDirectory):
        def __init__(self, uid: int) -> None:
            loop.call_soon_threadsafe(making.set)
            may_make.wait(30)
            super().__init__(uid)

    monkeypatch.setattr(launcher, "PrivateDirectory", Slow)
    before = left_directories()
    given_up = asyncio.create_task(call("count"))
    await making.wait()
    given_up.cancel()
    await pool().close()
    for opening in list(pool()._opening.values()):
        opening.cancel()
    await asyncio.wait({given_up})
    await eventually(lambda: not pool()._opening)
    may_make.set()
    await eventually(lambda: left_directories() <= before)


# --- its questions ---


async def test_the_session_is_asked_and_a_shared_program_gets_no_answer() -> None:
    async def ask(form: Any) -> FormAnswer:
        assert form["message"] == "Which berth?"
        return FormAnswer("accept", {"name": "B"})

    assert await found("ask", ask=ask) == {"action": "accept", "content": {"name": "B"}}
    assert (await found("ask", ask=ask, per="tenant")).get("action") != "accept"


async def test_a_program_that_asks_and_reads_no_answer_is_ended(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MOST_MESSAGES", 1_000_000)
    assert await failure("interrogate") == "the MCP server harbour failed"
    assert "it asks more than 100 questions at the same time" in caplog.text


# --- without a sandbox ---


@pytest.mark.parametrize("why", ["off", "no sandbox", "no launcher"])
async def test_without_a_sandbox_nothing_is_run(
    why: str, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    if why == "off":
        settings.AGENTHOST_MCP_COMMANDS, reason = False, "AGENTHOST_MCP_COMMANDS"
    elif why == "no sandbox":
        reason = "sandboxes need bwrap, which is not installed"
        monkeypatch.setattr(sandbox, "check", lambda **_given: reason)
    else:
        monkeypatch.setattr(programs, "_launcher", None)
        monkeypatch.setattr(programs, "_factory", None)
        reason = "this process starts no MCP servers"
    proof = tmp_path / "it ran"
    assert await failure("count", command=("/bin/sh", "-c", f"touch '{proof}'")) == (
        "the MCP server harbour cannot be started on this server"
    )
    assert reason in caplog.text
    assert not proof.exists()
    assert reason in str(programs.fault())


# --- lists and checks ---

AGENT = """
[[agents]]
name = "a"
model = "demo:"
[[agents.options]]
type = "secret"
name = "token"
[[agents.mcp]]
name = "harbour"
command = COMMAND
start_seconds = 60
include = ["count", "fail"]
"""


def check(tmp_path: Path, lines: str = "", command: tuple[str, ...] = COMMAND) -> tuple[str, str, int]:
    """Standard output, standard error, exit status."""
    path, out, err, status = tmp_path / "agents.toml", StringIO(), StringIO(), 0
    path.write_text(AGENT.replace("COMMAND", json.dumps(command)) + lines)
    try:
        call_command("check_agents", str(path), "--connect", stdout=out, stderr=err)
    except SystemExit as ended:
        status = int(str(ended.code))
    return out.getvalue(), err.getvalue(), status


def test_a_program_is_shown_with_its_tools(tmp_path: Path) -> None:
    out, err, status = check(tmp_path)
    assert "harbour by command python3 (one process per session)" in out
    assert out.splitlines()[-1] == (
        f"a MCP server harbour: command python3: OK (MCP 2025-11-25, tools count, fail; {len(TOOLS) - 2} not taken)"
    )
    assert (err, status) == ("", 0)


def test_a_program_that_needs_each_sessions_secret_is_no_fault_and_one_that_dies_is(tmp_path: Path) -> None:
    out, _, status = check(tmp_path, 'env = { MODE = "needs a token", TOKEN = "{token}" }')
    assert "a MCP server harbour: command python3: needs each session's own token; its tools show when a turn runs" in out
    assert status == 0
    _, err, status = check(tmp_path, 'env = { MODE = "dies", OTHER = "canary-21" }')
    assert "a MCP server harbour: command python3: it ended with exit code 4" in err
    assert status == 1
    assert "canary" not in err


def test_check_agents_names_what_is_missing_for_sandboxes(tmp_path: Path, settings: Any) -> None:
    settings.AGENTHOST_MCP_COMMANDS = False
    _, err, status = check(tmp_path)
    assert "command python3: programs are off on this server (AGENTHOST_MCP_COMMANDS)" in err
    assert status == 1


@pytest.fixture
def _fresh_catalogue() -> Iterator[None]:
    yield
    catalogue.close()


@pytest.mark.usefixtures("_fresh_catalogue")
def test_the_catalogue_runs_a_program_only_until_its_tools_are_listed() -> None:
    spec = McpSpec("harbour", program=ProgramSpec((*COMMAND, "list-mark-1")))
    with registry.use([AgentSpec("pilot", "demo:", mcp=(spec,))]):
        agent = registry.find("pilot")
        assert agent is not None
        assert {tool.name for tool in agent.tools} == set(TOOLS)
        until = time.monotonic() + 30
        while running("list-mark-1"):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert catalogue.standing() == (1, 0)
        assert catalogue.has_programs()


def test_directories_of_processes_that_were_killed_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "_LEFT_SECONDS", -1.0)
    left = Path(tempfile.mkdtemp(prefix=private.PREFIX))
    (left / "tree" / "deep").mkdir(parents=True)
    (left / "tree" / "deep" / "file").write_text("x")
    used = private.PrivateDirectory(sandbox.DEFAULT_OWNER)
    private.remove_left()
    assert not left.exists()
    assert used.contents.is_dir()
    used.remove()
    assert not used.contents.exists()
