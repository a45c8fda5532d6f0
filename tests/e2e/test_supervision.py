"""When an essential thread or task ends, the process exits and its turns are taken over."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sessions_app.core.base.supervision import EXIT_CODE
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.server import Process, Server
from tests.e2e.test_process_kills import INTERRUPTED, Watched, await_worker
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.sabotage import WORDS

AGENT = """
[[agents]]
name = "saboteur"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-saboteur"
history = ["full"]
stream = ["delta", "none"]
client_tools = false
images = []
[[agents.tools]]
python = "tests.fakes.sabotage:sabotage"
timeout = 110
"""
TRUSTED = {"name": "saboteur", "tools": [{"name": "sabotage", "trust": True}]}


@pytest.fixture(scope="module", params=servers.shapes())
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("sabotage")
    file = agents_file.write(directory / "saboteur.toml", _model_server.url)
    file.write_text(file.read_text() + AGENT.format(model=_model_server.url))
    environment = {"AGENTHOST_AGENTS_FILE": str(file)}
    with servers.running(request.param, directory, _model_server.url, workers=2, environment=environment) as running:
        yield running


def revived(server: Server) -> tuple[Process, float]:
    """What a supervisor does when a process has ended: which one it was, and since when there is another."""
    processes = server.workers if server.shape == "production" else server.webs
    until = time.monotonic() + 60
    while not (dead := [process for process in processes if not process.alive]):
        assert time.monotonic() < until, "no process has ended"
        time.sleep(0.02)
    if server.shape == "production":
        server.workers.remove(dead[0])
        server.start_worker()
    else:
        server.start_web(0)
        server.wait_ready(0)
    return dead[0], await_worker(server)


@pytest.mark.rule("A78")
@pytest.mark.parametrize(
    "part",
    [
        pytest.param("journal-writer", marks=pytest.mark.slow),
        pytest.param("sweep", marks=pytest.mark.slow),
        pytest.param("leases", marks=pytest.mark.slow),
        "runs",
    ],
)
def test_a_process_whose_part_has_ended_exits_and_its_turn_goes_on(server: Server, model: ModelServer, part: str) -> None:
    alice = server.client(server.keys.alice)
    prompt = model.script([steps.call("sabotage", {"part": part}, id=f"c-{part}")], [steps.text("here after all")])
    turn = Watched(alice, alice.create(TRUSTED))
    turn.start(prompt, until="tool_call")
    dead, since = revived(server)
    assert dead.popen.returncode == EXIT_CODE
    said = dead.log.read_text()
    assert f"process_ends exit_code={EXIT_CODE}" in said
    assert WORDS not in said
    assert turn.finish(since) == "end_turn"
    results = [message["content"] for message in turn.messages if message["role"] == "tool"]
    assert results == [INTERRUPTED]
    turn.check_history()
    turn.check_usable()
