"""The model providers this server can speak to, by the name that stands before the colon in ``model``."""

from __future__ import annotations

from agents_app.providers import demo, openai_chat
from agents_app.runtime.interface import Provider

_PROVIDERS: dict[str, Provider] = {
    "openai-chat": openai_chat.OpenAIChat(),
    "demo": demo.Demo(),
}

NAMES = tuple(_PROVIDERS)


def find(name: str) -> Provider | None:
    """The provider of that name, one instance a process."""
    return _PROVIDERS.get(name)
