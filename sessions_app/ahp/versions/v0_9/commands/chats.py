"""Commands about a session's chat: every session has one (V130-V136)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_9 import addresses, errors, messages, spelling
from sessions_app.ahp.versions.v0_9.commands.sessions import session_at
from sessions_app.ahp.versions.v0_9.messages import BadMessage
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.records import addresses as core_addresses
from sessions_app.core.sessions import inbox
from sessions_app.core.terminals import access as terminals
from sessions_app.models import Session

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_ONE_CHAT = "params.chat: a session of this host has one chat"


async def create(connection: Connection, params: Any) -> None:
    """The session's own chat is there already: a client may name it once, before anything was said."""
    if "source" in params:
        raise jsonrpc.invalid_params("params.source: this host forks no chats")
    await connection.in_database(_create, connection.caller, connection.client, params)


def _create(caller: Caller, client: str, params: Any) -> None:
    session = session_at(caller, params["channel"])
    uri: str = params["chat"]
    found = addresses.find(caller.seeing_everything(), uri)
    if found is None or found.kind != "chat" or found.session.pk != session.pk:
        if found is not None or (fault := spelling.fault_of_new_chat(uri)) is not None:
            raise jsonrpc.invalid_params(_ONE_CHAT if found is not None else f"params.chat {fault}")
        if terminals.is_taken(caller.tenant, uri):
            raise jsonrpc.invalid_params("params.chat is the URI of a terminal")
        if not inbox.is_untouched(session) or not core_addresses.name_chat(caller, session, uri):
            raise jsonrpc.invalid_params(_ONE_CHAT)
    if "initialMessage" in params:
        _begin(caller, client, session, params["initialMessage"])


def _begin(caller: Caller, client: str, session: Session, message: Any) -> None:
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        messages.start_turn(
            caller, session, message, turn_id=new_id("turn"), started_at=started_at, client=client, dispatched=None
        )
    except BadMessage as fault:
        raise jsonrpc.invalid_params(f"params.initialMessage: {fault}") from None


async def dispose(connection: Connection, params: Any) -> None:
    await _require_chat(connection, params["channel"])
    raise jsonrpc.invalid_params("params.channel: a session's only chat is disposed with the session")


async def move(connection: Connection, params: Any) -> None:
    await _require_chat(connection, params["channel"])
    raise jsonrpc.invalid_params("params.channel: this chat cannot be moved")


async def fetch_turns(connection: Connection, params: Any) -> Any:
    """Snapshots have all turns, so there are no more."""
    await _require_chat(connection, params["channel"])
    if "cursor" in params:
        raise jsonrpc.invalid_params("params.cursor is none that this host gave: its snapshots have all turns")
    return {}


async def completions(connection: Connection, params: Any) -> Any:
    """Empty: agents offer no completions of messages."""
    if await connection.in_database(addresses.find, connection.caller, params["channel"]) is None:
        raise errors.not_found("chat")
    units = len(params["text"].encode("utf-16-le", "surrogatepass")) // 2
    if not 0 <= params["offset"] <= units:
        raise jsonrpc.invalid_params("params.offset must be within params.text")
    return {"items": []}


async def _require_chat(connection: Connection, uri: str) -> None:
    found = await connection.in_database(addresses.find, connection.caller, uri)
    if found is None or found.kind != "chat":
        raise errors.not_found("chat")
