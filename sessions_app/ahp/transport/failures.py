"""Exceptions of a command as JSON-RPC errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database, redaction
from sessions_app.core.base.errors import DomainError

log = logging.getLogger(__name__)

TRY_AGAIN = "The host cannot do this right now; try again."

_Entry = TypeVar("_Entry")

Table = Mapping[type[DomainError], Callable[[Any], RPCError]]


def entry_of(exception: Exception, table: Mapping[type[DomainError], _Entry]) -> _Entry | None:
    """The entry of the exception's class, or of its nearest base class that has one."""
    return next((entry for kind in type(exception).__mro__ if (entry := table.get(kind)) is not None), None)


def error_for(exception: Exception, table: Table) -> RPCError:
    """``table``: a version's codes for domain errors. Unexpected exceptions are logged; the client gets a reference (R28)."""
    if isinstance(exception, RPCError):
        return exception
    if (encode := entry_of(exception, table)) is not None:
        return encode(exception)
    if database.is_away(exception):
        log.warning("command_without_database error=%s", redaction.kinds(exception))
        return RPCError(jsonrpc.INTERNAL_ERROR, TRY_AGAIN)
    reference = f"err_{secrets.token_hex(6)}"
    log.error("command_failed reference=%s", reference, exc_info=exception)
    return jsonrpc.internal_error(reference)
