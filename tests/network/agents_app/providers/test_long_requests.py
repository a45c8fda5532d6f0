"""Requests with long conversations: built outside the loop that all runs share, and sent whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents_app import exact_json, providers
from agents_app.errors import ProviderError
from agents_app.runtime import long_work
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Message
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.model_server import ModelServer
from tests.fakes.odd_server import saying, server
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import ScriptedServer
from tests.network.agents_app.providers.vendors import KEY, LIMITS

WORDS = "ahoy "
LONG = WORDS * (3 * long_work.LONG // len(WORDS))


@pytest.fixture
def encoded_in_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request that was encoded: whether that was in the loop's thread."""
    found: list[bool] = []
    dumps, loops_thread = exact_json.dumps_in_pieces, threading.get_ident()

    def noted(value: Any) -> str:
        found.append(threading.get_ident() == loops_thread)
        return dumps(value)

    monkeypatch.setattr(exact_json, "dumps_in_pieces", noted)
    return found


def asked(url: str, model: str, content: str) -> ModelRequest:
    messages = [Message("user", content), Message("assistant", "I see."), Message("user", "And now?")]
    return ModelRequest(model, "Be brief.", messages, api_key=KEY, base_url=url, limits=LIMITS)


@pytest.mark.parametrize(
    ("name", "model", "serve"),
    [
        ("openai-chat", "gpt-test", ModelServer),
        ("openai-responses", "gpt-5.2", ResponsesServer),
        ("anthropic", "claude-sonnet-4-5", AnthropicServer),
        ("google", "gemini-3-pro", GoogleServer),
    ],
)
async def test_a_long_request_is_built_outside_the_loop_and_arrives_whole(
    name: str, model: str, serve: Callable[[], ScriptedServer], encoded_in_loop: list[bool]
) -> None:
    provider = providers.find(name)
    assert provider is not None
    with serve() as vendor:
        assert [batch async for batch in provider.stream(asked(vendor.url, model, LONG))]
        [received] = vendor.requests
    assert encoded_in_loop == [False]
    assert LONG in json.dumps(received.body)


async def test_a_long_request_to_bedrock_is_built_outside_the_loop(encoded_in_loop: list[bool]) -> None:
    provider = providers.find("bedrock")
    assert provider is not None
    async with server(saying(status=400)) as url:
        request = replace(asked(url, "anthropic.claude-sonnet-4-5", LONG), settings={"aws_region": "eu-west-1"})
        with pytest.raises(ProviderError, match="400"):
            assert [batch async for batch in provider.stream(request)]
    assert encoded_in_loop == [False]


async def test_a_short_request_is_built_in_the_loop(encoded_in_loop: list[bool]) -> None:
    provider = providers.find("openai-chat")
    assert provider is not None
    with ModelServer() as vendor:
        assert [batch async for batch in provider.stream(asked(vendor.url, "gpt-test", WORDS))]
    assert encoded_in_loop == [True]
