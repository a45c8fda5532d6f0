"""Translates an agent's ``settings`` for each vendor. Pure.

A few names have the same meaning for every vendor and are translated. All others are copied to the request's body
unchanged, and ``extra_body`` is merged last, over everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
EFFORTS: tuple[Effort, ...] = ("none", "minimal", "low", "medium", "high", "xhigh")
TOKENS_OF_EFFORT: Mapping[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""For models that take a number of thinking tokens instead of an effort."""


class Settings:
    """Settings that are taken by name; ``rest`` has those that were not taken."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)
        extra = self._values.pop("extra_body", None)
        self.extra: dict[str, Any] = dict(extra) if isinstance(extra, Mapping) else {}

    def take(self, *names: str) -> Any:
        """The first of these that is set; removes all of them."""
        found = [self._values.pop(name) for name in names if name in self._values]
        return found[0] if found else None

    def take_effort(self) -> Effort | None:
        """``reasoning_effort``; an unknown value stays in ``rest`` for the vendor to check."""
        wanted = self._values.get("reasoning_effort")
        if wanted not in EFFORTS:
            return None
        del self._values["reasoning_effort"]
        return EFFORTS[EFFORTS.index(wanted)]

    @property
    def rest(self) -> dict[str, Any]:
        return self._values


def filled(body: dict[str, Any], **values: Any) -> dict[str, Any]:
    """``body`` with those of ``values`` that are not None."""
    body.update({name: value for name, value in values.items() if value is not None})
    return body


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A deep merge of both tables, in which ``over`` wins."""
    out = dict(base)
    for name, value in over.items():
        mine = out.get(name)
        out[name] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return out


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
