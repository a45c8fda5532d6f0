"""The vendors' providers side by side: how each is asked, and a conversation kept like the loop keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents_app import exact_json, providers
from agents_app.errors import ProviderError
from agents_app.runtime import opaque
from agents_app.runtime.interface import (
    Finish,
    Limits,
    ModelRequest,
    Opaque,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import Message, ToolSchema
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import ScriptedServer

LIMITS = Limits(connect=60.0, first_output=90.0, between_outputs=90.0)
KEY = "sk-canary-key"
LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {"harbour": {"type": "string"}}})


@dataclass(frozen=True)
class Vendor:
    """``settings`` switch thinking on; ``long`` is its word for an answer that was cut, ``filtered`` for one withheld."""

    name: str
    model: str
    serve: Callable[[], ScriptedServer]
    settings: dict[str, Any]
    long: str
    filtered: str

    @property
    def full_model(self) -> str:
        return f"{self.name}:{self.model}"


VENDORS = (
    Vendor(
        "anthropic",
        "claude-sonnet-4-5",
        AnthropicServer,
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        "max_tokens",
        "refusal",
    ),
    Vendor("openai-responses", "gpt-5.2", ResponsesServer, {"reasoning_effort": "high"}, "max_output_tokens", "content_filter"),
    Vendor("google", "gemini-3-pro", GoogleServer, {"reasoning_effort": "high"}, "MAX_TOKENS", "SAFETY"),
)


def request(vendor: Vendor, server: ScriptedServer, *messages: Message, **changes: Any) -> ModelRequest:
    values: dict[str, Any] = {
        "model": vendor.model,
        "instructions": "Be brief.",
        "messages": list(messages),
        "tools": [LOOK],
        "settings": vendor.settings,
        "api_key": KEY,
        "base_url": server.url,
        "limits": LIMITS,
        "full_model": vendor.full_model,
    }
    return ModelRequest(**{**values, **changes})


async def batches(vendor: Vendor, asked: ModelRequest) -> list[list[ProviderEvent]]:
    provider = providers.find(vendor.name)
    assert provider is not None
    return [batch async for batch in provider.stream(asked)]


async def events(vendor: Vendor, asked: ModelRequest) -> list[ProviderEvent]:
    return [event for batch in await batches(vendor, asked) for event in batch]


async def fault_of(vendor: Vendor, asked: ModelRequest) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await events(vendor, asked)
    return caught.value


@dataclass
class Said:
    """What was said in one step."""

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """(id, name, arguments)"""
    usage: Usage | None = None
    reason: str = ""
    opaque: list[Opaque] = field(default_factory=list)

    def message(self, full_model: str) -> Message:
        """As a history keeps it."""
        content: list[dict[str, Any]] = []
        if self.thinking:
            content.append({"type": "thinking", "thinking": self.thinking})
        if self.text:
            content.append({"type": "text", "text": self.text})
        content += [
            {"type": "tool_use", "toolCallId": call, "name": name, "input": exact_json.loads(arguments or "{}")}
            for call, name, arguments in self.calls
        ]
        return Message("assistant", content, provider_data=opaque.kept(full_model, self.opaque))


def said(found: Sequence[ProviderEvent]) -> Said:
    whole = Said()
    calls: dict[int, tuple[str, str, str]] = {}
    for event in found:
        match event:
            case TextDelta(text):
                whole.text += text
            case ThinkingDelta(text):
                whole.thinking += text
            case ToolCallDelta(index, call, name, arguments):
                known = calls.get(index, (call or f"made_{index}", name or "", ""))
                calls[index] = (known[0], known[1], known[2] + arguments)
            case Opaque():
                whole.opaque.append(event)
            case Usage():
                whole.usage = event
            case Finish(reason):
                whole.reason = reason
    whole.calls = [calls[index] for index in sorted(calls)]
    return whole
