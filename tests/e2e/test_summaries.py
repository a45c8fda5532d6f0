"""Summaries of long conversations for models with a small context window."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import server as servers
from tests.e2e.client import Client, tool
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, RecordedRequest, content_text

BEGINS = "Summary of the conversation so far:"
AGENTS = """
[[agents]]
name = "echo"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-echo"

[[agents]]
name = "rememberer"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-rememberer"
instructions = "Keep it short."
context_tokens = 800
compaction = "summarise"
[agents.summary]
model = "openai-chat:gpt-small"
api_key = "sk-scribe"
base_url = "{model}"
[[agents.tools]]
python = "tests.fakes.tools:verbose"
expose = false

[[agents]]
name = "selfmade"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-selfmade"
context_tokens = 500
compaction = "summarise"
"""
SCRIBE = "sk-scribe"


@pytest.fixture(scope="module", params=servers.shapes())
def long_lived(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("summaries")
    file = directory / "long.toml"
    file.write_text(AGENTS.format(model=_model_server.url))
    environment = {"AGENTHOST_AGENTS_FILE": str(file)}
    with servers.running(request.param, directory, _model_server.url, environment=environment) as server:
        yield server


@pytest.fixture
def alice(long_lived: Server) -> Iterator[Client]:
    with contextlib.closing(Client(long_lived.origin(), long_lived.keys.alice)) as client:
        yield client


@pytest.fixture(autouse=True)
def _scribe(model: ModelServer) -> None:
    model.script_for_key(SCRIBE, [steps.text("They spoke of ropes."), steps.usage(40, 6)])


def of(model: ModelServer, key: str) -> list[RecordedRequest]:
    return [request for request in model.requests if request.api_key == key]


def length(request: RecordedRequest) -> int:
    """In tokens, as A99 counts them."""
    characters = 0
    for message in request.messages:
        characters += len(content_text(message.get("content")))
        for call in message.get("tool_calls") or []:
            characters += len(call["function"]["name"]) + len(call["function"]["arguments"])
    return -(-characters // 4)


def pairs_are_complete(request: RecordedRequest) -> bool:
    asked = [call["id"] for message in request.messages for call in message.get("tool_calls") or []]
    return asked == [message["tool_call_id"] for message in request.messages if message["role"] == "tool"]


def stands(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in history if str(line["content"]).startswith(BEGINS)]


def is_summarised(client: Client, session: str) -> None:
    until = time.monotonic() + 60
    while not stands(client.history(session, "compacted")):
        assert time.monotonic() < until, "there is no summary"
        time.sleep(0.02)


@pytest.mark.rule("A99", "A38")
def test_a_long_conversation_fits_into_a_small_context_window(alice: Client, model: ModelServer) -> None:
    session = alice.create("rememberer", messages=[{"role": "system", "content": "Be kind."}])
    expected: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}]
    for number in range(25):
        prompt = model.script(
            [steps.text("looking " * 10), steps.call("verbose", {"letters": 300}, id=f"c{number}")],
            [steps.text(f"answer {number} " + "a" * 200)],
            name=f"question {number} " + "q" * 200,
        )
        outcome = alice.turn(session, prompt)
        assert outcome.stop == "end_turn"
        expected += [{"role": "user", "content": prompt}, *outcome.messages]
    is_summarised(alice, session)
    assert alice.history(session) == expected
    assert not stands(expected)
    compacted = alice.history(session, "compacted")
    assert compacted[0] == {"role": "system", "content": "Be kind."}
    assert compacted[1] == {"role": "user", "content": f"{BEGINS}\n\nThey spoke of ropes."}
    assert compacted[-4:] == expected[-4:]
    assert expected[-2] == tool("c24", "x" * 300)
    asked, scribe = of(model, "sk-rememberer"), of(model, SCRIBE)
    assert len(asked) == 50
    assert all(length(request) <= 800 for request in model.requests)
    assert all(pairs_are_complete(request) for request in asked)
    assert len(scribe) >= 2
    assert {request.body["model"] for request in scribe} == {"gpt-small"}
    assert "They spoke of ropes." in str(scribe[-1].messages[-1]["content"])
    summarised = [request for request in asked if any(BEGINS in str(message.get("content")) for message in request.messages)]
    assert summarised
    for request in summarised:
        roles = [message["role"] for message in request.messages[:3]]
        assert roles == ["system", "system", "user"]
        assert str(request.messages[2]["content"]).startswith(BEGINS)


@pytest.mark.rule("A99")
def test_the_agents_own_model_summarises_by_default(alice: Client, model: ModelServer) -> None:
    """The summarising model repeats the whole transcript; no request becomes too long even then."""
    session = alice.create("selfmade")
    for number in range(15):
        assert alice.turn(session, f"question {number} " + "q" * 250).stop == "end_turn"
    is_summarised(alice, session)
    requests = of(model, "sk-selfmade")
    assert len(requests) > 15
    assert all(length(request) <= 500 for request in requests)
    assert len(alice.history(session)) == 30


@pytest.mark.rule("A99")
def test_without_summaries_old_turns_are_dropped(alice: Client, model: ModelServer) -> None:
    model.script_for_key(SCRIBE, [steps.status(401, message="who are you?")])
    session = alice.create("rememberer")
    for number in range(12):
        assert alice.turn(session, f"question {number} " + "q" * 250).stop == "end_turn"
    assert stands(alice.history(session, "compacted")) == []
    assert len(alice.history(session)) == 24
    assert all(length(request) <= 800 for request in of(model, "sk-rememberer"))
    assert len(of(model, SCRIBE)) == 1


def long_seed() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for number in range(20):
        lines += [{"role": "user", "content": f"{number} " + "u" * 150}, {"role": "assistant", "content": "a" * 150}]
    return lines


@pytest.mark.rule("A99", "A63")
def test_a_cancel_while_the_summary_is_made_closes_that_call(alice: Client, model: ModelServer) -> None:
    model.script_for_key(SCRIBE, [steps.text("They "), steps.gate("cancelled summary"), steps.text("spoke.")])
    session = alice.create("rememberer", messages=long_seed())
    with alice.stream(session, "and now?") as stream:
        model.wait_gate("cancelled summary")
        alice.cancel(session)
        assert stream.rest()[-1].data == {"stopReason": "end_turn"}
    assert model.wait_ended(of(model, SCRIBE)[0]) == "closed"
    assert of(model, "sk-rememberer") == []
    assert alice.history(session)[:-1] == long_seed()
    model.open_gate("cancelled summary")
    assert alice.turn(session, "so?").stop == "end_turn"
    assert stands(alice.history(session, "compacted"))


def revive(server: Server) -> None:
    """Kill the worker and start a new one."""
    server.kill_workers()
    if server.shape == "production":
        server.start_worker()
    for index, web in enumerate(server.webs):
        if not web.alive:
            server.start_web(index)
            server.wait_ready(index)


@pytest.mark.rule("A99", "A78")
def test_kill_while_a_run_waits_for_its_summary_continues_the_turn(long_lived: Server, alice: Client, model: ModelServer) -> None:
    model.script_for_key(SCRIBE, [steps.text("They spoke "), steps.gate("death 1"), steps.text("of ropes.")])
    session = alice.create("rememberer", messages=long_seed())
    with contextlib.suppress(Exception), alice.stream(session, "and now?") as stream:
        stream.until("turn_start")
        model.wait_gate("death 1")
        revive(long_lived)
    model.open_gate("death 1")
    with alice.join(session) as joined:
        assert joined.rest()[-1].data == {"stopReason": "end_turn"}
    assert alice.history(session)[-1]["content"] == "echo: and now?"
    assert all(length(request) <= 800 for request in of(model, "sk-rememberer"))
    assert stands(alice.history(session, "compacted"))


@pytest.mark.rule("A99")
def test_kill_during_a_background_summary_repeats_the_summary(long_lived: Server, alice: Client, model: ModelServer) -> None:
    model.script_for_key(SCRIBE, [steps.text("They spoke "), steps.gate("death 2"), steps.text("of ropes.")])
    session = alice.create("rememberer")
    asked = 0
    while not of(model, SCRIBE):
        assert alice.turn(session, f"question {asked} " + "q" * 250).stop == "end_turn"
        asked += 1
        assert asked < 12
    model.wait_gate("death 2")
    revive(long_lived)
    model.open_gate("death 2")
    is_summarised(alice, session)
    assert len(alice.history(session)) == 2 * asked
    assert alice.turn(session, "are you well?").text == "echo: are you well?"
