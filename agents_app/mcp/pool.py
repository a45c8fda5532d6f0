"""Connection pool of runs to MCP servers: one pool per event loop, one connection per conversation, server and headers.

A server may keep state per connection and identifies its user by the headers, so conversations share no connection. Only a
program whose file has ``per = "tenant"`` is shared, by the conversations of one tenant.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from agents_app import supervision
from agents_app.errors import ToolFailed
from agents_app.mcp import programs, results
from agents_app.mcp.access import Access
from agents_app.mcp.faults import McpFault
from agents_app.mcp.listing import Listed
from agents_app.mcp.programs import CannotStart, Program
from agents_app.runtime.messages import Content

if TYPE_CHECKING:
    from agents_app.mcp.connection import Connection, Elicit

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 256
IDLE_SECONDS = 300.0
LOOK_SECONDS = 15.0
FAILED_LIST_SECONDS = 30.0
MOST_FAILURES, FAILURE_SECONDS = 3, 600.0
"""A program that has failed this often within this time is not started."""
_OWN_FAILURES = ("unavailable", "busy", "down", "closed")
"""Faults that are not the program's."""


class Pool:
    """Connections by the key of their access. For one loop."""

    def __init__(self) -> None:
        self._opened: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._starting: dict[str, Access] = {}
        """The accesses of ``_opening``."""
        self._used: dict[str, float] = {}
        self._failed_lists: dict[str, tuple[float, McpFault]] = {}
        self._failures: dict[str, deque[tuple[float, McpFault]]] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def size(self) -> int:
        return len(self._opened)

    async def call(
        self, access: Access, tool: str, arguments: Mapping[str, Any], limit: int, elicit: Elicit | None = None
    ) -> Content:
        """A tool's result; ``ToolFailed`` with a text for the model if it has none."""
        try:
            try:
                result = await (await self._connection(access)).call(tool, dict(arguments), elicit)
            except McpFault as fault:
                if fault.kind != "forgotten":
                    raise
                # The server refused the session before it read the call, so the call may be repeated.
                self._drop(access.key)
                result = await (await self._connection(access)).call(tool, dict(arguments), elicit)
        except McpFault as fault:
            log.warning("mcp_call_failed server=%s: %s", access.server, fault)
            raise ToolFailed(fault.for_clients(access.server)) from None
        try:
            return results.content(result, limit)
        except ToolFailed as failed:
            raise ToolFailed(access.masked(failed.reason)) from None

    async def list_tools(self, access: Access, wait_seconds: float) -> tuple[Listed, ...]:
        """The tools that the server listed for these headers when the connection opened.

        ``McpFault`` if it does not answer within ``wait_seconds``, or failed a moment ago.
        """
        failed = self._failed_lists.get(access.key)
        if access.key not in self._opened and failed is not None and time.monotonic() - failed[0] < FAILED_LIST_SECONDS:
            raise failed[1]
        try:
            async with asyncio.timeout(wait_seconds):
                found = (await self._connection(access)).tools
        except TimeoutError:
            fault = McpFault("timeout", "it does not answer in time")
        except McpFault as raised:
            fault = raised
        else:
            self._failed_lists.pop(access.key, None)
            return found
        log.warning("mcp_list_failed server=%s host=%s: %s", access.server, access.host, fault.detail)
        self._failed_lists[access.key] = (time.monotonic(), fault)
        self._watch()
        raise fault

    async def close(self) -> None:
        """Close all connections now."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for key in list(self._opened):
            self._drop(key)
        if self._closing:
            await asyncio.wait(set(self._closing))

    async def _connection(self, access: Access) -> Connection:
        found = self._opened.get(access.key)
        if found is not None and found.over:
            self._forget(access.key)
            found = None
        if found is None:
            opening = self._opening.get(access.key)
            if opening is None:
                self._refuse_if_down(access)
                self._make_room(access)
                opening = self._opening[access.key] = asyncio.create_task(self._open(access))
                self._starting[access.key] = access
                opening.add_done_callback(lambda task: self._opened_or_not(access, task))
            # Several calls of a step wait for one handshake; cancelling one of them does not end it for the others.
            found = await asyncio.shield(opening)
        self._used[access.key] = time.monotonic()
        return found

    def _opened_or_not(self, access: Access, task: asyncio.Task[Connection]) -> None:
        self._opening.pop(access.key, None)
        self._starting.pop(access.key, None)
        if not task.cancelled():
            # Retrieved, so that the loop does not report it: all waiting calls may have been cancelled.
            task.exception()

    async def _open(self, access: Access) -> Connection:
        from agents_app.mcp.connection import Connection

        # A program's question does not name its call, so only a conversation that has it for itself is asked.
        shared = access.program is not None and access.program.per == "tenant"
        connection = Connection(access, asks=not shared)
        try:
            await connection.open()
        except McpFault as fault:
            self._count_failure(access, fault)
            raise
        self._opened[access.key] = connection
        self._used[access.key] = time.monotonic()
        if access.program is not None:
            connection.when_over(lambda: self._count_failure(access, connection.fault))
        self._watch()
        return connection

    def _count_failure(self, access: Access, fault: McpFault | None) -> None:
        if access.program is None or fault is None or fault.kind in _OWN_FAILURES:
            return
        log.warning("mcp_program_failed server=%s: %s", access.server, fault.detail)
        self._failures.setdefault(access.key, deque(maxlen=MOST_FAILURES)).append((time.monotonic(), fault))
        self._watch()

    def _refuse_if_down(self, access: Access) -> None:
        failures = self._failures.get(access.key)
        if failures is None or len(failures) < MOST_FAILURES:
            return
        left = failures[0][0] + FAILURE_SECONDS - time.monotonic()
        if left > 0:
            reason = failures[-1][1].detail
            raise McpFault("down", f"it has failed {MOST_FAILURES} times; it may start again in {left:.0f} s. Last: {reason}")

    def _make_room(self, access: Access) -> None:
        """Close the least recently used idle connection if there are too many."""
        if access.program is not None:
            try:
                launcher = programs.launcher()
            except CannotStart as error:
                raise McpFault("unavailable", str(error)) from None
            tenant, most = access.program.tenant, launcher.most_of_tenant
            full = f"{most} programs of MCP servers of this tenant are in use (AGENTHOST_TENANT_MCP_PROCESSES)"
            self._make_room_among([each for each, program in self._programs() if program.tenant == tenant], most, full)
            full = f"{launcher.most} programs of MCP servers are in use (AGENTHOST_MCP_PROCESSES)"
            self._make_room_among([each for each, _ in self._programs()], launcher.most, full)
        used = [*(each.access for each in self._opened.values()), *self._starting.values()]
        self._make_room_among(used, MOST_CONNECTIONS, f"{MOST_CONNECTIONS} connections to MCP servers are in use")

    def _programs(self) -> Iterator[tuple[Access, Program]]:
        """All programs that run or start."""
        for access in (*(each.access for each in self._opened.values()), *self._starting.values()):
            if access.program is not None:
                yield access, access.program

    def _make_room_among(self, used: list[Access], most: int, full: str) -> None:
        if len(used) < most:
            return
        idle = [each.key for each in used if each.key in self._opened and not self._opened[each.key].busy]
        if not idle:
            raise McpFault("busy", full)
        self._drop(min(idle, key=lambda key: self._used.get(key, 0.0)))

    def _forget(self, key: str) -> None:
        self._opened.pop(key, None)
        self._used.pop(key, None)

    def _drop(self, key: str) -> None:
        connection = self._opened.get(key)
        self._forget(key)
        if connection is not None:
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _watch(self) -> None:
        if self._sweeper is None or self._sweeper.done():
            # Without this task idle connections stay open. It has no state, so it is started again instead of ending the
            # process. It pauses first.
            self._sweeper = supervision.task(
                self._sweep(), "mcp-connections", may_return=lambda: not self._is_used, instead=lambda _error: self._watch()
            )

    @property
    def _is_used(self) -> bool:
        return bool(self._opened or self._failed_lists or self._failures)

    async def _sweep(self) -> None:
        while self._is_used:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            for key, connection in list(self._opened.items()):
                program = connection.access.program
                idle_seconds = IDLE_SECONDS if program is None else program.idle_seconds
                if connection.over or (not connection.busy and now - self._used.get(key, 0.0) > idle_seconds):
                    self._drop(key)
            for key, (since, _) in list(self._failed_lists.items()):
                if now - since > FAILED_LIST_SECONDS:
                    del self._failed_lists[key]
            for key, failures in list(self._failures.items()):
                if now - failures[-1][0] > FAILURE_SECONDS:
                    del self._failures[key]
            await self._drop_deleted()

    async def _drop_deleted(self) -> None:
        """End the programs of sessions that do not exist any more."""
        owners = {
            key: each.access.program.session
            for key, each in self._opened.items()
            if each.access.program is not None and each.access.program.session
        }
        if not owners:
            return
        try:
            gone = await programs.launcher().deleted(set(owners.values()))
        except Exception as error:  # it is asked again soon; idle programs end without it
            log.warning("mcp_programs_not_checked: %s", type(error).__name__)
            return
        for key, session in owners.items():
            if session in gone:
                self._drop(key)


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = WeakKeyDictionary()


def pool() -> Pool:
    """The pool of the running loop."""
    loop = asyncio.get_running_loop()
    found = _pools.get(loop)
    if found is None:
        found = _pools[loop] = Pool()
    return found
