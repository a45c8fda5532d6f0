"""Hosts of OpenAI's chat format that differ, and Vertex AI, by what reaches a server."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from agents_app import providers
from agents_app.errors import ProviderError
from agents_app.providers import chat_request, google_vertex
from agents_app.providers.hosts import HOSTS, OPENAI
from agents_app.runtime.interface import Limits, ModelRequest
from agents_app.runtime.messages import Message
from tests.network.agents_app.providers.listener import listener
from tests.network.agents_app.providers.vendors import LOOK, Said, said

FORBIDDEN = ("pydantic_ai", "openai", "anthropic", "google.genai", "google.auth", "mistralai", "groq", "boto3", "botocore")


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode() + b"\n\n"


def calling(call_id: str, **more: Any) -> bytes:
    return chunk({"tool_calls": [{"index": 0, "id": call_id, "function": {"name": "look", "arguments": "{}"}, **more}]})


END = chunk({}, "stop") + b"data: [DONE]\n\n"


async def heard(name: str, url: str, *messages: Message, **changes: Any) -> Said:
    values: dict[str, Any] = {"tools": [LOOK], "api_key": "k", "full_model": f"{name}:m", "limits": Limits(retries=0)}
    request = ModelRequest("m", "", list(messages) or [Message("user", "hi")], base_url=url, **{**values, **changes})
    provider = providers.find(name)
    assert provider is not None
    return said([event async for batch in provider.stream(request) for event in batch])


async def twice(name: str, first: bytes, call_id: str = "c1") -> dict[str, Any]:
    """The assistant's message as it went back to the model that wrote it."""
    async with listener([first], [chunk({"content": "ok"}) + END]) as server:
        found = await heard(name, server.url)
        answered = Message("tool", "full", tool_call_id=call_id)
        await heard(name, server.url, Message("user", "hi"), found.message(f"{name}:m"), answered)
        await heard(name, server.url, Message("user", "hi"), found.message(f"{name}:m"), answered, full_model=f"{name}:n")
    back: dict[str, Any] = server.heard[1].body["messages"][1]
    other = server.heard[2].body["messages"][1]
    assert "hm" not in json.dumps(other)
    return back


@pytest.mark.parametrize(
    "name", [name for name, host in HOSTS.items() if host.dialect.thinking in ("reasoning", "reasoning_content")]
)
async def test_a_host_that_wants_its_thinking_back_gets_it_in_its_field(name: str) -> None:
    field = HOSTS[name].dialect.thinking
    assert field is not None
    back = await twice(name, chunk({field: "h"}) + chunk({field: "m"}) + calling("c1") + chunk({}, "tool_calls"))
    assert back[field] == "hm"


async def test_a_host_that_expects_thinking_with_calls_gets_an_empty_one_of_another_model() -> None:
    call = {"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {}}
    async with listener([END]) as server:
        await heard("deepseek", server.url, Message("assistant", [call]), Message("tool", "x", tool_call_id="c1"))
    assert server.heard[0].body["messages"][0]["reasoning_content"] == ""


async def test_other_hosts_get_no_thinking_back() -> None:
    back = await twice("openai-chat", chunk({"reasoning_content": "hm"}) + calling("c1") + chunk({}, "tool_calls"))
    assert "hm" not in json.dumps(back)


async def test_openrouters_details_go_back_joined_and_complete() -> None:
    def detail(**more: Any) -> bytes:
        return chunk({"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "index": 0, **more}]})

    sealed = chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "hm=="}]})
    first = detail(text="h", signature=None, format="anthropic") + detail(text="m") + detail(signature="sig") + sealed
    back = await twice("openrouter", first + calling("c1") + chunk({}, "tool_calls"))
    assert back["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "sig", "format": "anthropic"},
        {"type": "reasoning.encrypted", "index": 1, "data": "hm=="},
    ]


async def test_what_a_server_puts_beside_a_call_goes_back_with_it() -> None:
    extra = {"google": {"thought_signature": "hm"}}
    back = await twice("openai-chat", calling("c1", extra_content=extra) + chunk({}, "tool_calls"))
    assert back["tool_calls"][0]["extra_content"] == extra


async def test_mistral_thinks_in_parts_has_ids_of_nine_and_hears_no_user_after_a_tool() -> None:
    def thinking(text: str, **more: Any) -> bytes:
        return chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}] if text else [], **more}]})

    thought = thinking("h") + thinking("m") + thinking("", signature="hm==") + thinking("hm?", closed=True)
    back = await twice("mistral", thought + calling("D681PevKs") + chunk({}, "tool_calls"), "D681PevKs")
    assert back["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "signature": "hm=="},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm?"}]},
    ]
    assert back["tool_calls"][0]["id"] == "D681PevKs"
    call = {"type": "tool_use", "toolCallId": "call_of_another_vendor", "name": "look", "input": {}}
    history = [
        Message("assistant", [call]),
        Message("tool", "full", tool_call_id="call_of_another_vendor"),
        Message("user", "and?"),
        Message("system", "Be kind."),
    ]
    async with listener([END]) as server:
        await heard("mistral", server.url, *history)
    sent = server.heard[0].body
    assert "stream_options" not in sent
    asked, answered, pause, user, late = sent["messages"]
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert len(answered["tool_call_id"]) == 9
    assert [message["role"] for message in (answered, pause, user, late)] == ["tool", "assistant", "user", "user"]


async def test_a_host_that_everybody_has_elsewhere_needs_an_address() -> None:
    for name in providers.ADDRESS_REQUIRED:
        with pytest.raises(ProviderError, match="base_url"):
            await heard(name, "")


async def test_extra_body_goes_over_everything_else() -> None:
    async with listener([END]) as server:
        await heard("groq", server.url, settings={"top_p": 0.5, "extra_body": {"top_p": 1, "provider": {"only": ["x"]}}})
    assert server.heard[0].body["top_p"] == 1
    assert server.heard[0].body["provider"] == {"only": ["x"]}
    assert server.heard[0].path == "/chat/completions"
    assert server.heard[0].headers["Authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("name", "called"), [("azure", "max_completion_tokens"), ("groq", "max_tokens"), ("openai-chat", "max_tokens")]
)
async def test_the_longest_answer_is_called_what_the_host_calls_it(name: str, called: str) -> None:
    async with listener([END]) as server:
        await heard(name, server.url, settings={"max_tokens": 7, "stop_sequences": ["x"]})
    sent = server.heard[0].body
    assert {key: value for key, value in sent.items() if "tokens" in key} == {called: 7}
    assert sent["stop"] == ["x"]


@pytest.mark.parametrize("name", HOSTS)
async def test_every_host_gets_a_chat_completion_with_its_key(name: str) -> None:
    async with listener([chunk({"content": "ok"}) + END]) as server:
        assert (await heard(name, server.url)).text == "ok"
    assert (server.heard[0].path, server.heard[0].headers["Authorization"]) == ("/chat/completions", "Bearer k")


def test_openai_itself_has_a_newer_name_for_it() -> None:
    body = chat_request.body(ModelRequest("m", "", [Message("user", "hi")], settings={"max_tokens": 7}), OPENAI)
    assert json.loads(body)["max_completion_tokens"] == 7


def test_every_name_leads_to_a_provider() -> None:
    assert len(set(providers.NAMES)) == len(providers.NAMES)
    for name in providers.NAMES:
        assert hasattr(providers.find(name), "stream"), name
    assert providers.find("nobody") is None


@pytest.mark.parametrize("module", ["agents_app.providers", "agents_app.registry", "agenthost.asgi"])
def test_no_vendors_library_is_loaded_before_it_is_needed(module: str, tmp_path: Any) -> None:
    code = f"import sys, {module}; print([name for name in {FORBIDDEN!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": "", "AGENTHOST_VAR_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "agenthost.settings"},
    )
    assert done.stdout.strip() == "[]"


def test_the_providers_of_wire_formats_need_no_vendors_library() -> None:
    names = ("openai-chat", "openai-responses", "anthropic", "google", "google-vertex", "bedrock", "mistral", "ollama")
    code = f"""
import sys
from agents_app import providers
for name in {names!r}:
    assert providers.find(name) is not None
print([name for name in {FORBIDDEN!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# --- Vertex AI ---

SAID = b'data: {"candidates":[{"content":{"parts":[{"text":"ok"}]},"finishReason":"STOP"}]}\n\n'


async def test_vertex_with_a_key_needs_no_project() -> None:
    async with listener([SAID]) as server:
        assert (await heard("google-vertex", server.url)).text == "ok"
    assert server.heard[0].path == "/v1/publishers/google/models/m:streamGenerateContent?alt=sse"
    assert server.heard[0].headers["x-goog-api-key"] == "k"


async def test_vertex_takes_project_and_place_from_the_settings() -> None:
    async with listener([SAID]) as server:
        await heard("google-vertex", server.url, settings={"google_project": "p", "google_location": "europe-west4"})
    path = "/v1/projects/p/locations/europe-west4/publishers/google/models/m:streamGenerateContent?alt=sse"
    assert server.heard[0].path == path
    assert "google_project" not in json.dumps(server.heard[0].body)


async def test_vertex_shows_the_servers_own_credentials_to_google_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_vertex, "_token", lambda: ("token", "p"))
    async with listener([SAID]) as server:
        with pytest.raises(ProviderError, match="Google's hosts only"):
            await heard("google-vertex", server.url, api_key=None)
        assert server.heard == []


# --- the Gemini API ---


@pytest.mark.parametrize(("delay", "attempts"), [("0.01s", 3), ("45s", 1)])
async def test_google_says_in_the_error_when_to_come_back(delay: str, attempts: int) -> None:
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "x/google.rpc.RetryInfo", "retryDelay": delay}]}
    async with listener([json.dumps({"error": error}).encode()], status=429) as server:
        with pytest.raises(ProviderError) as caught:
            await heard("google", server.url, limits=Limits(retries=2))
    assert (caught.value.fault, len(server.heard)) == ("unavailable", attempts)
