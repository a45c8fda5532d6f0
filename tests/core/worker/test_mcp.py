"""Turns whose tools stand on MCP servers: real servers on real sockets, a real worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents_app import exact_json, registry
from agents_app.mcp.catalogue import catalogue
from agents_app.spec import AgentSpec, McpSpec, OptionSpec, from_document, to_document
from sessions_app.core import turns
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.records import clients, stored_messages
from sessions_app.core.sessions import connections, forms, state
from sessions_app.core.sessions.inbox import UserMessage
from sessions_app.core.turns import Permission
from sessions_app.models import AgentDefinition, Form, Session, ToolCall, Turn
from tests.core.conftest import World, kinds, turn_of, wait_for, wait_for_state
from tests.core.dispatching import action, events
from tests.core.law import _law_of_states  # noqa: F401 - checked after each test
from tests.fakes.mcp_server import McpServer, serving
from tests.fakes.model_server import ModelServer
from tests.fakes.steps import call, text
from tests.sample_tenants import make_session_of_client

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = OptionSpec("secret", "token")
OWN = {"Authorization": "Bearer {token}"}


WITH_OLD_SERVERS_TOO = (
    "test_a_turn_calls_a_servers_tool_and_the_model_gets_its_result",
    "test_a_servers_question_reaches_the_client_and_its_answer_the_server",
    "test_a_question_is_closed_when_its_call_times_out",
)
"""The others run with servers of before 2026 in the second tier: tests/network compares the two protocol versions."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        marks = [] if metafunc.function.__name__ in WITH_OLD_SERVERS_TOO else [pytest.mark.slow]
        old = pytest.param(True, marks=marks, id="before 2026")
        metafunc.parametrize("server", [pytest.param(False, id="2026"), old], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[McpServer]:
    with serving(old=request.param) as found:
        yield found


@pytest.fixture(autouse=True)
def _fresh_catalogue() -> Iterator[None]:
    yield
    catalogue.close()


@pytest.fixture(autouse=True)
def _nobody_goes_unasked(settings: Any) -> None:
    """No process renews these connections, and a worker's sweep looks at them all the time."""
    settings.AGENTHOST_AHP_PRESENCE_SECONDS = settings.AGENTHOST_AHP_GRACE_SECONDS = 3600.0


@pytest.fixture
def harbour(agents: Callable[..., AgentSpec], server: McpServer, alice: World) -> AgentSpec:
    """The agent with the server's tools; its catalogue has seen them."""
    agents(mcp=(McpSpec("harbour", server.url),), tools=())
    wait_for(lambda: tool_names() >= {"read_file", "ask"}, "the server's list")
    found = registry.find("sailor")
    assert found is not None
    return found


def tool_names() -> set[str]:
    found = registry.find("sailor")
    return {tool.name for tool in found.tools} if found else set()


def enabled(*names: str, trust: bool = True) -> list[dict[str, Any]]:
    return [{"name": name, **({"trust": True} if trust else {})} for name in names]


def results(session: Session) -> list[Any]:
    return [exact_json.loads(line.content) for line in stored_messages.read(session, "full") if line.role == "tool"]


def pending(session: Session, name: str, state: str = "pending") -> ToolCall:
    found: ToolCall = wait_for(
        lambda: ToolCall.objects.filter(session=session, name=name, state=state).first(), f"a {state} call of {name}"
    )
    return found


# --- as any other tool ---


def test_a_turn_calls_a_servers_tool_and_the_model_gets_its_result(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("read_file"))
    script = model.script([call("read_file", {"path": "the log"}, id="r")], [text("read")])
    accepted = alice.say(session, script)
    assert wait_for_state(accepted, "done", "error").state == "done"
    assert results(session) == ["what stands in the log"]
    asked = model.requests_of(script)[0].body["tools"]
    assert [each["function"]["name"] for each in asked] == ["read_file"]
    assert asked[0]["function"]["parameters"]["required"] == ["path"]


def test_a_stopping_worker_closes_its_sessions_with_mcp_servers(
    alice: World, harbour: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    one = start_worker()
    session = alice.session(tools=enabled("visits"))
    wait_for_state(alice.say(session, model.script([call("visits", {}, id="v")], [text("ok")])), "done")
    one.stop(grace=1)
    left = {request.session for request in server.requests if request.method == "DELETE"}
    assert left == set(server.visits) - {""}


def test_a_tool_that_is_not_trusted_runs_when_its_client_allows_it(
    alice: World, harbour: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("who_am_i", trust=False))
    accepted = alice.say(session, model.script([call("who_am_i", {}, id="w")], [text("ok")]))
    row = pending(session, "who_am_i")
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, row.call_id, granted=True))
    wait_for_state(accepted, "done")
    assert results(session) == ["nobody"]


def test_a_tool_that_the_session_has_not_enabled_is_not_there(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("who_am_i"))
    accepted = alice.say(session, model.script([call("read_file", {"path": "x"}, id="r")], [text("ok")]))
    wait_for_state(accepted, "done")
    assert results(session) == ["Tool not found: read_file"]
    with pytest.raises(InvalidInput):
        alice.session(tools=enabled("no_such_tool"))


def test_unexposed_servers_are_always_active_and_never_ask(
    alice: World, agents: Callable[..., AgentSpec], server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    agents(mcp=(McpSpec("harbour", server.url, include=("who_*",), expose=False),), tools=())
    wait_for(lambda: tool_names() == {"who_am_i"}, "the server's list")
    start_worker()
    session = alice.session()
    accepted = alice.say(session, model.script([call("who_am_i", {}, id="w")], [text("ok")]))
    wait_for_state(accepted, "done")
    assert results(session) == ["nobody"]


def test_a_definition_with_a_servers_tools_is_stored_whole_and_without_its_secrets(alice: World, harbour: AgentSpec) -> None:
    session = alice.session(tools=enabled("read_file"))
    alice.say(session, "hello")
    row = AgentDefinition.objects.latest("pk")
    document, hidden = to_document(harbour)
    assert exact_json.loads(row.document) == document
    assert from_document(exact_json.loads(row.document), hidden) == harbour
    assert Turn.objects.get(session=session).format == 2


def test_a_turn_keeps_the_tools_it_started_with(
    alice: World, harbour: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("who_am_i", trust=False))
    accepted = alice.say(session, model.script([call("who_am_i", {}, id="w")], [text("ok")]))
    row = pending(session, "who_am_i")
    wait_for_state(accepted, "waiting")
    server.stop()
    assert "who_am_i" in tool_names()
    server.start()
    alice.answer(session, Permission(0, row.call_id, granted=True))
    wait_for_state(accepted, "done")
    assert results(session) == ["nobody"]


# --- trouble ---


def test_the_model_gets_a_clear_error_for_a_server_that_is_down(
    alice: World, harbour: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("read_file"))
    server.stop()
    accepted = alice.say(session, model.script([call("read_file", {"path": "x"}, id="r")], [text("sorry")]))
    turn = wait_for_state(accepted, "done", "error")
    server.start()
    assert turn.state == "done"
    assert results(session) == ["Tool execution failed: the MCP server harbour cannot be reached"]


def test_an_agent_whose_server_was_never_reachable_works_and_its_model_is_informed(
    alice: World, agents: Callable[..., AgentSpec], start_worker: Any, model: ModelServer
) -> None:
    gone = McpServer()
    agents(mcp=(McpSpec("harbour", gone.url),), tools=())
    start_worker()
    session = alice.session()
    script = model.script([text("ahoy")])
    accepted = alice.say(session, script)
    assert wait_for_state(accepted, "done", "error").state == "done"
    system = model.requests_of(script)[0].body["messages"][0]
    assert system["content"] == "Speak plainly.\n\nThe tools of these MCP servers cannot be used at the moment: harbour."


def test_a_cancelled_turn_cancels_its_call_at_the_server(
    alice: World, harbour: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("slow"))
    accepted = alice.say(session, model.script([call("slow", {}, id="s")], [text("never")]))
    assert server.slow_began.wait(60)
    turns.cancel(alice.caller, session)
    assert server.slow_cancelled.wait(60)
    assert turn_of(accepted).state == "cancelled"


# --- a session's own secrets ---


@pytest.fixture
def private(agents: Callable[..., AgentSpec], server: McpServer, alice: World) -> AgentSpec:
    """A server that lets nobody in who brings no secret of their own."""
    server.tokens = {"hers-canary": "Ada", "his-canary": "Bob"}
    return agents(mcp=(McpSpec("harbour", server.url, OWN),), tools=(), options=(TOKEN, OptionSpec("secret", "key", default="k")))


def test_tools_found_with_a_sessions_own_secret_are_active_and_ask(
    alice: World, private: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    assert tool_names() == set()
    start_worker()
    session = alice.session(options={"token": "hers-canary"})
    script = model.script([call("who_am_i", {}, id="w")], [text("ok")])
    accepted = alice.say(session, script)
    row = pending(session, "who_am_i")
    wait_for_state(accepted, "waiting")
    alice.answer(session, Permission(0, row.call_id, granted=True))
    wait_for_state(accepted, "done")
    assert results(session) == ["Ada"]
    tools = [each["function"]["name"] for each in model.requests_of(script)[1].body["tools"]]
    assert "who_am_i" in tools
    assert "harbour" not in str(model.requests_of(script)[0].body["messages"])


def test_an_applications_tool_comes_before_a_found_tool_of_the_same_name(
    alice: World, private: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    theirs = {"name": "who_am_i", "description": "Asks the application", "parameters": {"type": "object"}}
    session = alice.session(options={"token": "hers-canary"}, client_tools=[theirs])
    script = model.script([call("who_am_i", {}, id="w")], [text("ok")])
    accepted = alice.say(session, script)
    wait_for_state(accepted, "waiting")
    assert pending(session, "who_am_i").runner == "client"
    names = [each["function"]["name"] for each in model.requests_of(script)[0].body["tools"]]
    assert names.count("who_am_i") == 1
    assert "harbour_who_am_i" in names


def test_two_sessions_are_two_identities_and_share_nothing_at_the_server(
    alice: World, private: AgentSpec, server: McpServer, start_worker: Any, model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    start_worker()
    for token, who in (("hers-canary", "Ada"), ("his-canary", "Bob")):
        session = alice.session(options={"token": token})
        accepted = alice.say(session, model.script([call("who_am_i", {}, id="w")], [text("ok")]))
        row = pending(session, "who_am_i")
        wait_for_state(accepted, "waiting")
        alice.answer(session, Permission(0, row.call_id, granted=True))
        wait_for_state(accepted, "done")
        assert results(session) == [who]
        for stored in (*events(session), *AgentDefinition.objects.values_list("document", flat=True)):
            assert "canary" not in str(stored)
    pairs = {(request.session, request.authorization) for request in server.requests if request.session}
    assert len({session for session, _ in pairs}) == len(pairs)
    assert not any("canary" in record.getMessage() for record in caplog.records if not record.name.startswith("mcp.server"))


def test_a_session_refused_by_the_server_has_no_tools_and_the_model_gets_the_reason(
    alice: World, private: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(options={"token": "stolen"})
    script = model.script([text("ahoy")])
    accepted = alice.say(session, script)
    assert wait_for_state(accepted, "done", "error").state == "done"
    assert "cannot be used at the moment: harbour" in model.requests_of(script)[0].body["messages"][0]["content"]


# --- questions in the middle of a call ---

ANSWERS: dict[str, Any] = {
    "name": {"state": "submitted", "value": {"kind": "text", "value": "Ada"}},
    "side": {"state": "submitted", "value": {"kind": "selected", "value": "port"}},
    "length": {"state": "submitted", "value": {"kind": "number", "value": 12.0}},
    "tugs": {"state": "skipped"},
}


def attended(world: World) -> Session:
    """A session in which a client takes part whose connection is there."""
    connections.connected(world.caller, "c1", "w1", resumed=False)
    entry = clients.Entry("c1", None, [])
    return make_session_of_client(world.caller, uri="sailor:/asked", agent="sailor", client=entry, approval="auto")


def asked(session: Session) -> str:
    row: Form = wait_for(lambda: Form.objects.filter(session=session, response="").first(), "a question")
    return row.form_id


def test_a_servers_question_reaches_the_client_and_its_answer_the_server(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = attended(alice)
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    name = asked(session)
    shown = state.read(alice.caller, session)
    assert [form.document["message"] for form in shown.forms] == ["Which ship?"]
    assert turn_of(accepted).state == "running"
    with pytest.raises(NotPossible):
        forms.complete(alice.caller, session, name, "accept", {}, dispatched=action())
    forms.change_answer(alice.caller, session, name, "name", ANSWERS["name"], dispatched=action())
    forms.complete(alice.caller, session, name, "accept", ANSWERS, dispatched=action())
    wait_for_state(accepted, "done")
    assert results(session) == ["accept: {'name': 'Ada', 'length': 12, 'side': 'port'}"]
    assert [kind for kind in kinds(session) if kind.startswith(("form_", "call_finished"))] == [
        "form_opened",
        "form_answer_changed",
        "form_closed",
        "call_finished",
    ]
    assert state.read(alice.caller, session).forms == []


@pytest.mark.parametrize("response", ["decline", "cancel"])
def test_a_declined_or_cancelled_question_is_reported_to_the_server_as_such(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer, response: Any
) -> None:
    start_worker()
    session = attended(alice)
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    forms.complete(alice.caller, session, asked(session), response, dispatched=action())
    wait_for_state(accepted, "done")
    assert results(session) == [f"{response}: None"]


def test_a_question_is_declined_at_once_if_no_client_is_present(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = alice.session(tools=enabled("ask"))
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    wait_for_state(accepted, "done")
    assert results(session) == ["decline: None"]
    assert not Form.objects.filter(session=session).exists()


def test_the_client_that_started_the_turn_is_asked_while_it_is_present(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    start_worker()
    session = make_session_of_client(alice.caller, uri="sailor:/two", agent="sailor", approval="auto")
    # Somebody else of the tenant's, who has nothing to do with it.
    connections.connected(alice.caller, "another", "w9", resumed=False)
    for turn, there in (("t1", False), ("t2", True)):
        if there:
            connections.connected(alice.caller, "c1", "w1", resumed=False)
        said = UserMessage(model.script([call("ask", {}, id=f"a-{turn}")], [text("ok")]))
        accepted = turns.start(
            alice.caller, session, content=said.text, turn_id=turn, as_written=said, only_if_idle=True, dispatched=action()
        )
        if there:
            forms.complete(alice.caller, session, asked(session), "cancel", dispatched=action())
        wait_for_state(accepted, "done")
    assert results(session) == ["decline: None", "cancel: None"]


def test_cancelling_a_turn_closes_its_question(alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer) -> None:
    start_worker()
    session = attended(alice)
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    name = asked(session)
    turns.cancel(alice.caller, session)
    assert turn_of(accepted).state == "cancelled"
    assert state.read(alice.caller, session).forms == []
    with pytest.raises(NotPossible):
        forms.complete(alice.caller, session, name, "accept", ANSWERS, dispatched=action())


def test_a_question_of_a_dead_workers_run_is_closed_by_the_next_worker(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer
) -> None:
    first = start_worker()
    session = attended(alice)
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    name = asked(session)
    first.stop(grace=0.1, drain=0.1)
    assert turn_of(accepted).state == "running"
    start_worker()
    wait_for_state(accepted, "done")
    assert results(session) == ["Tool execution failed: interrupted, it may have run"]
    assert state.read(alice.caller, session).forms == []
    with pytest.raises(NotPossible):
        forms.complete(alice.caller, session, name, "accept", ANSWERS, dispatched=action())


def test_a_question_is_closed_when_its_call_times_out(
    alice: World, harbour: AgentSpec, start_worker: Any, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents_app.mcp.toolset.QUESTION_SECONDS", 4.0)
    start_worker()
    session = attended(alice)
    accepted = alice.say(session, model.script([call("ask", {}, id="a")], [text("ok")]))
    wait_for_state(accepted, "done")
    assert results(session) == ["Tool execution failed: its question was not answered in time"]
    (closed,) = [payload for kind, payload in events(session) if kind == "form_closed"]
    assert closed["response"] == "cancel"
    assert state.read(alice.caller, session).forms == []
