"""Changes of the agents file by the operator, as seen by clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.client import client_tool, tool
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


@pytest.fixture(params=servers.shapes())
def changing(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    """A server of the test's own, because it is stopped and started with another agents file."""
    # Enough time to drain: a stopping process ends as soon as its turns have ended.
    patience = {"AGENTHOST_DRAIN_SECONDS": "120", "AGENTHOST_WORKER_GRACE_SECONDS": "120"}
    with servers.running(request.param, tmp_path, model.url, environment=patience) as server:
        yield server


def restart(server: Server, model: ModelServer, *, without: str | None = None, replaced: dict[str, str] | None = None) -> None:
    server.stop()
    agents_file.write(server.directory / "agents.toml", model.url, without=without, replaced=replaced or {})
    server.start()


@pytest.mark.rule("A43", "A44", "A83", "A71")
def test_sessions_survive_changes_of_the_agents_file(changing: Server, model: ModelServer) -> None:
    alice = changing.alice
    gone = alice.create("echo")
    alice.turn(gone, "hello")
    pilot = alice.create(
        {"name": "pilot", "options": {"brain": "gpt-other", "tone": "calm"}, "tools": [{"name": "fail"}, {"name": "tide_table"}]},
        tools=[client_tool("mine")],
    )
    prompt = model.script([steps.call("mine", {}, id="op1")], [steps.text("after")], [steps.text("never")])
    asked = alice.turn(pilot, prompt)
    assert asked.stop == "tool_use"
    restart(
        changing,
        model,
        without="echo",
        replaced={
            '"gpt-test", "gpt-other"': '"gpt-test", "gpt-new"',
            "Tone: {tone}.": "New tone: {tone}.",
            '[[agents.tools]]\npython = "tests.fakes.tools:fail"\n': "",
        },
    )
    alice = changing.alice
    # A43: readable, listed, deletable, but nothing runs.
    assert [agent["name"] for agent in alice.meta()["agents"]][:1] == ["pilot"]
    assert len(alice.history(gone)) == 2
    assert gone in [one["sessionId"] for one in alice.all_sessions()]
    problem = alice.refused(gone, "anybody there?")
    assert problem["detail"]
    assert len(alice.history(gone)) == 2
    # A71: the waiting turn continues.
    assert alice.turn(pilot, tool("op1", "x")).text == "after"
    # A44: the next turn falls back, and still shows what the client set. A83: the removed tool is no longer shown.
    later = model.script([steps.text("new")])
    assert alice.turn(pilot, later).text == "new"
    request = model.requests_of(later)[0]
    assert request.body["model"] == "gpt-test"
    assert request.messages[0]["content"] == "New tone: calm. Units: metric."
    shown = alice.session(pilot)["agent"]
    assert shown["options"] == {"brain": "gpt-other", "tone": "calm"}
    assert [one["name"] for one in shown["tools"]] == ["tide_table"]
    assert "fail" not in request.tool_names
    assert alice.request("DELETE", f"/sessions/{gone}").status_code == 204


@pytest.mark.rule("A45", "A44")
def test_a_turn_keeps_its_agent_definition_when_a_process_loads_another_file(changing: Server, model: ModelServer) -> None:
    alice = changing.alice
    session = alice.create({"name": "pilot", "options": {"brain": "gpt-other", "tone": "calm"}})
    prompt = model.script([steps.gate("old definition"), steps.text("by the old one")])
    with alice.stream(session, prompt) as stream:
        started = stream.until("turn_start")
        model.wait_gate("old definition")
    changing.kill()
    replaced = {'"gpt-test", "gpt-other"': '"gpt-test", "gpt-new"', "Tone: {tone}.": "New tone: {tone}."}
    agents_file.write(changing.directory / "agents.toml", model.url, replaced=replaced)
    changing.start()
    model.wait_request(prompt, count=2, timeout=90)
    model.open_gate("old definition")
    with changing.alice.join(session, after=started.id) as joined:
        assert joined.rest()[-1].data == {"stopReason": "end_turn"}
    for request in model.requests_of(prompt):
        assert request.messages[0]["content"] == "Tone: calm. Units: metric."
        assert request.body["model"] == "gpt-other"
    later = model.script([steps.text("by the new one")])
    changing.alice.turn(session, later)
    assert model.requests_of(later)[0].messages[0]["content"] == "New tone: calm. Units: metric."


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ('[[agents]]\nname = "x"\nmodel = "openai-chat:m"\ncolour = "red"\n', ["colour"]),
        pytest.param('[[agents]]\nname = "x"\n', ["agents", "model"], marks=pytest.mark.slow),
        pytest.param("not toml at all [", [], marks=pytest.mark.slow),
        pytest.param(
            '[[agents]]\nname = "x"\nmodel = "openai-chat:m"\n[[agents.tools]]\npython = "no.such:thing"\n',
            ["no.such"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_broken_agents_file_stops_the_start_and_names_the_place(changing: Server, broken: str, words: list[str]) -> None:
    changing.stop()
    (changing.directory / "agents.toml").write_text(broken)
    process = changing.start_web(0)
    assert process.popen.wait(120) != 0
    log = process.log.read_text()
    assert all(word in log for word in words), log[-2000:]


def test_a_wrong_variable_stops_the_start_and_is_named(changing: Server) -> None:
    changing.stop()
    changing.environment["AGENTHOST_LEASE_SECONDS"] = "soon"
    process = changing.start_web(0)
    assert process.popen.wait(120) != 0
    assert "AGENTHOST_LEASE_SECONDS" in process.log.read_text()


def test_a_stopping_server_lets_the_running_turn_end(changing: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("going "), steps.gate("draining"), steps.text("on")])
    alice = changing.alice
    session = alice.create()
    with alice.stream(session, prompt) as stream:
        stream.until("text_delta")
        model.wait_gate("draining")
        changing.webs[0].terminate()
        model.open_gate("draining")
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert changing.webs[0].popen.wait(120) == 0
    changing.start_web(0)
    changing.wait_ready()
    assert changing.alice.turn(session, "still here").stop == "end_turn"


@pytest.mark.rule("A2", "A95", "A93")
@pytest.mark.parametrize("shape", servers.shapes())
def test_settings_of_public_meta_cors_and_body_size_apply(shape: str, tmp_path: Path, model: ModelServer) -> None:
    settings = {
        "AGENTHOST_PUBLIC_META": "yes",
        "AGENTHOST_CORS_ORIGINS": "https://app.example",
        "AGENTHOST_MAX_BODY_BYTES": "2000",
    }
    with servers.running(shape, tmp_path, model.url, environment=settings) as server:
        anyone = server.client(None)
        assert anyone.meta()["version"] == 3
        assert anyone.get("/meta", headers={"Authorization": "Bearer ah_wrong"}).status_code == 401
        assert anyone.get("/sessions").status_code == 401
        ours, theirs = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
        assert anyone.get("/meta", headers=ours).headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "Access-Control-Allow-Origin" not in anyone.get("/meta", headers=theirs).headers
        preflight = {"Access-Control-Request-Method": "POST"}
        assert anyone.http.options("/sessions", headers={**ours, **preflight}).status_code in (200, 204)
        refused = anyone.http.options("/sessions", headers={**theirs, **preflight})
        assert refused.headers.get("Access-Control-Allow-Origin") != "https://evil.example"
        too_long = {"agent": {"name": "echo"}, "messages": [{"role": "user", "content": "x" * 2000}]}
        assert server.alice.post("/sessions", too_long).status_code == 413
        assert server.alice.create()


PRUNE_EVERYTHING = """
import datetime, django
django.setup()
from sessions_app.core.log import journal
now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
while journal.prune(now, now, 1000):
    pass
"""


@pytest.mark.slow
@pytest.mark.rule("A120")
def test_a_position_whose_events_are_no_longer_kept_is_410(changing: Server, model: ModelServer) -> None:
    alice = changing.alice
    paced = [step for _ in range(1100) for step in (steps.text("x"), steps.pause(0.001))]
    session, later = alice.create(), alice.create()
    first = alice.turn(session, "the first turn", stream="delta").events
    newer = alice.turn(later, model.script(paced), stream="delta").events
    assert len(newer) > 3
    while int(changing.manage(code=COUNT_EVENTS)) < 1100:
        alice.turn(later, model.script(paced), stream="delta")
    last = alice.turn(later, "the last turn", stream="delta").events
    changing.manage(code=PRUNE_EVERYTHING)
    response = alice.get(f"/sessions/{session}/events/stream", params={"stream": "delta", "after": first[0].id})
    assert response.status_code == 410
    assert "history" in response.json()["detail"]
    with alice.join(later, after=last[0].id) as joined:
        assert joined.rest() == last[1:]
    assert len(alice.history(session)) == 2
    assert alice.turn(session, "still usable").stop == "end_turn"


COUNT_EVENTS = """
import django
django.setup()
from sessions_app.models import Event
print(Event.objects.count())
"""
