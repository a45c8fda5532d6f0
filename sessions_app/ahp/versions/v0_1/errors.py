"""Errors of commands in AHP 0.1: the table from the core's errors to codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.failures import TRY_AGAIN
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.errors import Code
from sessions_app.core.base import errors

_SUBJECTS: Mapping[int, tuple[str, ...]] = {
    Code.SESSION_NOT_FOUND: ("session", "resource"),
    Code.PROVIDER_NOT_FOUND: ("provider",),
    Code.SESSION_ALREADY_EXISTS: ("session",),
    Code.CONTENT_NOT_FOUND: ("uri",),
    Code.NOT_FOUND: ("resource", "terminal", "uri"),
    Code.ALREADY_EXISTS: ("terminal", "uri", "destination"),
}


def subject(code: int, params: Mapping[str, Any]) -> str | None:
    """The URI or name in a request's params that does not exist, or exists already; None if it could be another one."""
    fork = params.get("fork")
    if code == Code.SESSION_NOT_FOUND and isinstance(fork, Mapping):
        params = fork
    if code == Code.NOT_FOUND and params.get("cwd") is not None:
        return None
    named = (params.get(name) for name in _SUBJECTS.get(code, ()))
    return next((value for value in named if isinstance(value, str)), None)


def session_not_found(_error: object = None) -> RPCError:
    return RPCError(Code.SESSION_NOT_FOUND, "There is no such session.")


def not_found(_error: object = None) -> RPCError:
    return RPCError(Code.NOT_FOUND, "There is no resource with this URI.")


def provider_not_found(_error: object = None) -> RPCError:
    return RPCError(Code.PROVIDER_NOT_FOUND, "There is no such agent provider.")


def _invalid_input(error: errors.InvalidInput) -> RPCError:
    faults = [f"{'.'.join(map(str, fault.path))}: {fault.detail}" if fault.path else fault.detail for fault in error.faults]
    return jsonrpc.invalid_params("; ".join(faults[:8]) or error.detail)


def _quota(error: errors.QuotaExceeded) -> RPCError:
    whose = "key" if error.of_key else "tenant"
    return RPCError(jsonrpc.INVALID_REQUEST, f"This {whose} has used its quota {error.quota} of {error.limit}.")


def _always(code: int, message: str) -> Callable[[Any], RPCError]:
    return lambda _error: RPCError(code, message)


def _access_needed(error: errors.AccessNeeded) -> RPCError:
    wanted = {"uri": error.uri, **dict.fromkeys(error.operations, True)}
    message = f"Request access first: resourceRequest with {' and '.join(error.operations)}."
    return RPCError(Code.PERMISSION_DENIED, message, {"request": wanted})


def _files_away(_error: errors.FilesAway) -> RPCError:
    return RPCError(jsonrpc.INTERNAL_ERROR, "The host's workspaces cannot be used right now; try again.")


TABLE: Mapping[type[errors.DomainError], Callable[[Any], RPCError]] = {
    errors.InvalidInput: _invalid_input,
    errors.SessionNotFound: session_not_found,
    errors.TurnAlreadyRunning: _always(Code.TURN_IN_PROGRESS, "A turn is running in this session."),
    errors.AgentGone: provider_not_found,
    errors.AgentUnknown: provider_not_found,
    errors.AddressTaken: _always(Code.SESSION_ALREADY_EXISTS, "A session with this URI already exists."),
    errors.TerminalNotFound: not_found,
    errors.TerminalTaken: _always(Code.ALREADY_EXISTS, "A terminal or session with this URI already exists."),
    errors.TerminalsUnavailable: lambda error: RPCError(
        jsonrpc.INVALID_REQUEST, f"This host has no terminals now: {error.reason}."
    ),
    errors.TurnUnknown: _always(jsonrpc.INVALID_PARAMS, "The session has no such turn."),
    errors.NotPossible: lambda error: jsonrpc.invalid_params(error.reason),
    errors.QuotaExceeded: _quota,
    errors.SessionFull: lambda error: RPCError(jsonrpc.INVALID_REQUEST, f"{error}."),
    errors.PathOutside: _always(Code.PERMISSION_DENIED, "This is in no workspace that this key may use."),
    errors.AccessDenied: _always(Code.PERMISSION_DENIED, "The host's rules of access do not permit this."),
    errors.AccessNeeded: _access_needed,
    errors.PathNotFound: _always(Code.NOT_FOUND, "There is no such file or directory."),
    errors.PathTaken: _always(Code.ALREADY_EXISTS, "A file or directory with this URI exists."),
    errors.ContentNotFound: _always(Code.CONTENT_NOT_FOUND, "The session or its content with this URI does not exist."),
    errors.WorkspaceFull: lambda error: RPCError(jsonrpc.INVALID_REQUEST, f"This is {error}."),
    errors.WorkspacesOff: _always(Code.PERMISSION_DENIED, "This host has no workspaces."),
    errors.FilesAway: _files_away,
    errors.TemplateUnusable: lambda error: RPCError(jsonrpc.INTERNAL_ERROR, f"{str(error).capitalize()}."),
    errors.NotReady: _always(jsonrpc.INTERNAL_ERROR, TRY_AGAIN),
    errors.AnswersFull: _always(jsonrpc.INTERNAL_ERROR, "Other answers to this tenant have not been read yet; try again."),
    errors.NotAuthenticated: _always(Code.PERMISSION_DENIED, "The key of this connection is no longer valid."),
    errors.ScopeMissing: lambda error: RPCError(
        Code.PERMISSION_DENIED, f"The key of this connection lacks the scope {error.scope}."
    ),
    errors.TokenLimited: lambda error: RPCError(Code.PERMISSION_DENIED, f"{str(error).capitalize()}."),
}
"""Every error that the core calls of commands raise."""

NOT_IN_COMMANDS: frozenset[type[errors.DomainError]] = frozenset(
    {
        errors.HistoryKindUndeclared,
        errors.BadCursor,
        errors.UnknownPosition,
        errors.PositionPruned,
        errors.IdempotencyKeyReused,
        errors.DispatchedBefore,
        errors.TooManyWrongKeys,
        # Of accounts, which use no keys.
        errors.RightMissing,
        errors.ReasonNeeded,
        errors.TenantNotFound,
        errors.MemberNotFound,
        errors.InvitationUnusable,
        errors.OriginRefused,
        errors.TokenNotFound,
        errors.KeyNotFound,
        errors.WebhookNotFound,
        # Of commands that 0.9 added.
        errors.FileChanged,
        errors.WatchesOff,
    }
)
"""Errors that core calls of commands never raise, or that the commands handle themselves."""
