"""Traces: what a collector receives of a turn from all processes that worked on it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import server as servers
from tests.e2e.ahp_steps import create_session, start_turn, wait_for_end
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.client import Client, grant, user
from tests.e2e.server import Server
from tests.e2e.test_mcp import eventually
from tests.fakes import steps
from tests.fakes.collector import Collector, Seen, collecting
from tests.fakes.mcp_server import McpServer, serving
from tests.fakes.model_server import ModelServer, attempts

FILE = """
[[agents]]
name = "harbour"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-canary-of-traces"
instructions = "Be brief."
client_tools = true
[[agents.options]]
type = "secret"
name = "token"
[[agents.tools]]
python = "tests.fakes.tools:tide_table"
[[agents.tools]]
python = "tests.fakes.tools:place_in_trace"
[[agents.mcp]]
name = "private"
url = "{mcp}"
headers = {{ Authorization = "Bearer {{token}}" }}
include = ["trace"]
"""
TOKEN = "token-canary-5f2e"
PARENT = "00f067aa0ba902b7"


@dataclass
class Scene:
    server: Server
    collector: Collector
    mcp: McpServer

    @property
    def alice(self) -> Client:
        return self.server.alice

    def session(self, **body: object) -> str:
        # A server that has just started may not have listed the tools of its MCP server yet.
        eventually(lambda: "trace" in {tool["name"] for tool in self.alice.agent("harbour")["tools"]})
        tools = [{"name": name, "trust": True} for name in ("place_in_trace", "trace")] + [{"name": "tide_table"}]
        return self.alice.create({"name": "harbour", "tools": tools, "options": {"token": TOKEN}}, **body)


def running(
    shape: str, directory: Path, model: ModelServer, collector: Collector, mcp: McpServer, **more: str
) -> AbstractContextManager[Server]:
    directory.mkdir()
    agents = directory / "traced.toml"
    agents.write_text(FILE.format(model=model.url, mcp=mcp.url))
    environment = {
        "AGENTHOST_AGENTS_FILE": str(agents),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=collector%20key",
        "OTEL_SERVICE_NAME": "harbour-office",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        **more,
    }
    return servers.running(shape, directory, model.url, environment=environment)


@pytest.fixture(scope="module", params=servers.shapes())
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("traces") / request.param
    with collecting() as collector, serving() as mcp:
        mcp.offer_trace()
        with running(request.param, directory, _model_server, collector, mcp, **servers.DEFAULT_LEASES) as server:
            yield Scene(server, collector, mcp)


def run_turn(client: Client, session: str, *messages: object, **headers: str) -> tuple[str, str]:
    """Run a turn; returns its id and the answer as text."""
    response = client.post(client.at(session, "/turns"), {"messages": list(messages), "stream": "none"}, headers=headers)
    assert response.status_code == 200, response.text
    return response.headers["X-Turn-Id"], response.text


def one(spans: list[Seen], name: str) -> Seen:
    (found,) = [each for each in spans if each.name == name]
    return found


def below(spans: list[Seen], parent: Seen) -> list[str]:
    return sorted(each.name for each in spans if each.parent_id == parent.span_id)


def new_trace() -> str:
    return secrets.token_hex(16)


TURNS = "POST /aap/v3/sessions/{session_id}/turns"
CHAT = "chat gpt-test"


def test_one_trace_has_a_turn_from_its_request_to_its_end(scene: Scene, model: ModelServer) -> None:
    alice, session, trace = scene.alice, scene.session(), new_trace()
    calls = [
        steps.call("tide_table", {"harbour": "Canary Wharf"}, id="t1"),
        steps.call("trace", {}, id="m1", index=1),
        steps.call("place_in_trace", {}, id="p1", index=2),
    ]
    prompt = model.script([*calls, steps.usage(70, 30)], attempts([steps.status(503, retry_after="0")], [steps.text("Land ho.")]))
    turn, first = run_turn(alice, session, user(prompt), traceparent=f"00-{trace}-{PARENT}-01", tracestate="office=3")
    answering = new_trace()
    assert run_turn(alice, session, grant("t1"), traceparent=f"00-{answering}-{PARENT}-01")[0] == turn
    # Processes send what they have at moments of their own.
    queue = ["receive agenthost.turns", "send agenthost.turns"]
    names = (
        "invoke_agent harbour",
        TURNS,
        *["accept turn", "run", CHAT] * 2,
        *["POST"] * 3,
        *queue,
        "wait_for_permission tide_table",
    )
    spans = scene.collector.trace(trace, *names)

    request, whole = one(spans, TURNS), one(spans, "invoke_agent harbour")
    assert (request.parent_id, whole.parent_id, request.state) == (PARENT, request.span_id, "office=3")
    assert request.attributes["http.response.status_code"] == 200
    assert whole.attributes["agenthost.turn.id"] == turn
    assert whole.attributes["gen_ai.conversation.id"] == session
    # A worker that is awake may have claimed a turn before its message came.
    messages = [name for name in below(spans, whole) if name in queue]
    assert set(messages) == set(queue)
    assert len(messages) <= 4
    others = [name for name in below(spans, whole) if name not in queue]
    assert others == sorted(["accept turn", "run"] * 2 + ["wait_for_permission tide_table"])
    runs = [each for each in spans if each.name == "run"]
    assert [each.attributes["agenthost.run.outcome"] for each in runs] == ["waiting", "ended"]
    in_queue = ["receive agenthost.turns", "run", "send agenthost.turns", "invoke_agent harbour"]
    assert {each.attributes.get("agenthost.queue") for each in spans if each.name in in_queue} == {"default"}
    roles = ("embedded", "embedded") if scene.server.shape == "embedded" else ("web", "worker")
    assert (request.resource["agenthost.role"], runs[0].resource["agenthost.role"]) == roles
    assert request.resource["service.name"] == "harbour-office"

    # The answer is a request of another trace; both refer to each other.
    wait = one(spans, "wait_for_permission tide_table")
    answer = one(scene.collector.trace(answering, TURNS), TURNS)
    assert wait.links == ((answering, answer.span_id),)
    assert answer.links == ((trace, whole.span_id),)
    assert wait.attributes["agenthost.permission.granted"] is True

    first_step = next(each for each in spans if each.name == "step")
    assert {CHAT, "execute_tool trace", "execute_tool place_in_trace", "commit"} == set(below(spans, first_step))
    assert "execute_tool tide_table" in below(spans, runs[1])
    model_calls = [each for each in spans if each.name == CHAT]
    assert model_calls[0].attributes["gen_ai.provider.name"] == "openai"
    assert model_calls[0].attributes["gen_ai.usage.output_tokens"] == 30
    used = [each.attributes["gen_ai.usage.input_tokens"] for each in model_calls]
    assert (used[0], sum(used)) == (70, whole.attributes["gen_ai.usage.input_tokens"])
    assert 0 < model_calls[0].attributes["gen_ai.response.time_to_first_chunk"] < 60
    # The second one was refused once.
    attempted = [each for each in spans if each.parent_id == model_calls[1].span_id]
    assert [each.attributes["http.response.status_code"] for each in attempted] == [503, 200]
    assert [each.failed for each in attempted] == [True, False]
    assert attempted[1].attributes["http.request.resend_count"] == 1

    # The MCP server and the Python tool saw their place, and the model's provider did not.
    tool = one(spans, "execute_tool trace")
    call = one(spans, "tools/call trace")
    assert call.parent_id == tool.span_id
    header, meta = scene.mcp.traces[-1]
    assert header == meta["traceparent"] == f"00-{trace}-{call.span_id}-01"
    assert meta["tracestate"] == "office=3"
    assert f"{trace}-{one(spans, 'execute_tool place_in_trace').span_id}" in first
    assert not any("traceparent" in each.headers for each in model.requests_of(prompt))

    assert all(each["api-key"] == "collector key" for each in scene.collector.headers)
    sent = b"".join(scene.collector.bodies)
    for secret in (TOKEN, "sk-canary", scene.server.keys.alice, "Canary Wharf", "Land ho", "high 06:12", prompt, "collector key"):
        assert secret.encode() not in sent


@pytest.mark.parametrize("sent", ["", "no trace", f"00-{'0' * 32}-{PARENT}-01", f"ff-{'a' * 32}-{PARENT}-01"])
def test_a_malformed_traceparent_begins_a_new_trace(scene: Scene, model: ModelServer, sent: str) -> None:
    turn, _ = run_turn(scene.alice, scene.session(), user(model.script([steps.text("Hi.")])), traceparent=sent)
    spans = scene.collector.trace_of(turn, TURNS, "invoke_agent harbour")
    assert one(spans, TURNS).parent_id == ""
    assert one(spans, TURNS).trace_id not in ("0" * 32, "a" * 32)


def test_a_trace_that_is_not_sampled_sends_nothing_but_is_passed_on(scene: Scene, model: ModelServer) -> None:
    trace, session = new_trace(), scene.session()
    prompt = model.script([steps.call("trace", {}, id="m1")], [steps.text("Hi.")])
    run_turn(scene.alice, session, user(prompt), traceparent=f"00-{trace}-{PARENT}-00")
    header, _ = scene.mcp.traces[-1]
    assert header is not None
    assert header.split("-")[1] == trace
    assert header.endswith("-00")
    # A later one of another trace has arrived, so this one would have.
    last, _ = run_turn(scene.alice, session, user(model.script([steps.text("Hi.")])))
    scene.collector.trace_of(last, TURNS, "invoke_agent harbour")
    assert not any(each.trace_id == trace for each in scene.collector.spans)


def test_the_lines_of_a_run_have_the_ids_of_its_trace(scene: Scene, model: ModelServer) -> None:
    trace, session = new_trace(), scene.session()
    prompt = model.script(attempts([steps.status(503, retry_after="0")], [steps.status(400)]))
    turn, _ = run_turn(scene.alice, session, user(prompt), traceparent=f"00-{trace}-{PARENT}-01")
    spans = scene.collector.trace(trace, "invoke_agent harbour", CHAT, TURNS)
    assert one(spans, "invoke_agent harbour").attributes["error.type"] == "provider_failed"
    of_trace = [line for line in scene.server.log_text().splitlines() if trace in line]
    if scene.server.shape == "embedded":
        assert any("attempt 1" in line and f"span_id={one(spans, CHAT).span_id}" in line for line in of_trace)
        return
    lines = [json.loads(line) for line in of_trace]
    attempt = next(line for line in lines if "attempt 1" in line["message"])
    assert (attempt["turn"], attempt["session"], attempt["tenant"]) == (turn, session, "1")
    assert (attempt["trace_id"], attempt["span_id"]) == (trace, one(spans, CHAT).span_id)
    access = next(line for line in lines if line["logger"] == "agenthost.access")
    assert (access["span_id"], access["turn"]) == (one(spans, TURNS).span_id, turn)
    assert access["request"] == one(spans, TURNS).attributes["agenthost.request.id"]


async def test_a_message_in_the_queue_continues_the_trace_of_its_connection(scene: Scene, model: ModelServer) -> None:
    trace, key = new_trace(), scene.server.keys.alice
    first, second = model.script([steps.gate("traced queue"), steps.text("one")]), model.script([steps.text("two")])
    headers = {"Authorization": f"Bearer {key}", "traceparent": f"00-{trace}-{PARENT}-01"}
    async with (
        watching(scene.server, key, "starter") as starter,
        watching(scene.server, key, "queuer", additional_headers=headers) as queuer,
    ):
        uri = await create_session(starter, "harbour")
        turn = await start_turn(starter, uri, first)
        await queuer.subscribe(uri)
        message = {"type": "session/pendingMessageSet", "session": uri, "kind": "queued", "id": "m1"}
        await queuer.echo(await queuer.dispatch({**message, "userMessage": {"text": second}}))
        model.open_gate("traced queue")
        await wait_for_end(starter, uri, turn)
        await _until_ended(starter, uri, 2)
    spans = scene.collector.trace(trace, "invoke_agent harbour", "run", CHAT)
    whole = one(spans, "invoke_agent harbour")
    dispatch = next(each for each in spans if each.span_id == whole.parent_id)
    assert (dispatch.name, dispatch.parent_id) == ("AHP dispatchAction", PARENT)
    assert whole.attributes["agenthost.turn.id"] != turn


async def _until_ended(client: Watcher, uri: str, turns: int) -> None:
    await client.until(lambda: len(client.state(uri)["turns"]) >= turns, 60)


@pytest.fixture(scope="module")
def open_scene(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Scene]:
    """A server whose operator wants content in spans, and lets the provider have the context."""
    directory = tmp_path_factory.mktemp("traces") / "open"
    settings = {
        "AGENTHOST_TRACE_CONTENT": "yes",
        "AGENTHOST_TRACE_PROVIDERS": _model_server.url.partition("//")[2].partition("/")[0],
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        **servers.DEFAULT_LEASES,
    }
    with collecting() as collector, serving() as mcp:
        mcp.offer_trace()
        with running("embedded", directory, _model_server, collector, mcp, **settings) as server:
            yield Scene(server, collector, mcp)


def test_content_and_the_context_for_providers_are_the_operators_choice(open_scene: Scene, model: ModelServer) -> None:
    scene = open_scene
    prompt = model.script([steps.call("tide_table", {"harbour": "Bergen"}, id="t1")], [steps.text("At noon.")])
    session = scene.session()
    turn, _ = run_turn(scene.alice, session, user(prompt))
    run_turn(scene.alice, session, grant("t1"))
    spans = scene.collector.trace_of(turn, "invoke_agent harbour", CHAT, CHAT, "execute_tool tide_table")
    tool, asked = one(spans, "execute_tool tide_table"), [each for each in spans if each.name == CHAT]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"harbour": "Bergen"}
    assert "high 06:12" in tool.attributes["gen_ai.tool.call.result"]
    assert json.loads(asked[0].attributes["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": prompt}]
    assert "Be brief." in asked[0].attributes["gen_ai.system_instructions"]
    (said,) = json.loads(asked[1].attributes["gen_ai.output.messages"])
    assert said["parts"] == [{"type": "text", "content": "At noon."}]
    posts = {each.span_id for each in spans if each.name == "POST"}
    seen = [each.headers["traceparent"].split("-") for each in model.requests_of(prompt)]
    assert {span for _, _, span, _ in seen} == posts
    assert {trace for _, trace, _, _ in seen} == {tool.trace_id}
    sent = b"".join(scene.collector.bodies)
    for secret in (TOKEN, "sk-canary", scene.server.keys.alice):
        assert secret.encode() not in sent


def test_a_collector_that_refuses_costs_one_line_and_no_turn(open_scene: Scene, model: ModelServer) -> None:
    scene = open_scene
    scene.collector.status = 500
    try:
        before = len(scene.collector.headers)
        session = scene.session()
        for _ in range(3):
            assert "end_turn" in run_turn(scene.alice, session, user(model.script([steps.text("Hi.")])))[1]
        scene.collector.until(lambda _: len(scene.collector.headers) >= before + 2)
    finally:
        scene.collector.status = 200
    turn, _ = run_turn(scene.alice, session, user(model.script([steps.text("Hi.")])))
    scene.collector.trace_of(turn, "invoke_agent harbour")
    lines = [line for line in scene.server.log_text().splitlines() if "traces_not_sent" in line]
    assert len(lines) == 1
    assert "status 500" in lines[0]
    assert "collector key" not in scene.server.log_text()


@pytest.mark.slow
@pytest.mark.parametrize("shape", servers.shapes())
def test_a_turn_that_another_process_takes_over_continues_its_trace(shape: str, tmp_path: Path, model: ModelServer) -> None:
    trace = new_trace()
    with collecting() as collector, serving() as mcp, running(shape, tmp_path / shape, model, collector, mcp) as server:
        alice = server.alice
        session = alice.create(
            {"name": "harbour", "tools": [{"name": "place_in_trace", "trust": True}], "options": {"token": TOKEN}}
        )
        prompt = model.script([steps.call("place_in_trace", {}, id="p1")], attempts([steps.hang()], [steps.text("Alive.")]))
        headers = {"traceparent": f"00-{trace}-{PARENT}-01"}
        body = {"messages": [user(prompt)], "stream": "delta"}
        with alice.http.stream("POST", alice.at(session, "/turns"), json=body, headers=headers) as stream:
            next(stream.iter_lines())
            # The model is asked for the second time, and does not answer.
            collector.trace(trace, "execute_tool place_in_trace")
            model.wait_request(prompt, count=2)
            server.kill_workers()
        if shape == "production":
            server.start_worker()
        else:
            server.start_web(0)
            server.wait_ready(0)
        spans = collector.trace(trace, "invoke_agent harbour")
    assert [each.attributes["agenthost.run.takeover"] for each in spans if each.name == "run"] == [1]
    whole = one(spans, "invoke_agent harbour")
    assert whole.attributes["agenthost.turn.outcome"] == "end_turn"
    # The tool was called before the process died.
    assert one(spans, "execute_tool place_in_trace").began < one(spans, "run").began
