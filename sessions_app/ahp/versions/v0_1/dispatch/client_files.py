"""Files of a client's machine that it attaches to a message: the host asks the client for them (R34, R338).

``resourceRequest`` is the one request that a host may send in AHP 0.1, and its result has no members. So a client that grants
access may put the members of ``resourceRead``'s result into it; the host cannot read the file in any other way.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.conf import settings

from agents_app import registry
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import DomainError, SessionNotFound
from sessions_app.core.records import addresses
from sessions_app.core.workspaces import places

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

SECONDS = 15.0
"""How long the client's later messages wait for its answers."""
MOST = 8
"""Files of one message that the client is asked for."""


async def read(connection: Connection, session: Any, uris: Sequence[str]) -> dict[str, bytes]:
    """The files that the client has given, by URI, within the limits of attached files of a workspace."""
    if not uris or not isinstance(session, str) or not connection.is_asked:
        return {}
    wanted = await connection.in_database(_of_client, connection.caller, session, uris)
    if not wanted:
        return {}
    answers = [asyncio.ensure_future(_ask(connection, uri)) for uri in wanted[:MOST]]
    try:
        done, _ = await asyncio.wait(answers, timeout=SECONDS)
    finally:
        for answer in answers:
            answer.cancel()
    if not done:
        # A client that does not answer is not asked again: each of its messages would wait.
        connection.is_asked = False
    found: dict[str, bytes] = {}
    left = 2 * settings.AGENTHOST_IMAGE_BYTES
    for uri, answer in zip(wanted, answers, strict=False):
        data = answer.result() if answer in done else None
        if data is not None and len(data) <= min(left, settings.AGENTHOST_IMAGE_BYTES):
            found[uri] = data
            left -= len(data)
    return found


def _of_client(caller: Caller, session_uri: str, uris: Sequence[str]) -> list[str]:
    """The URIs that are in no workspace, if the session's agent lets the host ask for them."""
    try:
        caller.require(WRITE)
        session = addresses.find(caller, session_uri)
    except (DomainError, SessionNotFound):
        return []
    spec = registry.find(session.agent_name)
    return [uri for uri in uris if not _is_own(caller, uri)] if spec is not None and spec.client_files else []


def _is_own(caller: Caller, uri: str) -> bool:
    """Whether the URI is in a workspace: what the host refuses there is not asked of the client."""
    try:
        places.find(caller, uri)
    except DomainError:
        return False
    return True


async def _ask(connection: Connection, uri: str) -> bytes | None:
    try:
        result = await connection.ask("resourceRequest", {"uri": uri, "read": True})
    except RPCError as refused:
        if refused.code == jsonrpc.METHOD_NOT_FOUND:
            connection.is_asked = False
        return None
    return await asyncio.to_thread(_data, result)


def _data(result: Any) -> bytes | None:
    """The file in the client's answer; None if there is none, or it is too large."""
    if not isinstance(result, Mapping) or not isinstance(data := result.get("data"), str):
        return None
    if len(data) > 2 * settings.AGENTHOST_IMAGE_BYTES:
        return None
    try:
        return base64.b64decode(data, validate=True) if result.get("encoding") == "base64" else data.encode()
    except (ValueError, binascii.Error):
        return None
