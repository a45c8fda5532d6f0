"""Exceptions of the client. Every one is a ClientError; each error response of a server has a class by its status."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base of every error that this package raises."""


class UsageError(ClientError, ValueError):
    """An invalid argument: a URL, key, image, option or tool. Nothing was sent."""


class ConnectionLost(ClientError):
    """No connection to the server, or it was lost."""


class ConnectionFailed(ConnectionLost):
    """The connection could not be opened, so nothing of the request has been sent."""


class StreamLost(ClientError):
    """The stream cannot be resumed. The turn may still be running at the server."""


class ProtocolError(ClientError):
    """The server does not speak this protocol, or not this version."""


class Refused(ClientError):
    """A response with a status of 400 or above. Its attributes are those of the problem document."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: Sequence[tuple[str, str]] = (),
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.errors = list(errors)
        """Pairs of (JSON Pointer into the request, detail)."""
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again; None if it named none."""
        self.request_id = request_id
        """The id to give to the server's operator."""

    def __str__(self) -> str:
        lines = [f"The server refused this ({self.status}): {self.detail}"]
        lines += [f"  {pointer or '(whole request)'}: {detail}" for pointer, detail in self.errors]
        if self.status >= 500 and self.request_id:
            lines.append(f"  The reason is in the server's log, under request id {self.request_id}.")
        return "\n".join(lines)


class BadRequest(Refused):
    """400: the request cannot be read."""


class InvalidKey(Refused):
    """401: no key, or one that is wrong, expired or revoked."""

    def __str__(self) -> str:
        return "The server does not accept this key (401). Check that it is complete and belongs to this server."


class Forbidden(Refused):
    """403: the key lacks a scope."""

    def __str__(self) -> str:
        return f"This key is not allowed to do this (403): {self.detail}"


class NotFound(Refused):
    """404: there is no such session, or the key has no access to it."""


class Conflict(Refused):
    """409: a turn is already running, or a call was already answered."""


class Gone(Refused):
    """410: the events are no longer kept. The history has what was said."""


class TooLarge(Refused):
    """413: the request is larger than the server accepts."""


class Invalid(Refused):
    """422: the request breaks a rule. ``errors`` has a JSON Pointer for each fault."""


class LimitReached(Refused):
    """429: a limit of the tenant or key is reached, and waiting for it would take longer than the client may wait."""

    def __str__(self) -> str:
        return f"Limit reached (429): {self.detail}"


class ServerError(Refused):
    """500 and above: the server failed."""


class Unavailable(ServerError):
    """503: the server is not ready, for longer than the client may wait."""


_BY_STATUS: Mapping[int, type[Refused]] = {
    400: BadRequest,
    401: InvalidKey,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    422: Invalid,
    429: LimitReached,
    503: Unavailable,
}


def refusal(status: int, reason: str, headers: Mapping[str, str], body: bytes) -> Refused:
    """The exception for an error response, which may be a problem document or not."""
    problem = _object(body)
    detail = problem.get("detail") or problem.get("title") or reason or "no reason given"
    listed = problem.get("errors")
    errors = [
        (str(each.get("pointer", "")), str(each.get("detail", "")))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    instance = problem.get("instance")
    return _BY_STATUS.get(status, ServerError if status >= 500 else Refused)(
        status,
        str(detail),
        errors,
        retry_after(headers.get("Retry-After"), time.time()),
        headers.get("X-Request-Id", "") or (instance if isinstance(instance, str) else ""),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def retry_after(value: str | None, now: float) -> float | None:
    """``Retry-After`` in seconds, from either of its forms: seconds or an HTTP date."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None
