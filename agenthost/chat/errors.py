"""Errors of the chat, with messages for the user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KEY_REFUSED = 4


class ChatError(Exception):
    """An error that is shown to the user. ``code`` is the exit code if it ends the program."""

    code = 1


class UsageError(ChatError):
    """Invalid input of the user: an option, a file, a name."""

    code = 2


class ConnectionLost(ChatError):
    """No connection to the server, or it was lost."""

    code = 3


class ConnectionFailed(ConnectionLost):
    """The connection could not be opened, so nothing of the request has been sent."""


class ProtocolError(ChatError):
    """The server does not speak this protocol, or not this version."""

    code = 3


@dataclass
class Refused(ChatError):
    """A response with a status of 400 or above."""

    status: int
    detail: str
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of (JSON Pointer into the request, detail)."""
    retry_after: float | None = None
    request_id: str = ""

    @property
    def code(self) -> int:  # type: ignore[override]  # depends on the status here
        return {401: KEY_REFUSED, 403: KEY_REFUSED, 422: 2}.get(self.status, 5)

    def __str__(self) -> str:
        match self.status:
            case 401:
                return "The server does not accept this key (401). Check that it is complete and belongs to this server."
            case 403:
                return f"This key is not allowed to do this (403): {self.detail}"
            case 429:
                return f"Limit reached (429): {self.detail}"
        lines = [f"The server refused this ({self.status}): {self.detail}"]
        lines += [f"  {pointer or '(whole request)'}: {detail}" for pointer, detail in self.errors]
        if self.status >= 500 and self.request_id:
            lines.append(f"  The reason is in the server's log, under request id {self.request_id}.")
        return "\n".join(lines)


def refusal(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """The Refused error for an error response, which may be a problem document or not."""
    problem = _object(body)
    detail = problem.get("detail") or problem.get("title") or reason or "no reason given"
    listed = problem.get("errors")
    errors = [
        (str(each.get("pointer", "")), str(each.get("detail", "")))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    instance = problem.get("instance")
    return Refused(
        status,
        str(detail),
        errors,
        _seconds(headers.get("Retry-After")),
        headers.get("X-Request-Id", "") or (instance if isinstance(instance, str) else ""),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _seconds(value: str | None) -> float | None:
    """``Retry-After`` in seconds; None for the rare HTTP-date form."""
    return float(value) if value is not None and value.isascii() and value.isdigit() else None
