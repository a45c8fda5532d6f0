"""Any server that speaks OpenAI chat completions, streamed.

What is sent is made in chat_request.py; what comes is read in chat_stream.py; the HTTP side is exchange.py's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from agents_app.providers import chat_request, exchange
from agents_app.providers.chat_stream import ChatStream
from agents_app.runtime.interface import ModelRequest, ProviderEvent

BASE_URL = "https://api.openai.com/v1"


class OpenAIChat:
    """The provider ``openai-chat`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        call = exchange.Call(
            vendor="openai-chat",
            url=exchange.address(request.base_url or BASE_URL, "/chat/completions"),
            headers=exchange.headers(request),
            body=chat_request.body(request),
            answer=ChatStream,
        )
        return exchange.stream(request, call)
