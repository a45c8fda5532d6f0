"""What can go wrong between this client and a server, each with the words for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KEY_REFUSED = 4


class ChatError(Exception):
    """Something a person is told in one line. ``code`` is what a program that gave up over it exits with."""

    code = 1


class WrongUse(ChatError):
    """What was asked for cannot be done as it was written: an option, a file, a name."""

    code = 2


class NotReached(ChatError):
    """There is no connection, or there is none any more."""

    code = 3


class NotConnected(NotReached):
    """Nobody took the connection: nothing of what was to be sent has arrived."""


class NotAAP(ChatError):
    """What answers there is not a server of this protocol, or not of this version."""

    code = 3


@dataclass
class Refused(ChatError):
    """The server's answer of 400 or above."""

    status: int
    detail: str
    faults: list[tuple[str, str]] = field(default_factory=list)
    """(pointer into what was sent, what is wrong there)."""
    retry_after: float | None = None
    request_id: str = ""

    @property
    def code(self) -> int:  # type: ignore[override]  # a class constant elsewhere, a fact of the answer here
        return {401: KEY_REFUSED, 403: KEY_REFUSED, 422: 2}.get(self.status, 5)

    def __str__(self) -> str:
        match self.status:
            case 401:
                return "The server does not know this key (401). Is it whole, and for this server?"
            case 403:
                return f"This key may not do that (403): {self.detail}"
            case 429:
                return f"A limit is reached (429): {self.detail}"
        lines = [f"The server refused this ({self.status}): {self.detail}"]
        # One fault alone is often the detail itself.
        lines += [f"  {pointer or '(all of it)'}: {detail}" for pointer, detail in self.faults]
        if self.status >= 500 and self.request_id:
            lines.append(f"  Its operator finds the reason in the log under {self.request_id}.")
        return "\n".join(lines)


def refusal(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """The refusal that an answer is, whether or not it is a problem document."""
    problem = _object(body)
    detail = problem.get("detail") or problem.get("title") or reason or "it does not say why"
    listed = problem.get("errors")
    faults = [
        (str(each.get("pointer", "")), str(each.get("detail", "")))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    instance = problem.get("instance")
    return Refused(
        status,
        str(detail),
        faults,
        _seconds(headers.get("Retry-After")),
        headers.get("X-Request-Id", "") or (instance if isinstance(instance, str) else ""),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _seconds(written: str | None) -> float | None:
    """``Retry-After`` as seconds; a date is rare enough to be taken for none."""
    return float(written) if written is not None and written.isascii() and written.isdigit() else None
