"""The agent's ``settings`` as each vendor wants them. Pure.

A few names mean the same with every vendor and are translated; all others go into the request's body as they
are, and what stands in ``extra_body`` is put there last, over anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
TOKENS_OF_EFFORT: Mapping[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""For models that are told how many tokens they may think, and not how hard."""


class Settings:
    """Hands out settings by name; ``rest`` is what nobody asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        extra = self._values.pop("extra_body", None)
        self.extra: dict[str, Any] = dict(extra) if isinstance(extra, Mapping) else {}

    def take(self, *names: str) -> Any:
        """The first of these that is set; all of them are gone then."""
        found = [self._values.pop(name) for name in names if name in self._values]
        return found[0] if found else None

    def take_effort(self) -> Effort | None:
        """``reasoning_effort``; what is no word for it stays for the vendor to judge."""
        wanted = self._values.get("reasoning_effort")
        if wanted not in EFFORTS:
            return None
        del self._values["reasoning_effort"]
        return EFFORTS[EFFORTS.index(wanted)]

    @property
    def rest(self) -> dict[str, Any]:
        return self._values


def filled(body: dict[str, Any], **values: Any) -> dict[str, Any]:
    """``body`` with the values that are there."""
    body.update({name: value for name, value in values.items() if value is not None})
    return body


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, tables joined key by key, ``over`` winning."""
    out = dict(base)
    for name, value in over.items():
        mine = out.get(name)
        out[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return out


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
