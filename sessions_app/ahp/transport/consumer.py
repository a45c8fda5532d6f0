"""The WebSocket consumer: accepts or refuses the upgrade, passes frames to the connection and back, closes.

One task reads, one answers, one writes. The writer waits for the client; no other task waits for the writer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from channels.consumer import AsyncConsumer
from django.conf import settings
from django.db import Error as DatabaseError

from agents_app import tracing
from sessions_app.ahp.tenant import presence
from sessions_app.ahp.tenant.switchboard import board_of
from sessions_app.ahp.transport import upgrade
from sessions_app.ahp.transport.connection import Connection
from sessions_app.ahp.version import Versions
from sessions_app.core.base import database, draining, log_context
from sessions_app.core.base.caller import READ
from sessions_app.core.base.errors import NotAuthenticated, NotReady, OriginRefused, QuotaExceeded, TooManyWrongKeys
from sessions_app.core.tenancy import admission, credentials, key_watch, quotas
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota

log = logging.getLogger(__name__)

BINARY = 1003
KEY_ENDED = 1008
TOO_BIG = 1009
FAILED = 1011
_CLOSING_SECONDS = 5.0
"""How long a connection that is being closed waits for a client that does not read."""

_WRITE_TEXT = "agenthost.write_text"
"""ASGI extension: sends a text at once, without a task, or returns False if it has to be sent as usual."""
_DONE = "agenthost.done"
"""Called when a message has been answered: until then the server counts its bytes."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refused(Exception):
    """The upgrade is refused with this status (R3)."""

    def __init__(self, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
        self.status, self.detail, self.headers = status, detail, headers
        super().__init__(detail)


class Consumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """Serves one connection. It uses no channel layer: events come from the switchboard."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        message = await receive()
        if message["type"] != "websocket.connect":
            return
        async with AsyncExitStack() as stack:
            try:
                connection = await _admit(scope, stack, self._versions)
            except Refused as refused:
                await _refuse(scope, send, refused)
                return
            log_context.bind(tenant=connection.caller.tenant)
            await send({"type": "websocket.accept", "subprotocol": upgrade.subprotocol_of(scope)})
            await _converse(connection, receive, send)


async def _admit(scope: MutableMapping[str, Any], stack: AsyncExitStack, versions: Versions) -> Connection:
    """Authenticate, and add the connection to its tenant's switchboard until the stack is closed."""
    if draining.is_draining():
        raise Refused(503, "This server is shutting down.", (b"retry-after", b"1"))
    raw, address = upgrade.key_of(scope), scope.get("agenthost", {}).get("address", "")
    try:
        if raw is None:
            raise NotAuthenticated
        caller = await admission.authenticate(raw, address, settings.AGENTHOST_DATABASE_POOL_WAIT)
        headers = upgrade.headers_of(scope)
        credentials.require_origin(
            caller, sent=headers.get("origin"), fetch_site=headers.get("sec-fetch-site"), host=headers.get("host", "")
        )
        if not caller.may(READ):
            raise Refused(403, f"This key lacks the scope {READ}.")
        if "agenthost" in scope:
            # The server counts unanswered messages per tenant.
            scope["agenthost"]["owner"] = caller.tenant
        board = await stack.enter_async_context(board_of(caller.tenant))
        key = stack.enter_context(key_watch.watching(Slot(Quota.CONNECTIONS_AT_ONCE, caller)))
        # Taken, so that an idle connection does not keep the extension in its scope.
        write = scope.get("extensions", {}).pop(_WRITE_TEXT, {}).get("call")
        connection = Connection(key, board, versions, write)
        connection.trace = tracing.parse(headers.get("traceparent", ""), headers.get("tracestate", ""))
        key.on_end(partial(connection.close, KEY_ENDED))
        stack.push_async_callback(presence.leave, connection)
        stack.callback(board.remove, connection)
        stack.callback(connection.outbox.end)
        await board.add(connection)
    except OriginRefused as error:
        raise Refused(403, f"{error}.".capitalize()) from None
    except NotAuthenticated:
        await admission.delay_refusal(address)
        raise Refused(401, "The key is not valid.", (b"www-authenticate", b"Bearer")) from None
    except TooManyWrongKeys as error:
        raise Refused(429, f"{error}.".capitalize(), (b"retry-after", b"%d" % error.retry_after)) from None
    except QuotaExceeded as full:
        whose = "key" if full.of_key else "tenant"
        detail = f"This {whose} has reached its limit of {full.limit} open connections."
        raise Refused(429, detail, (b"retry-after", b"%d" % full.retry_after)) from None
    except (DatabaseError, NotReady, TimeoutError) as error:
        if not isinstance(error, TimeoutError) and not database.is_away(error):
            raise
        raise Refused(503, "The server cannot handle this request right now.", (b"retry-after", b"2")) from None
    return connection


async def _refuse(scope: MutableMapping[str, Any], send: Send, refused: Refused) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        # The server cannot send a status of our choice.
        await send({"type": "websocket.close", "code": 1008})
        return
    body = json.dumps({"status": refused.status, "detail": refused.detail}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body)), *refused.headers]
    await send({"type": "websocket.http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def _converse(connection: Connection, receive: Receive, send: Send) -> None:
    """Run the connection until either side ends it."""
    reading = asyncio.create_task(_read(connection, receive))
    working = asyncio.create_task(_work(connection))
    writing = asyncio.create_task(_write(connection, send))
    tasks = [reading, working, writing]
    # Not asyncio.wait, which takes 1.5 KiB while it waits.
    ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(*_task: asyncio.Task[None]) -> None:
        if not ending.done():
            ending.set_result(None)

    reading.add_done_callback(end)
    writing.add_done_callback(end)
    connection.on_close(end)
    try:
        await ending
        if not reading.done() and not writing.done():
            # The writer may wait for a client that does not read.
            await asyncio.wait([reading, writing], timeout=_CLOSING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():
            return
        if not reading.done():
            # The host closes: the client gets a moment to read the last frames and close too.
            await asyncio.wait([reading], timeout=_CLOSING_SECONDS)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None and not _is_disconnect(error):
                log.error("connection_failed", exc_info=error)


async def _read(connection: Connection, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        if connection.close_code is not None:
            continue
        if text is None:
            connection.close(BINARY)
        elif _is_too_big(text, connection):
            connection.close(TOO_BIG)
        else:
            await connection.receive(text, message.get(_DONE, _do_nothing))


def _is_too_big(text: str, connection: Connection) -> bool:
    """By the current limits of key and tenant."""
    limit = quotas.largest_request(connection.caller)
    most = settings.AGENTHOST_AHP_MAX_FRAME_BYTES if limit is None else min(limit, settings.AGENTHOST_AHP_MAX_FRAME_BYTES)
    return len(text) > most or len(text.encode("utf-8", "surrogatepass")) > most


async def _work(connection: Connection) -> None:
    try:
        await connection.work()
    except Exception:
        # The client must not wait for answers that never come.
        log.exception("connection_failed")
        connection.close(FAILED)


async def _write(connection: Connection, send: Send) -> None:
    """May wait for the client without a limit: ``_converse`` ends it."""
    while True:
        text = await connection.next()
        if isinstance(text, int):
            await send({"type": "websocket.close", "code": text})
            return
        await send({"type": "websocket.send", "text": text})
        # Do not keep a large frame while waiting for the next one.
        del text


def _do_nothing() -> None:
    pass


def _is_disconnect(error: BaseException) -> bool:
    """Whether a server raised this because the client is gone."""
    return isinstance(error, OSError) or type(error).__name__ == "ClientDisconnected"
