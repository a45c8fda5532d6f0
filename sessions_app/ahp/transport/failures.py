"""Exceptions of a command as JSON-RPC errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database, redaction
from sessions_app.core.base.errors import DomainError

log = logging.getLogger(__name__)

TRY_AGAIN = "The host cannot do this right now; try again."

Table = Mapping[type[DomainError], Callable[[Any], RPCError]]


def error_for(exception: Exception, table: Table) -> RPCError:
    """``table``: a version's codes for domain errors. Unexpected exceptions are logged; the client gets a reference (R28)."""
    if isinstance(exception, RPCError):
        return exception
    if (encode := table.get(type(exception))) is not None:  # type: ignore[arg-type]  # other classes are not in it
        return encode(exception)
    if database.is_away(exception):
        log.warning("command_without_database error=%s", redaction.kinds(exception))
        return RPCError(jsonrpc.INTERNAL_ERROR, TRY_AGAIN)
    reference = f"err_{secrets.token_hex(6)}"
    log.error("command_failed reference=%s", reference, exc_info=exception)
    return jsonrpc.internal_error(reference)
