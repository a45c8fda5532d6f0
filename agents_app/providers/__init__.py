"""The model providers this server can speak to, by the name that stands before the colon in ``model``.

Each is imported when an agent first asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from agents_app.providers.hosts import HOSTS
from agents_app.runtime.interface import Provider

# Module below this package, and the class in it.
_OWN: Mapping[str, tuple[str, str]] = {
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "google": ("google", "Google"),
    "google-vertex": ("google_vertex", "GoogleVertex"),
    "bedrock": ("bedrock", "Bedrock"),
    "demo": ("demo", "Demo"),
    "python": ("python", "Python"),
}
NAMES = ("openai-chat", *_OWN, *(name for name in HOSTS if name != "openai-chat"))
WITHOUT_ADDRESS = tuple(name for name, host in HOSTS.items() if host.base_url is None)
"""Everybody has these elsewhere: an agent has to say where."""

KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    **{name: (host.key,) for name, host in HOSTS.items() if host.key is not None},
    "openai-responses": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
}
"""Environment variables in which operators keep their vendors' keys; the first that is set counts."""

_made: dict[str, Provider] = {}


def find(name: str) -> Provider | None:
    """The provider of that name, one instance a process."""
    if name not in _made and name in NAMES:
        if name in _OWN:
            module, kind = _OWN[name]
            made: Provider = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
        else:
            from agents_app.providers.openai_chat import OpenAIChat

            made = OpenAIChat(name)
        _made.setdefault(name, made)
    return _made.get(name)
