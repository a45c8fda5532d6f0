"""Turns whose agent runs commands: a real sandbox, a terminal service and a worker in this process, the scripted model."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from agents_app import tracing
from agents_app.outbound.policy import Policy
from agents_app.spec import AgentSpec, ToolSpec
from agents_app.tools.signature import describe
from agents_app.tools.source import BUILTINS
from sessions_app.core import turns
from sessions_app.core.base import journal_keys
from sessions_app.core.sessions import state
from sessions_app.core.terminals import access, changing, disposing, listing, services
from sessions_app.core.terminals.service import Service
from sessions_app.core.terminals.types import Claim
from sessions_app.core.turns import Permission
from sessions_app.core.workspaces import volume
from sessions_app.models import Session, Terminal, TerminalService, ToolCall
from tests.core.conftest import World, wait_for, wait_for_state
from tests.core.dispatching import events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.core.worker.test_file_tools import results, trusted
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

TOOLS = ("run_command", "write_file")


@pytest.fixture
def volume_directory(settings: Any, tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(0o755)
    settings.AGENTHOST_WORKSPACES_DIR = tmp_path / "workspaces"
    settings.AGENTHOST_TERMINALS = True
    settings.AGENTHOST_RENEW_SECONDS = 0.2
    settings.AGENTHOST_SWEEP_SECONDS = 0.1
    volume.forget()
    yield tmp_path / "workspaces"
    volume.forget()


@pytest.fixture
def coder(agents: Callable[..., AgentSpec], volume_directory: Path) -> AgentSpec:
    return agents(tools=tuple(ToolSpec(name, f"builtin:{name}", None, *describe(BUILTINS[name])) for name in TOOLS))


@pytest.fixture
def service(coder: AgentSpec) -> Iterator[Service]:
    service = Service()
    service.start()
    assert not service.fault
    yield service
    service.stop()


def play(world: World, model: ModelServer, session: Session, *commands: dict[str, Any]) -> list[str]:
    """Run a turn with these commands, one a step; the results."""
    before = len(results(session))
    scripted = [[call("run_command", arguments, id=f"{before}-{number}")] for number, arguments in enumerate(commands)]
    accepted = world.say(session, model.script(*scripted, [text("done")]))
    assert wait_for_state(accepted, "done", "error").state == "done"
    return results(session)[before:]


def begin(world: World, model: ModelServer, session: Session, command: str, shows: str) -> tuple[turns.Accepted, Terminal]:
    """Start a turn with this command, and wait until its terminal shows a text."""
    script = model.script([call("run_command", {"command": command}, id="c")], [text("done")])
    accepted = world.say(session, script)
    terminal: Terminal = wait_for(lambda: Terminal.objects.filter(claim_call="c").first(), "a terminal")
    wait_for(lambda: shows in printed(terminal), "its output")
    return accepted, terminal


def printed(terminal: Terminal) -> str:
    key = journal_keys.of_terminal(terminal.pk)
    return "".join(payload["delta"] for _, payload in events(Session(pk=key, tenant_id=terminal.tenant_id), "terminal_data"))


def programs(mark: str) -> int:
    """The processes of this machine whose command line begins with a text."""
    found = 0
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += each.read_bytes().startswith(mark.encode())
        except OSError:
            continue
    return found


@pytest.mark.rule("R305", "R314")
def test_commands_end_with_their_codes_and_their_output(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted(*TOOLS))
    fine, failing, flood, lost, bad = play(
        alice,
        model,
        session,
        {"command": "mkdir src && cd src && printf '\\033[1mhello\\033[0m\\n10%%\\r100%%\\n'; env; tty >/dev/null && pwd"},
        {"command": "pwd; exit 3", "cwd": "src"},
        {"command": "seq 1 30000; echo end >&2"},
        {"command": "kill -9 $$"},
        {"command": "ls", "cwd": "none"},
    )
    root = f"/sessions/{session.public_id}"
    assert re.match(r"Exit code 0 after \d+\.\d s\.\nhello\n100%\n", fine), fine
    assert fine.endswith(f"\n{root}/src")
    assert "AGENTHOST_" not in fine
    assert all(value not in fine for name, value in os.environ.items() if "URL" in name or "KEY" in name)
    assert re.fullmatch(rf"Exit code 3 after .* s\.\n{root}/src", failing)
    assert flood.startswith("Exit code 0 ")
    assert "\n1\n2\n3\n" in flood
    assert flood.endswith("\n30000\nend")
    assert re.search(r"\n\[1\d\d,\d{3} characters with \d\d,\d{3} line ends of the output are left out here\]\n", flood)
    assert len(flood) < 34_000
    assert lost.startswith("Killed after")
    assert bad == "Tool execution failed: none does not exist; list_files shows what does"
    # Nothing is left of the terminals: the results have the output.
    assert not Terminal.objects.exists()
    assert not listing.of(alice.caller.tenant)
    shown = [payload["content"] for _, payload in events(session, "call_content_changed")]
    assert [block["type"] for blocks in shown for block in blocks] == ["terminal"] * 4
    assert shown[1][0]["title"] == "pwd; exit 3"


def test_a_command_sees_its_place_in_the_trace(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer
) -> None:
    spans: list[tracing.Span] = []
    sent = tracing.Context("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", sampled=True)
    start_worker()
    session = alice.session(tools=trusted("run_command"))
    tracing.install(tracing.Tracing(spans.append))
    try:
        with tracing.span("request", parent=sent):
            (shown,) = play(alice, model, session, {"command": "echo at $TRACEPARENT"})
        wait_for(lambda: any(each.name == "run" for each in spans), "the end of the run")
    finally:
        tracing.install(None)
    call = next(each for each in spans if each.name == "execute_tool run_command")
    assert call.context is not None
    assert f"at {call.context.traceparent}" in shown


def test_commands_reach_the_hosts_that_their_agent_lists_if_the_operator_allows_any(
    alice: World, agents: Callable[..., AgentSpec], service: Service, start_worker: Any, model: ModelServer, settings: Any
) -> None:
    settings.AGENTHOST_SANDBOX_NETWORK_POLICY = Policy.of([f"127.0.0.1:{model.port}"], [80])
    tool = ToolSpec("run_command", "builtin:run_command", None, *describe(BUILTINS["run_command"]))
    agents(tools=(tool,), network=(f"127.0.0.1:{model.port}",))
    start_worker()
    session = alice.session(tools=trusted("run_command"))

    def fetched(url: str) -> str:
        line = f"exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' >&3 && head -1 <&3"
        (result,) = play(alice, model, session, {"command": line})
        return result

    assert "Connection refused" in fetched(f"http://127.0.0.1:{model.port}/none")
    settings.AGENTHOST_SANDBOX_NETWORK = "agents"
    assert "HTTP/1.1 404" in fetched(f"http://127.0.0.1:{model.port}/none")
    refused = fetched("http://example.com/")
    assert (
        "403 Forbidden: the host is not in the list of hosts that this sandbox may reach (workspace.network of the agent)"
        in refused
    )


# Sets the title, moves the cursor, asks for the device's name, links, reverses the writing, and would run in a page.
HOSTILE = (
    "\\033]0;title\\007\\033[2J\\033[6n\\033P+q544e\\033\\\\\\033]8;;javascript:alert(1)\\007link\\033]8;;\\007"
    "\\302\\233\\061m<script>alert(1)</script><img src=x onerror=alert(1)>\\n"
)


def test_control_sequences_and_markup_of_a_program_do_nothing_in_the_operators_browser(
    alice: World,
    coder: AgentSpec,
    service: Service,
    start_worker: Any,
    model: ModelServer,
    client: Client,
    django_user_model: Any,
) -> None:
    start_worker()
    session = alice.session(tools=trusted("run_command"))
    (result,) = play(alice, model, session, {"command": f"printf '{HOSTILE}'"})
    assert "<script>alert(1)</script>" in result
    assert "\x1b" not in result
    assert "\x9b" not in result
    client.force_login(django_user_model.objects.create_superuser("operator"))
    page = client.get(f"/admin/sessions_app/session/{session.pk}/change/").content.decode()
    assert "&lt;script&gt;alert(1)" in page
    for sign in ("<script>alert", "<img src=x", 'href="javascript', "\x1b", "\x9b", "\x07"):
        assert sign not in page


@pytest.mark.rule("R305")
def test_a_command_is_killed_at_its_time_limit(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    mark = "over-its-time"
    session = alice.session(tools=trusted(*TOOLS))
    command = f"echo began; (exec -a {mark} sleep 1000) & exec -a {mark} sleep 1000"
    for limit in (1, 5, 15):
        [result] = play(alice, model, session, {"command": command, "timeout": limit})[-1:]
        if result.endswith("began"):
            break  # A busy machine may need longer to the first word.
    assert result == f"Killed with all its processes at the time limit of {limit} s. Its output until then:\nbegan"
    wait_for(lambda: not programs(mark), "the end of the processes")
    assert not Terminal.objects.exists()


@pytest.mark.rule("R305")
def test_cancelling_the_turn_kills_the_command(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The run does it at once; the sweep is for dead workers.
    monkeypatch.setattr(disposing, "abandoned", lambda _most: [])
    start_worker()
    mark = "cancelled-command"
    session = alice.session(tools=trusted(*TOOLS))
    accepted, terminal = begin(alice, model, session, f"echo up$((1)); exec -a {mark} sleep 1000", "up1")
    wait_for(lambda: programs(mark) == 1, "the program")
    assert Claim.read(terminal.claim).document() == {
        "session": state.read(alice.caller, session).summary.uri,
        "turn": accepted.public_id,
        "call": "c",
        "id": session.public_id,
        "agent": session.agent_name,
        "family": "",
    }
    turns.cancel(alice.caller, session)
    wait_for(lambda: not programs(mark), "the end of the process")
    wait_for(lambda: not Terminal.objects.exists(), "the end of the terminal")


@pytest.mark.rule("R306", "R314")
def test_a_user_puts_a_command_into_the_background(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=trusted(*TOOLS))
    accepted, terminal = begin(alice, model, session, "echo serving; read line; echo got $line; exit 4", "serving")
    uri = Claim.read(terminal.claim).session
    changing.claim(alice.caller, terminal, Claim(session=uri), "me", dispatched=None)
    assert wait_for_state(accepted, "done", "error").state == "done"
    [result] = results(session)
    assert re.match(r"A user has put the command into the background after .* It continues without you", result)
    assert result.endswith(" Its output so far:\nserving")
    # The terminal stays, and is the session's.
    changing.type_into(alice.caller, access.find(alice.caller, terminal.uri), "it\n", dispatched=None)
    wait_for(lambda: Terminal.objects.get(pk=terminal.pk).exit_code == 4, "the exit")
    assert "got it" in printed(terminal)
    [part] = [part.call for turn in state.read(alice.caller, session).turns for part in turn.parts if part.call is not None]
    assert part.shown == [{"type": "terminal", "resource": terminal.uri, "title": terminal.title}]
    services.sweep(terminal.requested_at)
    assert Terminal.objects.filter(pk=terminal.pk).exists()


@pytest.mark.rule("R308")
def test_a_command_whose_service_is_gone_has_an_unknown_outcome_and_is_not_repeated(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_worker()
    mark = "of-a-lost-service"
    session = alice.session(tools=trusted(*TOOLS))
    accepted, _ = begin(alice, model, session, f"echo up$((1)); exec -a {mark} sleep 1000", "up1")

    def frozen(_service: str, _fault: str = "") -> dict[int, int]:
        raise OperationalError

    # As if the process was killed: it does not renew its lease any more.
    monkeypatch.setattr(services, "renew", frozen)
    TerminalService.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    assert wait_for_state(accepted, "done", "error").state == "done"
    [result] = results(session)
    assert result.startswith("Tool execution failed: the command's outcome is unknown: the process that ran it is gone.")
    assert "up1" in result
    wait_for(lambda: not programs(mark), "the end of the process")
    assert ToolCall.objects.get(session=session).failed
    assert Terminal.with_disposed.count() == 1


def test_a_command_needs_a_permission_and_a_terminal(
    alice: World, coder: AgentSpec, volume_directory: Path, start_worker: Any, model: ModelServer, settings: Any
) -> None:
    start_worker()
    settings.AGENTHOST_TERMINALS = False
    session = alice.session(tools=[{"name": "run_command"}])
    accepted = alice.say(session, model.script([call("run_command", {"command": "ls"}, id="c")], [text("done")]))
    wait_for_state(accepted, "waiting")
    wait_for_state(alice.answer(session, Permission(0, "c", granted=True)), "done")
    assert results(session) == [
        "Tool execution failed: the command was not run: terminals are off on this server (AGENTHOST_TERMINALS)"
    ]


def test_commands_at_once_are_limited_by_session(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer, settings: Any
) -> None:
    start_worker()
    settings.AGENTHOST_SESSION_TERMINALS = 1
    session = alice.session(tools=trusted(*TOOLS))
    # The first one waits for the second one's result, which is that it may not run.
    both = [call("run_command", {"command": "sleep 1000"}, id=f"c{n}", index=n) for n in range(2)]
    alice.say(session, model.script(both, [text("done")]))
    refused = wait_for(lambda: ToolCall.objects.filter(session=session, failed=True).first(), "a refusal")
    assert "this session has 1 terminals, which is the limit (AGENTHOST_SESSION_TERMINALS)" in refused.result
    turns.cancel(alice.caller, session)
    wait_for(lambda: not Terminal.objects.exists(), "the end of the terminal")


def test_the_terminal_of_a_call_that_no_worker_serves_any_more_is_disposed(
    alice: World, coder: AgentSpec, service: Service, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = alice.session(tools=trusted(*TOOLS))
    start_worker()
    # As if the worker had died: it disposes of nothing.
    mark, dispose = "of-a-dead-worker", disposing.dispose_for_call
    monkeypatch.setattr("sessions_app.core.terminals.agent_commands.SessionCommands._dispose_soon", lambda *_: None)
    begin(alice, model, session, f"echo up$((1)); exec -a {mark} sleep 1000", "up1")
    swept: list[int] = []

    def note(terminal: int) -> bool:
        swept.append(terminal)
        return dispose(terminal)

    monkeypatch.setattr(disposing, "dispose_for_call", note)
    turns.cancel(alice.caller, session)
    wait_for(lambda: not programs(mark), "the end of the process")
    assert swept
