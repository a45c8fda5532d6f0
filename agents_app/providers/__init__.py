"""The model providers by name: the part of an agent's ``model`` before the colon.

Each is imported when an agent first uses it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from agents_app.providers.hosts import HOSTS
from agents_app.runtime.interface import Provider

# The module in this package, and its class.
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
ADDRESS_REQUIRED = tuple(name for name, host in HOSTS.items() if host.base_url is None)
"""Providers without a usual address: an agent has to set ``base_url``."""

KEY_VARIABLES: Mapping[str, tuple[str, ...]] = {
    **{name: (host.key,) for name, host in HOSTS.items() if host.key is not None},
    "openai-responses": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "bedrock": ("AWS_BEARER_TOKEN_BEDROCK",),
}
"""The environment variables with operators' keys, by provider; the first that is set counts."""

_made: dict[str, Provider] = {}


def find(name: str) -> Provider | None:
    """The provider of that name, one instance per process."""
    if name not in _made and name in NAMES:
        if name in _OWN:
            module, kind = _OWN[name]
            made: Provider = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
        else:
            from agents_app.providers.openai_chat import OpenAIChat

            made = OpenAIChat(name)
        _made.setdefault(name, made)
    return _made.get(name)
