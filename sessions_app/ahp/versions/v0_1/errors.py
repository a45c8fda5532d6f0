"""What a client is told when a command fails: one table from the core's errors to the protocol's codes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.errors import Code
from sessions_app.core.base import database, errors, redaction

log = logging.getLogger(__name__)


def session_not_found(_error: object = None) -> RPCError:
    return RPCError(Code.SESSION_NOT_FOUND, "There is no such session.")


def not_found(_error: object = None) -> RPCError:
    return RPCError(Code.NOT_FOUND, "There is nothing at this URI.")


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


_NOT_NOW = "The host cannot do this right now; try again."

TABLE: Mapping[type[errors.DomainError], Callable[[Any], RPCError]] = {
    errors.InvalidInput: _invalid_input,
    errors.SessionNotFound: session_not_found,
    errors.TurnAlreadyRunning: _always(Code.TURN_IN_PROGRESS, "A turn is running in this session."),
    errors.AgentGone: provider_not_found,
    errors.AgentUnknown: provider_not_found,
    errors.AddressTaken: _always(Code.SESSION_ALREADY_EXISTS, "A session with this URI exists."),
    errors.TurnUnknown: _always(jsonrpc.INVALID_PARAMS, "The session has no such turn."),
    errors.NotPossible: lambda error: jsonrpc.invalid_params(error.reason),
    errors.QuotaExceeded: _quota,
    errors.SessionFull: lambda error: RPCError(jsonrpc.INVALID_REQUEST, f"{error}."),
    errors.NotReady: _always(jsonrpc.INTERNAL_ERROR, _NOT_NOW),
    errors.AnswersFull: _always(jsonrpc.INTERNAL_ERROR, "Other answers to this tenant have not been read yet; try again."),
    errors.NotAuthenticated: _always(Code.PERMISSION_DENIED, "The key of this connection is not valid any more."),
    errors.ScopeMissing: _always(Code.PERMISSION_DENIED, "The key of this connection may not do this."),
}
"""Every error that a command's core calls raise."""

OF_ANOTHER_FACE: frozenset[type[errors.DomainError]] = frozenset(
    {
        errors.HistoryKindUndeclared,
        errors.BadCursor,
        errors.UnknownPosition,
        errors.PositionPruned,
        errors.IdempotencyKeyReused,
        errors.DispatchedBefore,
        errors.TooManyWrongKeys,
    }
)
"""Errors about things that commands have no words for, or that their handlers deal with themselves."""


def told(error: Exception) -> RPCError:
    """The answer to a command that failed. Whatever was not foreseen is logged whole and told briefly (R28)."""
    if isinstance(error, RPCError):
        return error
    if (encode := TABLE.get(type(error))) is not None:  # type: ignore[arg-type]  # other classes are not in it
        return encode(error)
    if database.is_away(error):
        log.warning("command_without_database error=%s", redaction.kinds(error))
        return RPCError(jsonrpc.INTERNAL_ERROR, _NOT_NOW)
    reference = f"err_{secrets.token_hex(6)}"
    log.error("a command failed (%s)", reference, exc_info=error)
    return jsonrpc.internal_error(reference)
