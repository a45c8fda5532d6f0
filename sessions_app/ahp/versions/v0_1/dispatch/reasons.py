"""The reasons of rejections (R83): one table from the core's errors to texts for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.transport.failures import entry_of
from sessions_app.core.base import errors


def _invalid(error: errors.InvalidInput) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault.path))}: {fault.detail}" if fault.path else fault.detail for fault in error.faults[:8]
    )


def _quota(error: errors.QuotaExceeded) -> str:
    return f"this {'key' if error.of_key else 'tenant'} has used its quota {error.quota} of {error.limit}"


def _always(text: str) -> Callable[[Any], str]:
    return lambda _error: text


TABLE: Mapping[type[errors.DomainError], Callable[[Any], str]] = {
    errors.InvalidInput: _invalid,
    errors.TerminalTaken: str,
    errors.TerminalsUnavailable: lambda error: error.reason,
    errors.NotPossible: lambda error: error.reason,
    errors.TurnAlreadyRunning: _always("a turn is active in this session"),
    errors.TurnUnknown: _always("the session has no such turn"),
    errors.AgentGone: _always("the agent of this session is not available any more"),
    errors.AgentUnknown: _always("there is no such agent"),
    errors.AddressTaken: _always("a session with this URI exists"),
    errors.QuotaExceeded: _quota,
    errors.SessionFull: str,
    errors.AccessDenied: _always("the host's rules of access do not permit this"),
    errors.AccessNeeded: _always("access to this has to be requested first"),
    errors.PathOutside: _always("this is in no workspace that this key may use"),
    errors.PathNotFound: _always("there is no such file or directory"),
    errors.PathTaken: _always("a file or directory with this URI exists"),
    errors.ContentNotFound: _always("there is no such content"),
    errors.WorkspaceFull: str,
    errors.WorkspacesOff: _always("this host has no workspaces"),
    errors.TemplateUnusable: str,
    errors.NotAuthenticated: _always("the key of this connection is not valid any more"),
    errors.ScopeMissing: _always("this key may only read"),
    errors.TokenLimited: str,
}


def of(error: Exception) -> str:
    describe = entry_of(error, TABLE)
    return (describe(error) if describe is not None else "") or "this host does not support this"
