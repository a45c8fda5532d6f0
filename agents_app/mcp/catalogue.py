"""Background cache of the tool lists of all MCP servers of this process's agents.

A thread lists each server's tools using the options' defaults, and lists them again every few minutes, when the server
announces a change, and some time after a failure. A server that is a program runs only until its tools are listed. Readers
never wait for a server, except briefly while one is asked for the first time. A server's last list stays known while it is
down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from agents_app import options, supervision
from agents_app.mcp import listing
from agents_app.mcp.access import Access, accesses
from agents_app.mcp.faults import McpFault
from agents_app.mcp.listing import Listed
from agents_app.spec import AgentSpec

if TYPE_CHECKING:
    from agents_app.mcp.connection import Connection

log = logging.getLogger(__name__)

OWNER = "catalogue"
"""The owner of the catalogue's connections."""
REFRESH_SECONDS = 300.0
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
PROGRAM_REFRESH_SECONDS, LONGEST_PROGRAM_PAUSE = 3600.0, 600.0
"""A program is started for its list, and ended: that costs more than a request, and its list rarely changes."""
MOST_PROGRAMS = 2
"""Programs that are started for their lists at the same time."""
FIRST_WAIT_SECONDS = 3.0
_IMPORT_SECONDS = 10.0
_SETTLE_SECONDS = 0.2
_CLOSING_SECONDS = 5.0


@dataclass(eq=False)
class Entry:
    """One server in the catalogue. ``tools`` None: its list is not known yet."""

    access: Access
    tools: tuple[Listed, ...] | None = None
    cut: bool = False
    """Whether the server lists more tools than the limits allow."""
    fault: McpFault | None = None
    asked: threading.Event = field(default_factory=threading.Event)
    asked_at: float = 0.0
    tried: threading.Event = field(default_factory=threading.Event)
    following: asyncio.Task[None] | None = None
    """A strong reference, because a loop has weak ones to its tasks."""


class Catalogue:
    """The tool lists of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._programs = asyncio.Semaphore(MOST_PROGRAMS)
        """Used in the loop only."""
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def watch(self, specs: Iterable[AgentSpec]) -> None:
        """Start listing the tools of all servers of these agents. Never waits."""
        for spec in specs:
            for access in _accesses(spec).values():
                self._entry(access)

    def lists(self, spec: AgentSpec, *, wait: bool) -> dict[str, tuple[Listed, ...]]:
        """The known lists of the agent's servers, by their names.

        ``wait``: wait briefly for servers that are being asked for the first time.
        """
        found = {name: self._entry(access) for name, access in _accesses(spec).items()}
        if wait:
            for entry in found.values():
                # A new process is busy; the time limit of a server begins when it is asked.
                if not entry.tried.is_set() and entry.asked.wait(_IMPORT_SECONDS):
                    entry.tried.wait(max(0.0, entry.asked_at + FIRST_WAIT_SECONDS - time.monotonic()))
        return {name: entry.tools for name, entry in found.items() if entry.tools is not None}

    def faults(self, spec: AgentSpec) -> dict[str, McpFault]:
        """The current faults of the agent's servers, by their names."""
        entries = {name: self._entries.get(access.key) for name, access in _accesses(spec).items()}
        return {name: entry.fault for name, entry in entries.items() if entry is not None and entry.fault is not None}

    def known(self, spec: AgentSpec) -> dict[str, int]:
        """The numbers of tools that the agent's servers listed last, by their names."""
        entries = {name: self._entries.get(access.key) for name, access in _accesses(spec).items()}
        return {name: len(entry.tools) for name, entry in entries.items() if entry is not None and entry.tools is not None}

    def hangs(self, access: Access) -> bool:
        """Whether the server did not respond at all when it was last asked; False for an unknown server."""
        entry = self._entries.get(access.key)
        return entry is not None and entry.fault is not None and entry.fault.kind == "timeout"

    def standing(self) -> tuple[int, int]:
        """The number of watched servers, and how many of them cannot be used now, not counting servers that require
        each session's own credentials."""
        entries = list(self._entries.values())
        return len(entries), sum(entry.fault is not None and entry.fault.kind != "refused" for entry in entries)

    def has_programs(self) -> bool:
        """Whether a watched server is started as a program."""
        return any(entry.access.program is not None for entry in list(self._entries.values()))

    def cut(self, spec: AgentSpec) -> set[str]:
        """The names of the agent's servers that list more tools than the limits allow."""
        entries = {name: self._entries.get(access.key) for name, access in _accesses(spec).items()}
        return {name for name, entry in entries.items() if entry is not None and entry.cut}

    def close(self) -> None:
        """Stop watching and forget all lists."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._entries = {}
            # A semaphore belongs to the loop in which it was first waited for.
            self._programs = asyncio.Semaphore(MOST_PROGRAMS)
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)

    def _entry(self, access: Access) -> Entry:
        if self._pid != os.getpid():
            # A forked process has none of its parent's threads.
            self._lock, self._pid, self._loop, self._entries = threading.Lock(), os.getpid(), None, {}
            self._programs = asyncio.Semaphore(MOST_PROGRAMS)
        found = self._entries.get(access.key)
        if found is not None:
            return found
        with self._lock:
            found = self._entries.get(access.key)
            if found is None:
                found = self._entries[access.key] = Entry(access)
                self._running_loop().call_soon_threadsafe(self._begin, found)
        return found

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            self._thread = supervision.thread(
                partial(_run, loop),
                "mcp-lists",
                may_return=lambda: self._loop is not loop,
                instead=lambda _error: self._start_again(loop),
            )
            self._thread.start()
        return self._loop

    def _start_again(self, lost: asyncio.AbstractEventLoop) -> None:
        """Start a new thread that asks all servers again after a pause. Only the lists depend on the one that ended."""
        with self._lock:
            if self._loop is not lost:
                return
            self._loop = None
            loop = self._running_loop()
            for entry in self._entries.values():
                loop.call_soon_threadsafe(loop.call_later, LONGEST_PAUSE, self._begin, entry)

    def _begin(self, entry: Entry) -> None:
        """Start watching a server; after an unexpected error it is asked again after a pause. Runs in the loop."""
        entry.following = supervision.task(
            self._follow(entry), f"mcp list of {entry.access.server}", instead=partial(self._begin_again, entry)
        )

    def _begin_again(self, entry: Entry, error: BaseException | None) -> None:
        self._failed(entry, McpFault("failed", type(error).__name__))
        asyncio.get_running_loop().call_later(LONGEST_PAUSE, self._begin, entry)

    async def _follow(self, entry: Entry) -> None:
        """Watch one server until the process ends."""
        # Imported here, in the catalogue's thread, because it takes half a second.
        from agents_app.mcp.connection import Connection

        entry.asked_at = time.monotonic()
        entry.asked.set()
        pause = FIRST_PAUSE
        is_program = entry.access.program is not None
        longest = LONGEST_PROGRAM_PAUSE if is_program else LONGEST_PAUSE
        while True:
            connection = Connection(entry.access)
            try:
                async with self._programs if is_program else contextlib.nullcontext():
                    try:
                        await connection.open()
                        self._learn(entry, connection.tools, cut=connection.cut)
                    finally:
                        if is_program:
                            await connection.close()
                pause = FIRST_PAUSE
                if is_program:
                    await asyncio.sleep(PROGRAM_REFRESH_SECONDS)
                else:
                    await self._stay(entry, connection)
            except Exception as error:
                # The server is asked again after any error: otherwise its list would never change.
                fault = error if isinstance(error, McpFault) else McpFault("failed", type(error).__name__)
                self._failed(entry, fault)
                # A server that refuses these credentials probably requires each session's own, so it is not asked again soon.
                await asyncio.sleep(REFRESH_SECONDS if fault.kind == "refused" else pause)
                pause = min(pause * 2, longest)
            finally:
                await connection.close()

    async def _stay(self, entry: Entry, connection: Connection) -> None:
        """List the tools again after each announced change and after some time, until the connection ends."""
        while True:
            changed = asyncio.create_task(connection.changed.wait())
            ended = asyncio.create_task(connection.ended())
            try:
                await asyncio.wait({changed, ended}, timeout=REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                ended.cancel()
            if connection.over:
                # The next connection shows whether the server is down.
                return
            # Several changes are often announced together.
            await asyncio.sleep(_SETTLE_SECONDS)
            connection.changed.clear()
            tools = await connection.list_tools()
            self._learn(entry, tools, cut=connection.cut)

    def _learn(self, entry: Entry, tools: tuple[Listed, ...], *, cut: bool) -> None:
        if entry.fault is not None:
            log.info("mcp_server_recovered server=%s", entry.access.server)
        entry.fault = None
        if tools != entry.tools or _schemas(tools) != _schemas(entry.tools or ()):
            entry.tools = tools
            log.info("mcp_tools_listed server=%s tools=%d", entry.access.server, len(tools))
        if cut and not entry.cut:
            log.warning(
                "mcp_list_cut server=%s: it lists more than %d tools or %d bytes of them; the rest is ignored",
                entry.access.server,
                listing.MOST_LISTED,
                listing.most_listed_bytes(),
            )
        entry.cut = cut
        entry.tried.set()

    def _failed(self, entry: Entry, fault: McpFault) -> None:
        if entry.fault is None or entry.fault.kind != fault.kind:
            log.warning("mcp_list_failed server=%s host=%s: %s", entry.access.server, entry.access.host, fault.detail)
        entry.fault = fault
        entry.tried.set()


def _schemas(tools: Iterable[Listed]) -> list[str]:
    """The schemas as text; the order of keys counts, because models see it."""
    return [repr(tool.parameters) for tool in tools]


def _accesses(spec: AgentSpec) -> Mapping[str, Access]:
    known = _known.get(id(spec))
    if known is None or known[0] is not spec:
        known = _known[id(spec)] = (spec, accesses(spec, options.effective(spec, {}), OWNER))
    return known[1]


_known: dict[int, tuple[AgentSpec, Mapping[str, Access]]] = {}


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(supervision.end_tasks(_CLOSING_SECONDS))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


catalogue = Catalogue()
"""The catalogue of this process."""
