"""Spans of model calls and tool calls, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agents_app import tracing
from agents_app.errors import ProviderError, ToolFailed
from agents_app.runtime.interface import Call, FinishReason, ModelRequest, Usage
from agents_app.runtime.messages import Message
from agents_app.tracing import CLIENT, NOTHING, Attributes, Span

_PROVIDERS: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}
"""The conventions' names, where they differ from ours."""
_MOST_MESSAGES = 50
"""Of a request, the last ones."""


def provider_name(full_model: str) -> str:
    name = full_model.partition(":")[0]
    return _PROVIDERS.get(name, name)


def model_call(request: ModelRequest) -> tracing.span | _Untraced:
    """The span of one model call, retries included."""
    if tracing.current.get() is None:
        return _UNTRACED
    settings = request.settings
    about: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider_name(request.full_model),
        "gen_ai.request.model": request.model,
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": _number(settings.get("max_tokens")),
        "gen_ai.request.temperature": _number(settings.get("temperature")),
        "gen_ai.request.top_p": _number(settings.get("top_p")),
    }
    return _ModelCall(f"chat {request.model}", about, request)


class _Untraced:
    def __enter__(self) -> Span:
        return NOTHING

    def __exit__(self, *_error: object) -> None:
        pass


_UNTRACED = _Untraced()


class _ModelCall(tracing.span):
    __slots__ = ("_request",)

    def __init__(self, name: str, about: Attributes, request: ModelRequest) -> None:
        super().__init__(name, CLIENT, about)
        self._request = request

    def __enter__(self) -> Span:
        span, request = super().__enter__(), self._request
        tracing.content(span, "gen_ai.system_instructions", lambda: [{"type": "text", "content": request.instructions}])
        tracing.content(span, "gen_ai.input.messages", lambda: [_message(each) for each in request.messages[-_MOST_MESSAGES:]])
        return span


def first_output(span: Span) -> None:
    if span.recorded:
        span.set({"gen_ai.response.time_to_first_chunk": (time.time_ns() - span.began) / 1e9})


def answer(
    span: Span,
    usage: Usage,
    finish: FinishReason | None,
    fault: ProviderError | None,
    text: Callable[[], str],
    calls: Callable[[], Sequence[tuple[str, str, str]]],
) -> None:
    """Report how a model call ended. ``calls``: id, name and arguments of each."""
    if not span.recorded:
        return
    span.set(
        {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
            "gen_ai.response.finish_reasons": None if finish is None else [finish],
        }
    )
    if fault is not None:
        span.set({"http.response.status_code": fault.answered.status, "agenthost.attempts": fault.answered.attempts})
        span.fail(fault.fault)
    tracing.content(span, "gen_ai.output.messages", lambda: [_output(text(), calls(), finish)])


@contextmanager
def tool_call(call: Call) -> Iterator[Span]:
    """The span of a server tool's call."""
    about: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.call_id,
        "gen_ai.tool.type": "function",
    }
    with tracing.span(f"execute_tool {call.name}", attributes=about) as span:
        tracing.content(span, "gen_ai.tool.call.arguments", lambda: call.arguments)
        with tracing.shared_with_libraries():
            try:
                yield span
            except ToolFailed:
                span.fail("tool_failed")
                raise


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        result = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return {"role": "tool", "parts": [result]}
    content = message.content
    parts = [{"type": "text", "content": content}] if isinstance(content, str) else content
    return {"role": message.role, "parts": parts}


def _output(text: str, calls: Sequence[tuple[str, str, str]], finish: FinishReason | None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", "id": call_id, "name": name, "arguments": given} for call_id, name, given in calls]
    return {"role": "assistant", "parts": parts, "finish_reason": finish}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
