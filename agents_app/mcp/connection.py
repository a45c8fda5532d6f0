"""One connection to an MCP server, shared by the calls of its owner.

The library's client must be entered and left in one task, so each connection has a task of its own. A failure of the
transport ends the connection and all its calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import mcp_types
from mcp.client._transport import Transport
from mcp.client.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agents_app import tracing
from agents_app.mcp import faults, http, listing
from agents_app.mcp.access import Access
from agents_app.mcp.faults import McpFault, Seen
from agents_app.mcp.listing import Listed
from agents_app.mcp.stdio import Stdio

log = logging.getLogger(__name__)

_HANDSHAKE_SECONDS = 10.0
_CLOSING_SECONDS = 3.0
_MOST_PAGES = 50
_ACCESS_DENIED = (401, 403)
"""HTTP statuses after which no other handshake is tried."""
_LISTEN_AGAIN, _LISTEN_AGAIN_AT_LAST = 5.0, 300.0
_VERSION = "0.1"
"""The client version that servers are sent; it has no effect."""

Elicit = Callable[[mcp_types.ElicitRequestParams], Awaitable[mcp_types.ElicitResult]]


@dataclass(slots=True, eq=False)
class _Caller:
    """The data of a call that the library's callbacks need."""

    elicit: Elicit | None = None


_caller: contextvars.ContextVar[_Caller | None] = contextvars.ContextVar("caller", default=None)
"""The call that a server's question is about: the library calls back in its context."""


class Connection:
    """An MCP connection: ``open`` it, call it from any task of the same loop, then ``close`` it, also when it is ``over``."""

    def __init__(self, access: Access, *, asks: bool = False) -> None:
        self.access = access
        self.tools: tuple[Listed, ...] = ()
        self.cut = False
        """Whether the server lists more tools than the limits allow."""
        self._callers: set[_Caller] = set()
        self.changed = asyncio.Event()
        """Set when the server announces a change of its tools."""
        self._asks = asks
        self._client: Client | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._fault: McpFault | None = None
        self._task: asyncio.Task[None] | None = None
        self._program: Stdio | None = None

    @property
    def busy(self) -> bool:
        return bool(self._callers)

    @property
    def over(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def fault(self) -> McpFault | None:
        """Why the connection is over; None if it was closed."""
        return self._fault

    @property
    def protocol(self) -> str:
        return "" if self._client is None else self._client.protocol_version

    async def open(self) -> None:
        """Shake hands and list the tools; ``McpFault`` if that fails, and the connection is over."""
        # In an empty context: the task outlives the call that opens it.
        self._task = asyncio.create_task(self._run(), name=f"mcp {self.access.server}", context=contextvars.Context())
        self._task.add_done_callback(self._settle)
        try:
            async with asyncio.timeout(self._opening_seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise McpFault("timeout", "it does not answer in time") from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Close the connection, within a time limit."""
        if self._task is None or self._task.done():
            return
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSING_SECONDS)

    @property
    def _opening_seconds(self) -> float:
        program = self.access.program
        return self.access.connect + _HANDSHAKE_SECONDS if program is None else program.start_seconds

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this when the connection is over."""
        assert self._task is not None
        self._task.add_done_callback(lambda _task: call())

    async def ended(self) -> None:
        """Returns when the connection is over."""
        assert self._task is not None
        await asyncio.wait({self._task})

    async def call(self, tool: str, arguments: dict[str, Any], elicit: Elicit | None) -> mcp_types.CallToolResult:
        """Call a tool; ``McpFault`` if it has no result. A cancelled call is cancelled at the server too."""
        if not tracing.is_on():
            return await self._call(tool, arguments, elicit)
        about: tracing.Attributes = {
            "mcp.method.name": "tools/call",
            "mcp.protocol.version": self.protocol or None,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "server.address": self.access.host if self.access.program is None else None,
            "network.transport": "pipe" if self.access.program is not None else "tcp",
            "agenthost.mcp.server": self.access.server,
        }
        # The library writes the context into the call's _meta.
        with tracing.span(f"tools/call {tool}", tracing.CLIENT, about) as span, tracing.shared_with_libraries():
            try:
                return await self._call(tool, arguments, elicit)
            except McpFault as fault:
                span.fail(fault.kind)
                raise

    async def _call(self, tool: str, arguments: dict[str, Any], elicit: Elicit | None) -> mcp_types.CallToolResult:
        seen, client = Seen(), self._client
        if client is None or self.over:
            raise self._fault or McpFault("closed", "the connection is closed")
        caller = _Caller(elicit)
        watching, calling = http.watching.set(seen), _caller.set(caller)
        self._callers.add(caller)
        try:
            return await client.call_tool(tool, arguments)
        except asyncio.CancelledError:
            raise
        except MCPError as error:
            raise await self._fault_of(error, seen) from None
        except Exception as error:  # the library may raise anything
            raise faults.of(error, seen) from None
        finally:
            self._callers.discard(caller)
            http.watching.reset(watching)
            _caller.reset(calling)

    async def list_tools(self) -> tuple[Listed, ...]:
        """The server's current tools."""
        seen, client = Seen(), self._client
        if client is None or self.over:
            raise self._fault or McpFault("closed", "the connection is closed")
        watching = http.watching.set(seen)
        try:
            async with asyncio.timeout(self._opening_seconds):
                self.tools, self.cut = await _list(client, self.access.server)
        except MCPError as error:
            raise await self._fault_of(error, seen) from None
        except Exception as error:  # as above
            raise faults.of(error, seen) from None
        finally:
            http.watching.reset(watching)
        return self.tools

    async def _fault_of(self, error: MCPError, seen: Seen) -> McpFault:
        """The fault of a failed call: the connection's, if its end has ended the call."""
        if error.code == mcp_types.CONNECTION_CLOSED and self._task is not None and not seen.status:
            await asyncio.wait({self._task}, timeout=1)
            if self._fault is not None:
                return self._fault
        return self._masked(faults.of(error, seen))

    def _masked(self, fault: McpFault) -> McpFault:
        return McpFault(fault.kind, self.access.masked(fault.detail))

    async def _run(self) -> None:
        seen = Seen()
        http.watching.set(seen)
        try:
            # No server that is started as a program is known to refuse the session handshake.
            if not ((self._asks or self.access.program is not None) and await self._serve("legacy", seen)):
                await self._serve("auto", seen)
        except asyncio.CancelledError:
            if not self._closing.is_set():
                raise
        except BaseExceptionGroup as group:
            self._fault = self._masked(faults.of(group, seen))
        except Exception as error:  # any error of the library ends this connection only
            self._fault = self._masked(faults.of(error, seen))
        if self._program is not None and self._program.fault is not None:
            self._fault = self._masked(self._program.fault)

    async def _serve(self, mode: str, seen: Seen) -> bool:
        """Serve the connection from the handshake to its end. False: the server does not support this handshake.

        Use the session handshake first when elicitation is possible: every server that elicits supports it there, and
        some do not with the newer handshake.
        """
        known = True
        try:
            async with self._transport() as transport, self._client_of(transport, mode) as client:
                self.tools, self.cut = await _list(client, self.access.server)
                self._client = client
                if self._program is not None:
                    self._program.ready = True
                self._ready.set_result(None)
                # Later faults are the connection's, not those of opening it.
                seen.status, seen.too_large = 0, False
                await self._wait_for_end(client)
        except* MCPError:
            if mode != "legacy" or self._ready.done() or self._closing.is_set() or seen.status in _ACCESS_DENIED:
                raise
            seen.status, seen.too_large = 0, False
            known = False
        return known

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Transport]:
        if self.access.program is not None:
            self._program = Stdio(self.access, self._closing.set)
            yield self._program
            return
        async with http.client(self.access) as client:
            yield streamable_http_client(self.access.url, http_client=client, max_sse_event_size=self.access.answer_bytes)

    def _client_of(self, transport: Transport, mode: str) -> Client:
        return Client(
            transport,
            client_info=mcp_types.Implementation(name="agenthost", version=_VERSION),
            elicitation_callback=self._elicit if self._asks else None,
            message_handler=self._on_message,
            cache=None,
            mode=mode,
        )

    async def _wait_for_end(self, client: Client) -> None:
        tools = client.server_capabilities.tools
        if self._asks or tools is None or not tools.list_changed or client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await self._closing.wait()
            return
        listening = asyncio.create_task(self._listen(client))
        try:
            await self._closing.wait()
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tool list, which servers since 2026 require; then list once, for missed changes."""
        pause = _LISTEN_AGAIN
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    pause = _LISTEN_AGAIN
                    async for _ in events:
                        self.changed.set()
            except ListenNotSupportedError:
                return
            except MCPError as error:
                if error.code == mcp_types.METHOD_NOT_FOUND:
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            self.changed.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LISTEN_AGAIN_AT_LAST)

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the library's signature
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult:
        caller = _caller.get()
        if caller is None and len(self._callers) == 1:
            # Some servers ask outside the call's context; with one call open the question belongs to that call.
            (caller,) = self._callers
        if caller is None or caller.elicit is None:
            return mcp_types.ElicitResult(action="decline")
        return await caller.elicit(params)

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.changed.set()

    def _settle(self, task: asyncio.Task[None]) -> None:
        if self._fault is None and not task.cancelled() and (error := task.exception()) is not None:
            self._fault = McpFault("failed", type(error).__name__)
        if not self._ready.done():
            self._ready.set_exception(self._fault or McpFault("closed", "the connection was closed while it opened"))
            # Retrieved, because the task that opened it may have been cancelled.
            self._ready.exception()


async def _list(client: Client, server: str) -> tuple[tuple[Listed, ...], bool]:
    """All pages of the tool list, and whether it exceeds the limits; empty if the server has no tools."""
    if client.server_capabilities.tools is None:
        return (), False
    found: list[Listed] = []
    size = 0
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = tool.annotations
            made = listing.listed(
                tool.name,
                tool.title or (hints.title if hints else None),
                tool.description,
                tool.input_schema,
                idempotent=bool(hints and (hints.idempotent_hint or hints.read_only_hint)),
            )
            if made is None:
                log.warning("mcp_tool_skipped server=%s reason=invalid_name_or_schema", server)
            else:
                size += made.size
                if len(found) >= listing.MOST_LISTED or size > listing.most_listed_bytes():
                    return tuple(found), True
                found.append(made)
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found), False
    return tuple(found), True
