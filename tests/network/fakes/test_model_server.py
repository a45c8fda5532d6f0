"""The scripted model server does what tests believe it does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.fakes import steps
from tests.fakes.model_server import ModelServer, RemoteModelServer, attempts


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def body_for(message: str, *after: dict[str, Any]) -> dict[str, Any]:
    options = {"include_usage": True}
    return {"model": "m", "stream": True, "stream_options": options, "messages": [{"role": "user", "content": message}, *after]}


def ask(url: str, message: str, *after: dict[str, Any]) -> list[dict[str, Any]]:
    answer = httpx.post(f"{url}/chat/completions", json=body_for(message, *after), headers={"Authorization": "Bearer k"})
    answer.raise_for_status()
    assert answer.text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]


def said(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])


def test_a_script_answers_step_by_step_and_the_request_is_recorded(model: ModelServer) -> None:
    prompt = model.script([steps.call("look", {"a": 1})], [steps.text("one ", "two")])
    first = ask(model.url, prompt)
    assert first[1]["choices"][0]["delta"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a": 1}'}
    assert first[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert first[-1]["usage"]["prompt_tokens"] == 10
    assert said(ask(model.url, prompt, {"role": "assistant", "content": None}, {"role": "tool", "content": "x"})) == "one two"
    assert [(request.answer, request.state, request.api_key) for request in model.requests_of(prompt)] == [
        (0, "done", "k"),
        (1, "done", "k"),
    ]


def test_attempts_differ_and_the_last_one_stays(model: ModelServer) -> None:
    prompt = model.script(attempts([steps.status(429, retry_after="0")], [steps.text("fine")]))
    refused = httpx.post(f"{model.url}/chat/completions", json=body_for(prompt))
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "0")
    assert said(ask(model.url, prompt)) == "fine"
    assert said(ask(model.url, prompt)) == "fine"


def test_without_a_script_the_queue_then_the_key_then_an_echo_answers(model: ModelServer) -> None:
    model.enqueue([steps.text("queued")])
    assert said(ask(model.url, "hello")) == "queued"
    assert said(ask(model.url, "hello")) == "echo: hello"
    model.script_for_key("k", [steps.text("for k")])
    assert said(ask(model.url, "hello")) == "for k"


def test_a_character_cut_in_two_arrives_whole(model: ModelServer) -> None:
    assert said(ask(model.url, model.script([*steps.split_text("a€b", 2), steps.text("!")]))) == "a€b!"


def test_a_client_that_hangs_up_is_seen_at_a_gate(model: ModelServer) -> None:
    prompt = model.script([steps.text("before"), steps.gate("g"), steps.text("after")])
    with httpx.stream("POST", f"{model.url}/chat/completions", json=body_for(prompt)) as answer:
        chunks = answer.iter_text()
        assert next(chunks)
        model.wait_gate("g")
        assert model.streams == 1
    assert model.wait_ended(model.wait_request(prompt)) == "closed"
    model.wait_until(lambda: model.connections == 0, what="no connection")
    model.open_gate("g")
    assert said(ask(model.url, prompt)) == "beforeafter"


def test_a_dropped_connection_reaches_the_client_as_an_error(model: ModelServer) -> None:
    prompt = model.script([steps.text("before"), steps.drop()])
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(f"{model.url}/chat/completions", json=body_for(prompt))
    assert model.wait_ended(model.wait_request(prompt)) == "cut"


def test_the_same_server_runs_as_a_process_of_its_own_controlled_by_http() -> None:
    process = subprocess.Popen([sys.executable, "-m", "tests.fakes.model_server"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        remote = RemoteModelServer(process.stdout.readline().strip())
        prompt = remote.script(attempts([steps.text("first"), steps.gate("g"), steps.text("through")]))
        with httpx.stream("POST", f"{remote.url}/chat/completions", json=body_for(prompt)) as answer:
            remote.wait_gate("g")
            remote.open_gate("g")
            assert "through" in "".join(answer.iter_text())
        assert remote.wait_ended(remote.wait_request(prompt)) == "done"
        assert remote.streams == 0
    finally:
        process.terminate()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
