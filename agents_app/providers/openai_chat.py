"""The provider ``openai-chat`` and all hosts with the OpenAI chat completions API, streamed.

chat_request.py builds the request, chat_stream.py reads the answer, exchange.py does the HTTP exchange.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from agents_app.errors import ProviderError
from agents_app.providers import chat_request, exchange, names
from agents_app.providers.chat_stream import ChatStream
from agents_app.providers.hosts import HOSTS, OPENAI
from agents_app.runtime.interface import ModelRequest, ProviderEvent

BASE_URL = HOSTS["openai-chat"].base_url


class OpenAIChat:
    """One host (interface.Provider)."""

    def __init__(self, name: str = "openai-chat") -> None:
        self._name, self._host = name, HOSTS[name]

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        base = request.base_url or self._host.base_url
        if base is None:
            raise ProviderError("configuration", f"{self._name}: models need a base_url")
        return exchange.stream(request, partial(self._call, request, base))

    def _call(self, request: ModelRequest, base: str) -> exchange.Call:
        dialect = OPENAI if base == BASE_URL else self._host.dialect
        fit, back = names.fitting(request)
        return exchange.Call(
            vendor=self._name,
            url=exchange.address(base, "/chat/completions"),
            headers=exchange.headers(request),
            body=chat_request.body(fit, dialect),
            answer=lambda: ChatStream(keeps_thinking=dialect.thinking),
            tool_names=back,
        )
