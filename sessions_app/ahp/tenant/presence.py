"""Presence of clients: renewed for all of a loop's connections at once.

Also what their tenants are shown of the operator's agents: it changes without anybody asking.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import Error as DatabaseError

from sessions_app.core.base import database, supervision
from sessions_app.core.base.caller import WRITE
from sessions_app.core.base.duties import Duty
from sessions_app.core.base.errors import NotReady
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import agent_listings

if TYPE_CHECKING:
    from sessions_app.ahp.tenant.switchboard import Switchboard
    from sessions_app.ahp.transport.connection import Connection

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_RENEWALS = 3
"""How often presence is renewed in the time after which it would have ended."""


class _Watch:
    """Of one loop. A few statements, whatever the number of connections; none while there are none."""

    def __init__(self) -> None:
        self._boards: dict[Switchboard, int] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._entering: dict[str, asyncio.Task[None]] = {}
        self._showing: dict[int, asyncio.Task[None]] = {}

    def enter(self, board: Switchboard) -> None:
        self._boards[board] = self._boards.get(board, 0) + 1
        if not self._watching:
            # An error in one neither stops nor delays the other.
            duties = (Duty("presence", self._renew), Duty("listings", self._look_at_listings))
            self._watching = [supervision.task(self._watch(duty), f"{duty.name}-watch") for duty in duties]

    def leave(self, board: Switchboard) -> None:
        self._boards[board] -= 1
        if not self._boards[board]:
            del self._boards[board]
        if not self._boards:
            for task in self._watching:
                task.cancel()
            self._watching = []

    async def _watch(self, duty: Duty) -> None:
        every = settings.AGENTHOST_AHP_PRESENCE_SECONDS / _RENEWALS
        while True:
            await asyncio.sleep(min(_RETRY_SECONDS, every) if duty.failing else every)
            await duty.attempt()

    @property
    def _connections(self) -> list[Connection]:
        return [connection for board in self._boards for connection in board.connections]

    async def _renew(self) -> None:
        named = [connection for connection in self._connections if connection.client]
        # Keys that may only read have no presence.
        present = {connection.id: connection for connection in named if connection.caller.may(WRITE)}
        if not present:
            return
        for lost in await database.run(connections.renew, list(present)):
            # Taken for gone while this process, or the database, stood still.
            connection = present[lost]
            if connection.close_code is None and lost not in self._entering:
                # Beside the watch: it may have to wait for its tenant's share, and the others' presence must not.
                self._entering[lost] = asyncio.create_task(self._enter_anew(connection))

    async def _look_at_listings(self) -> None:
        """Another process may have brought other agents, an operator other rights: the tenants here are shown that."""
        await database.run(agent_listings.renew)
        outdated = await database.run(agent_listings.outdated, {board.tenant for board in self._boards})
        for tenant in outdated:
            # Beside the watch, and each by itself: a tenant whose rows are locked keeps no other from being shown its agents.
            if tenant not in self._showing:
                self._showing[tenant] = asyncio.create_task(self._show(tenant))

    async def _show(self, tenant: int) -> None:
        try:
            await database.run_for(tenant, agent_listings.show, tenant)
        except (DatabaseError, NotReady) as error:
            log.warning("tenant %d could not be shown other agents, the next look tries again: %s", tenant, error)
        finally:
            del self._showing[tenant]

    async def _enter_anew(self, connection: Connection) -> None:
        try:
            await _connect(connection, connection.client, resumed=True)
            if connection not in connection.switchboard.connections:
                # It ended while it was entered.
                await gone(connection)
        except (DatabaseError, NotReady) as error:
            log.warning("a connection could not be entered anew, the next look tries again: %s", error)
        finally:
            del self._entering[connection.id]


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
_watches_lock = threading.Lock()


@asynccontextmanager
async def watched(board: Switchboard) -> AsyncIterator[None]:
    """The board's connections are looked after within the block."""
    with _watches_lock:
        watch = _watches.setdefault(asyncio.get_running_loop(), _Watch())
    watch.enter(board)
    try:
        yield
    finally:
        watch.leave(board)


async def came(connection: Connection, client: str, *, resumed: bool) -> None:
    """The connection is this client's from now on. ``resumed``: it goes on where another one of the client's ended."""
    # After a handshake that failed half way there may be another one.
    await gone(connection)
    await _connect(connection, client, resumed=resumed)


async def _connect(connection: Connection, client: str, *, resumed: bool) -> None:
    connection.life = await connection.in_database(
        connections.connected, connection.caller, client, connection.id, resumed=resumed
    )
    connection.client = client


async def gone(connection: Connection) -> None:
    """The connection is over. If nobody can be told now, the sweep finds out."""
    if not connection.client:
        return
    try:
        # With its tenant's share: it waits for the locks of the client's sessions.
        await connection.in_database(connections.disconnected, connection.caller, connection.client, connection.id)
    except (DatabaseError, NotReady) as error:
        log.warning("the end of a connection could not be stored: %s", error)
