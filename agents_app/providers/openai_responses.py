"""The provider ``openai-responses``: OpenAI's Responses API, and any server with the same API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from agents_app.providers import exchange, names, responses_request
from agents_app.providers.responses_stream import ResponsesStream
from agents_app.runtime.interface import ModelRequest, ProviderEvent

BASE_URL = "https://api.openai.com/v1"


class OpenAIResponses:
    """The provider ``openai-responses`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return exchange.stream(request, partial(_call, request))


def _call(request: ModelRequest) -> exchange.Call:
    fit, back = names.fitting(request)
    return exchange.Call(
        vendor="openai-responses",
        url=exchange.address(request.base_url or BASE_URL, "/responses"),
        headers=exchange.headers(request),
        body=responses_request.body(fit),
        tool_names=back,
        answer=ResponsesStream,
    )
