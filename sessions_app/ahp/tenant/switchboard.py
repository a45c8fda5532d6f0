"""One tenant's connections in one process: what happens in the tenant goes to whoever it concerns.

It follows the tenant once, whatever the number of connections. An event that somebody is subscribed to is made into
an envelope once, and the same text goes to everybody. Connections are only given things here; they are read and
written in connection.py.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agents_app import exact_json
from sessions_app.ahp.tenant import presence
from sessions_app.ahp.tenant.notifications import Bulletin
from sessions_app.ahp.tenant.session_counts import Tally
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.outbox import Unsent
from sessions_app.ahp.versions.v0_1.projection import actions
from sessions_app.core.base import database
from sessions_app.core.base.byte_budget import ANSWERS
from sessions_app.core.base.events import Kind
from sessions_app.core.log import feed
from sessions_app.core.log.feed import TenantFollower
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import agent_listings

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection
    from sessions_app.ahp.versions.v0_1.snapshots import Target

log = logging.getLogger(__name__)

LOST_PLACE = 1012
"""Closing code for connections that know something which no action can put right: they come back and get snapshots."""


def root_key(tenant: int) -> int:
    """The key of the tenant's root; sessions have their row's id. The journal numbers events by the same."""
    return -tenant


class Switchboard:
    """Lives in one loop, while its tenant has connections there."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self._connections: dict[str, Connection] = {}
        self._subscribers: dict[int, dict[Connection, str]] = {}
        self._agents: dict[int, str] = {}
        self._follower = TenantFollower(self._take, self._lost, self._fail)
        self.failed = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._bulletin = Bulletin(tenant, self._notify, self._fail)
        self._tallies: dict[frozenset[str], Tally] = {}
        self._stack = AsyncExitStack()
        self.unsent = Unsent(self._may_hold, partial(ANSWERS.give_back, tenant), self._make_room)

    async def open(self) -> None:
        # Before anybody asks what was missed: another process may have shown this tenant other agents.
        await database.run_for(self.tenant, agent_listings.show, self.tenant)
        await self._stack.enter_async_context(feed.follow_tenant(self.tenant, self._follower))
        self._stack.callback(self._bulletin.close)

    async def close(self) -> None:
        await self._stack.aclose()

    # --- connections ---

    @property
    def connections(self) -> Sequence[Connection]:
        return list(self._connections.values())

    async def add(self, connection: Connection) -> None:
        self._connections[connection.id] = connection
        agents = connection.caller.key_agents
        if agents is None:
            return
        tally = self._tallies.get(agents)
        if tally is None:
            tally = self._tallies[agents] = Tally(agents)
        await tally.begun(connection.caller)

    def remove(self, connection: Connection) -> None:
        self._connections.pop(connection.id, None)
        for key in list(connection.subscriptions):
            self.unsubscribe(key, connection)
        agents = connection.caller.key_agents
        if agents is not None and not any(each.caller.key_agents == agents for each in self._connections.values()):
            self._tallies.pop(agents, None)

    def subscribe(self, target: Target, connection: Connection) -> bool:
        """The connection gets the envelopes of this resource from now on. False: it did already."""
        subscribers = self._subscribers.setdefault(target.key, {})
        if connection in subscribers:
            return False
        subscribers[connection] = target.uri
        self._agents[target.key] = target.agent
        connection.subscriptions[target.key] = target.uri
        return True

    def unsubscribe(self, key: int, connection: Connection) -> None:
        connection.subscriptions.pop(key, None)
        subscribers = self._subscribers.get(key)
        if subscribers is not None:
            subscribers.pop(connection, None)
            if not subscribers:
                del self._subscribers[key], self._agents[key]

    # --- what is not sent yet ---

    def _may_hold(self, size: int, only: bool) -> bool:
        return ANSWERS.take(self.tenant, size, alone=only)

    def _make_room(self) -> None:
        """Close the connection that has the most unsent: its client is the slowest reader."""
        slowest = max(self._connections.values(), key=lambda each: each.outbox.size, default=None)
        if slowest is not None and slowest.outbox.size:
            slowest.outbox.overflow()

    # --- the tenant's order ---

    async def reached(self, seq: int) -> None:
        """Until everything up to this number, which was seen in the journal, has been given out here."""
        if self._follower.position >= seq:
            return
        self._follower.expect(seq)
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (seq, next(self._order), reached))
        await reached

    def _take(self, events: Sequence[Event], upto: int) -> None:
        for event in events:
            try:
                self._take_one(event)
            except Exception:
                # What cannot be said to anybody must not keep the rest from everybody.
                log.exception("event %s of tenant %s (%s) was not understood", event.seq, self.tenant, event.kind)
                self._close_subscribers(event.session)
        while self._waiting and self._waiting[0][0] <= upto:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _take_one(self, event: Event) -> None:
        if event.session == root_key(self.tenant):
            self._take_of_tenant(event)
            return
        subscribers = self._subscribers.get(event.session)
        if subscribers:
            uri = next(iter(subscribers.values()))
            envelope = actions.envelope_of(event, uri)
            if envelope is not None:
                text = jsonrpc.notification_of("action", envelope)
                for connection in subscribers:
                    _give(connection, event.seq, event.session, text)
        if event.kind == Kind.SESSION_DELETED:
            for connection in list(self._subscribers.get(event.session, ())):
                self.unsubscribe(event.session, connection)
        if self._tallies and event.kind in (Kind.SESSION_CREATED, Kind.SESSION_DELETED):
            self._count(event)
        self._bulletin.take(event)

    def _take_of_tenant(self, event: Event) -> None:
        rejection = actions.rejection_of(event)
        if rejection is not None:
            connection = self._connections.get(rejection.connection)
            if connection is not None:
                _give(connection, event.seq, None, jsonrpc.notification_of("action", rejection.envelope))
            return
        self._redefine(actions.agents_redefined(event))
        texts: dict[frozenset[str] | None, str | None] = {}
        is_count = event.kind == Kind.ACTIVE_SESSIONS_CHANGED
        counts = {agents: tally.news() for agents, tally in self._tallies.items()} if is_count else {}
        for connection in self._subscribers.get(event.session, ()):
            agents = connection.caller.key_agents
            if agents not in texts:
                envelope = actions.root_envelope_of(event, agents, None if agents is None else counts.get(agents))
                texts[agents] = None if envelope is None else jsonrpc.notification_of("action", envelope)
            if (text := texts[agents]) is not None:
                _give(connection, event.seq, event.session, text)

    def _count(self, event: Event) -> None:
        agent = exact_json.loads(event.data).get("agent")
        if agent is None:
            # An event of the previous release, without the agent: limited keys reconnect and count from scratch.
            self._tallies.clear()
            for connection in self.connections:
                if connection.caller.key_agents is not None:
                    connection.close(LOST_PLACE)
            return
        for tally in self._tallies.values():
            tally.take(event.seq, agent, 1 if event.kind == Kind.SESSION_CREATED else -1)

    def _redefine(self, agents: frozenset[str]) -> None:
        """Sessions of these agents look otherwise from now on; whoever watches one has to look anew."""
        if agents:
            for key in [key for key, agent in self._agents.items() if agent in agents]:
                self._close_subscribers(key)
            self._bulletin.redefined(agents)

    def _notify(self, text: str, agent: str) -> None:
        for connection in self._connections.values():
            if connection.is_open and connection.caller.may_see(agent):
                connection.outbox.put_notice(text)

    def _close_subscribers(self, key: int) -> None:
        for connection in list(self._subscribers.get(key, ())):
            connection.close(LOST_PLACE)

    def _fail(self) -> None:
        """The feed or the notifications of this board have failed. Its connections reconnect, to a new board."""
        self.failed = True
        log.error("switchboard_failed tenant=%s; its connections are closed", self.tenant)
        for connection in self.connections:
            connection.close(LOST_PLACE)

    def _lost(self) -> None:
        log.warning("a crash of the database took what tenant %s had been shown; its connections begin anew", self.tenant)
        self._tallies.clear()
        for connection in self.connections:
            connection.close(LOST_PLACE)


def _give(connection: Connection, seq: int, key: int | None, text: str) -> None:
    """Nothing with a number follows what was not told: it comes when the connection is made anew."""
    if connection.close_code is None:
        connection.outbox.put_action(seq, key, text)


class _Exchange:
    """The switchboards of one loop."""

    def __init__(self) -> None:
        self._boards: dict[int, tuple[Switchboard, asyncio.Task[None]]] = {}
        self._users: dict[Switchboard, int] = {}

    @asynccontextmanager
    async def board(self, tenant: int) -> AsyncIterator[Switchboard]:
        if tenant not in self._boards or self._boards[tenant][0].failed:
            board = Switchboard(tenant)
            self._boards[tenant] = board, asyncio.create_task(board.open())
        board, opening = self._boards[tenant]
        self._users[board] = self._users.get(board, 0) + 1
        try:
            await asyncio.shield(opening)
            yield board
        finally:
            self._users[board] -= 1
            if not self._users[board]:
                del self._users[board]
                if tenant in self._boards and self._boards[tenant][0] is board:
                    del self._boards[tenant]
                opening.cancel()
                await asyncio.wait([opening])
                await board.close()


_exchanges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Exchange] = WeakKeyDictionary()
_exchanges_lock = threading.Lock()


@asynccontextmanager
async def board_of(tenant: int) -> AsyncIterator[Switchboard]:
    """The running loop's switchboard of the tenant, there within the block."""
    loop = asyncio.get_running_loop()
    with _exchanges_lock:
        exchange = _exchanges.setdefault(loop, _Exchange())
    async with exchange.board(tenant) as board, presence.watched(board):
        yield board
