"""Anthropic's Messages API, and compatible servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import urlsplit

from agents_app.providers import anthropic_request, exchange, names
from agents_app.providers.anthropic_stream import AnthropicStream
from agents_app.runtime.interface import ModelRequest, ProviderEvent

BASE_URL = "https://api.anthropic.com"
VERSION = "2023-06-01"


class Anthropic:
    """The provider ``anthropic`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return exchange.stream(request, partial(_call, request))


def _call(request: ModelRequest) -> exchange.Call:
    base = request.base_url or BASE_URL
    path = "/messages" if urlsplit(base).path.rstrip("/").endswith("/v1") else "/v1/messages"
    # A gateway may want the key in another header, which the agent's `headers` set.
    bearer = any(name.lower() == "authorization" for name in request.headers)
    fit, back = names.fitting(request)
    return exchange.Call(
        vendor="anthropic",
        url=exchange.address(base, path),
        headers=exchange.headers(request, "Authorization" if bearer else "x-api-key", "{}", anthropic_version=VERSION),
        body=anthropic_request.body(fit),
        tool_names=back,
        answer=AnthropicStream,
    )
