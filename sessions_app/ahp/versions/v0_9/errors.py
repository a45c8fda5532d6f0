"""Errors of commands in AHP 0.9 and 1.0: the table from the core's errors to codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1 import errors as v0_1
from sessions_app.ahp.versions.v0_9.wire.errors import Code
from sessions_app.core.base import errors

_SUBJECTS: Mapping[int, tuple[str, ...]] = {
    Code.SESSION_NOT_FOUND: ("channel",),
    Code.PROVIDER_NOT_FOUND: ("provider",),
    Code.SESSION_ALREADY_EXISTS: ("channel",),
    Code.NOT_FOUND: ("channel", "uri"),
    Code.ALREADY_EXISTS: ("channel", "uri", "destination"),
    Code.CONFLICT: ("uri",),
}
_ROOT = "ahp-root://"


def subject(code: int, params: Mapping[str, Any]) -> str | None:
    """The URI or name in a request's params that does not exist, or exists already; None if it could be another one."""
    claim = params.get("claim")
    if code == Code.SESSION_NOT_FOUND and isinstance(claim, Mapping):
        params = {"channel": claim.get("session")}
    if code == Code.NOT_FOUND and params.get("cwd") is not None:
        return None
    named = (params.get(name) for name in _SUBJECTS.get(code, ()))
    return next((value for value in named if isinstance(value, str) and value != _ROOT), None)


def session_not_found() -> RPCError:
    return RPCError(Code.SESSION_NOT_FOUND, "There is no such session.")


def not_found(what: str = "channel") -> RPCError:
    return RPCError(Code.NOT_FOUND, f"There is no such {what}.")


def unknown_client() -> RPCError:
    return RPCError(Code.NOT_FOUND, "This client is unknown, or was away for too long; begin with initialize.")


def _access_needed(error: errors.AccessNeeded) -> RPCError:
    refused = v0_1.TABLE[errors.AccessNeeded](error)
    return RPCError(refused.code, refused.message, {"request": {"channel": _ROOT, **(refused.data or {})["request"]}})


TABLE: Mapping[type[errors.DomainError], Callable[[Any], RPCError]] = {
    **v0_1.TABLE,
    errors.ContentNotFound: lambda _error: not_found("content"),
    errors.AccessNeeded: _access_needed,
    errors.FileChanged: lambda _error: RPCError(Code.CONFLICT, "The file is not the one with this ifMatch any more."),
    errors.WorkspacesOff: lambda _error: RPCError(jsonrpc.METHOD_NOT_FOUND, "This host serves no files."),
    errors.WatchesOff: lambda _error: RPCError(jsonrpc.METHOD_NOT_FOUND, "This host cannot watch files."),
    errors.TerminalNotFound: lambda _error: not_found("terminal"),
}
"""Every error that the core calls of commands raise."""
