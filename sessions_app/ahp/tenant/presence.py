"""Presence of clients: stored at the handshake, renewed for all connections of an event loop at once.

The same watch updates the agents that tenants with connections here are shown, because other processes and operators change
them at any time.
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
from sessions_app.core.base.errors import NotReady
from sessions_app.core.base.periodic_tasks import PeriodicTask
from sessions_app.core.records import handshakes
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import agent_listings

if TYPE_CHECKING:
    from sessions_app.ahp.tenant.switchboard import Switchboard
    from sessions_app.ahp.transport.connection import Connection

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
_RENEWALS = 3
"""Renewals within the time after which presence ends."""


class _Watch:
    """The watch of one event loop: its statements do not depend on the number of connections."""

    def __init__(self) -> None:
        self._boards: dict[Switchboard, int] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._entering: dict[str, asyncio.Task[None]] = {}
        self._showing: dict[int, asyncio.Task[None]] = {}

    def add(self, board: Switchboard) -> None:
        self._boards[board] = self._boards.get(board, 0) + 1
        if not self._watching:
            # An error in one neither stops nor delays the other.
            tasks = (PeriodicTask("presence", self._renew), PeriodicTask("listings", self._update_listings))
            self._watching = [supervision.task(self._watch(task), f"{task.name}-watch") for task in tasks]

    def remove(self, board: Switchboard) -> None:
        self._boards[board] -= 1
        if not self._boards[board]:
            del self._boards[board]
        if not self._boards:
            for task in self._watching:
                task.cancel()
            self._watching = []

    async def _watch(self, duty: PeriodicTask) -> None:
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
            # Its presence ended while this process, or the database, did not respond.
            connection = present[lost]
            if connection.close_code is None and lost not in self._entering:
                # In a task: it may have to wait for its tenant's share of threads, which must not delay other renewals.
                self._entering[lost] = asyncio.create_task(self._enter_again(connection))

    async def _update_listings(self) -> None:
        """Another process may have published other agents, or an operator changed a tenant's rights."""
        await database.run(agent_listings.renew)
        outdated = await database.run(agent_listings.outdated, {board.tenant for board in self._boards})
        for tenant in outdated:
            # In a task for each: a tenant whose rows are locked delays no other.
            if tenant not in self._showing:
                self._showing[tenant] = asyncio.create_task(self._show(tenant))

    async def _show(self, tenant: int) -> None:
        try:
            await database.run_for(tenant, agent_listings.show, tenant)
        except (DatabaseError, NotReady) as error:
            log.warning("agents_not_updated tenant=%d retry=next_renewal error=%s", tenant, error)
        finally:
            del self._showing[tenant]

    async def _enter_again(self, connection: Connection) -> None:
        try:
            await _store(connection, connection.client, resumed=True)
            if connection not in connection.switchboard.connections:
                # The connection ended meanwhile.
                await leave(connection)
        except (DatabaseError, NotReady) as error:
            log.warning("presence_not_stored retry=next_renewal error=%s", error)
        finally:
            del self._entering[connection.id]


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
_watches_lock = threading.Lock()


@asynccontextmanager
async def watched(board: Switchboard) -> AsyncIterator[None]:
    """The presence of the board's connections is renewed within the block."""
    with _watches_lock:
        watch = _watches.setdefault(asyncio.get_running_loop(), _Watch())
    watch.add(board)
    try:
        yield
    finally:
        watch.remove(board)


async def enter(connection: Connection, client: str, *, resumed: bool) -> None:
    """Store that the connection is this client's. ``resumed``: it continues an earlier connection of the client."""
    # An earlier handshake of this connection may have failed half way, with another client id.
    await leave(connection)
    await _store(connection, client, resumed=resumed)
    if not resumed:
        await connection.in_database(handshakes.remember, connection.caller, client, connection.version.name)


async def _store(connection: Connection, client: str, *, resumed: bool) -> None:
    connection.life = await connection.in_database(
        connections.connected, connection.caller, client, connection.id, resumed=resumed
    )
    connection.client = client


async def leave(connection: Connection) -> None:
    """Store that the connection has ended. If that fails now, the sweep does it later."""
    if not connection.client:
        return
    try:
        # In the tenant's share of threads: it waits for the locks of the client's sessions.
        await connection.in_database(connections.disconnected, connection.caller, connection.client, connection.id)
    except (DatabaseError, NotReady) as error:
        log.warning("disconnect_not_stored error=%s; the sweep ends the presence later", error)
