"""The operator's keys of providers, for agents without a key of their own. Set once, at the start."""

from __future__ import annotations

from collections.abc import Mapping

_defaults: dict[str, str] = {}


def set_defaults(keys: Mapping[str, str]) -> None:
    """Replace all keys; empty ones count as missing."""
    _defaults.clear()
    _defaults.update({name: key for name, key in keys.items() if key})


def default(provider: str) -> str | None:
    """The operator's key for that provider, if there is one."""
    return _defaults.get(provider)
