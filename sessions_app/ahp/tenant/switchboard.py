"""Delivers one tenant's events to the tenant's AHP connections in this process.

The tenant's feed is read once, whatever the number of connections. An event with subscribers is encoded once for each version
that they use, and all connections of that version get the same text.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from agents_app import exact_json
from sessions_app.ahp.tenant import presence
from sessions_app.ahp.tenant.notifications import Notifications
from sessions_app.ahp.tenant.session_counts import SessionCount
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.outbox import Unsent
from sessions_app.core.base import database, journal_keys
from sessions_app.core.base.byte_budget import ANSWERS
from sessions_app.core.base.caller import Sight
from sessions_app.core.base.events import STREAM_KINDS, Kind
from sessions_app.core.log import feed
from sessions_app.core.log.feed import TenantFollower
from sessions_app.core.log.journal.types import Event
from sessions_app.core.tenancy import agent_listings
from sessions_app.core.workspaces.watches import Watches

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection
    from sessions_app.ahp.version import Channel, Version

log = logging.getLogger(__name__)

RECONNECT = 1012
"""Closing code for connections whose state no action can correct: their clients reconnect and get snapshots."""


def root_key(tenant: int) -> int:
    """The journal's key for events of the tenant's root."""
    return journal_keys.of_tenant(tenant)


def agents_redefined(event: Event) -> frozenset[str]:
    """Agents whose sessions have other states after this event, in a way that no action can express (R70)."""
    if event.kind != Kind.AGENTS_CHANGED:
        return frozenset()
    return frozenset(exact_json.loads(event.data)["changed"])


class Switchboard:
    """Belongs to one event loop; exists while its tenant has connections there."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self._connections: dict[str, Connection] = {}
        self._subscribers: dict[int, dict[Version, dict[Channel, dict[Connection, None]]]] = {}
        self._agents: dict[int, str] = {}
        self._follower = TenantFollower(self._take, self._lost, self._fail)
        self.failed = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._notifications = Notifications(tenant, self._versions, self._notify, self._fail)
        self._counts: dict[Sight, SessionCount] = {}
        self.watches = Watches(tenant, self._fail)
        self._stack = AsyncExitStack()
        self.unsent = Unsent(self._reserve, partial(ANSWERS.give_back, tenant), self._make_room)

    async def open(self) -> None:
        # Before a client reconnects: another process may have published other agents.
        await database.run_for(self.tenant, agent_listings.show, self.tenant)
        await self._stack.enter_async_context(feed.follow_tenant(self.tenant, self._follower))
        self._stack.callback(self._notifications.close)
        self._stack.callback(self.watches.close)

    async def close(self) -> None:
        await self._stack.aclose()

    # --- connections ---

    @property
    def position(self) -> int:
        """The number up to which events have been delivered."""
        return self._follower.position

    @property
    def connections(self) -> Sequence[Connection]:
        return list(self._connections.values())

    async def add(self, connection: Connection) -> None:
        self._connections[connection.id] = connection
        sight = connection.caller.sight
        if sight.is_whole:
            return
        count = self._counts.get(sight)
        if count is None:
            count = self._counts[sight] = SessionCount(sight)
        await count.ready(connection.caller)

    def remove(self, connection: Connection) -> None:
        self._connections.pop(connection.id, None)
        for channel in list(connection.subscriptions):
            self.unsubscribe(channel, connection)
        self.watches.end_of(connection)
        sight = connection.caller.sight
        if sight in self._counts and not any(each.caller.sight == sight for each in self._connections.values()):
            del self._counts[sight]

    def subscribe(self, channel: Channel, connection: Connection) -> bool:
        """Deliver the channel's envelopes to the connection from now on. False if it was subscribed already."""
        channels = self._subscribers.setdefault(channel.key, {}).setdefault(connection.version, {})
        subscribers = channels.setdefault(channel, {})
        if connection in subscribers:
            return False
        subscribers[connection] = None
        self._agents[channel.key] = channel.agent
        connection.subscriptions[channel] = None
        if channel.watch:
            self.watches.use(channel.watch)
        return True

    def unsubscribe(self, channel: Channel, connection: Connection) -> None:
        connection.subscriptions.pop(channel, None)
        versions = self._subscribers.get(channel.key, {})
        channels = versions.get(connection.version, {})
        subscribers = channels.get(channel)
        if subscribers is None:
            return
        subscribers.pop(connection, None)
        if not subscribers:
            del channels[channel]
        if not channels:
            del versions[connection.version]
        if not versions:
            del self._subscribers[channel.key], self._agents[channel.key]
        if channel.watch:
            self.watches.end(channel.watch)

    def _subscriptions(self, key: int) -> list[tuple[Channel, Connection]]:
        """All subscriptions to channels of this session or root."""
        return [
            (channel, connection)
            for channels in self._subscribers.get(key, {}).values()
            for channel, subscribers in channels.items()
            for connection in subscribers
        ]

    def _versions(self) -> set[Version]:
        return {connection.version for connection in self._connections.values() if connection.is_open}

    # --- memory for frames that are not sent yet ---

    def _reserve(self, size: int, only: bool) -> bool:
        return ANSWERS.take(self.tenant, size, alone=only)

    def _make_room(self) -> None:
        """Close the connection that has the most unsent: its client is the slowest reader."""
        slowest = max(self._connections.values(), key=lambda each: each.outbox.size, default=None)
        if slowest is not None and slowest.outbox.size:
            slowest.outbox.overflow()

    # --- events, in the tenant's order ---

    async def reached(self, seq: int) -> None:
        """Wait until all events up to this number, which was read from the journal, have been delivered here."""
        if self._follower.position >= seq:
            return
        self._follower.expect(seq)
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (seq, next(self._order), reached))
        await reached

    def _take(self, events: Sequence[Event], upto: int) -> None:
        for event in events:
            try:
                self._deliver(event)
            except Exception:
                # An event that cannot be encoded must not stop the delivery of others.
                log.exception("event_not_delivered seq=%s tenant=%s kind=%s", event.seq, self.tenant, event.kind)
                self._close_subscribers(event.session)
        while self._waiting and self._waiting[0][0] <= upto:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _deliver(self, event: Event) -> None:
        if event.kind == Kind.FILES_CHANGED:
            self.watches.take(event)
            return
        if event.session == root_key(self.tenant):
            self._deliver_tenants_own(event)
            return
        sender = self._sender(event)
        for version, channels in self._subscribers.get(event.session, {}).items():
            if version.projection.breaks(event):
                for connection in {each for connections in channels.values() for each in connections}:
                    connection.close(RECONNECT)
                continue
            for channel, envelope in version.projection.envelopes(event, channels.keys()):
                text = _action(envelope)
                for connection in channels[channel]:
                    _send(connection, event.seq, channel, text)
                    if connection is sender:
                        sender = None
        if sender is not None and (echo := sender.version.projection.echo(event)) is not None:
            _send(sender, event.seq, None, _action(echo))
        if event.kind == Kind.TERMINAL_CLAIMED:
            self._unsubscribe_blind(event)
        if event.kind in (Kind.SESSION_DELETED, Kind.TERMINAL_DISPOSED):
            for channel, connection in self._subscriptions(event.session):
                self.unsubscribe(channel, connection)
        if self._counts and event.kind in (Kind.SESSION_CREATED, Kind.SESSION_DELETED):
            self._count(event)
        self._notifications.take(event)

    def _sender(self, event: Event) -> Connection | None:
        """The connection here that dispatched the action, in versions in which it gets the echo also without a subscription."""
        if event.kind in STREAM_KINDS or '"connection"' not in event.data:
            return None
        origin = exact_json.loads(event.data).get("origin")
        return self._connections.get(origin.get("connection", "")) if isinstance(origin, dict) else None

    def _deliver_tenants_own(self, event: Event) -> None:
        """Events of the root, and refusals, each of which is addressed to one connection."""
        if event.kind == Kind.DISPATCH_REFUSED:
            connection = self._connections.get(exact_json.loads(event.data)["connection"])
            if connection is not None and (envelope := connection.version.projection.rejection(event)) is not None:
                _send(connection, event.seq, None, _action(envelope))
            return
        self._close_redefined(agents_redefined(event))
        is_count = event.kind == Kind.ACTIVE_SESSIONS_CHANGED
        counts = {sight: count.take_change() for sight, count in self._counts.items()} if is_count else {}
        texts: dict[tuple[Version, Sight], str | None] = {}
        for channel, connection in self._subscriptions(event.session):
            version, sight = connection.version, connection.caller.sight
            if (version, sight) not in texts:
                envelope = version.projection.root_envelope(event, sight, counts.get(sight))
                texts[version, sight] = None if envelope is None else _action(envelope)
            if (text := texts[version, sight]) is not None:
                _send(connection, event.seq, channel, text)

    def _unsubscribe_blind(self, event: Event) -> None:
        """End the subscriptions of limited callers to a terminal that was given to another session, which they do not see."""
        payload = exact_json.loads(event.data)
        for channel, connection in self._subscriptions(event.session):
            # Events of the previous release have no session.
            if not connection.caller.sight.may_see_terminal(payload["agent"], payload["line"], payload.get("session")):
                self.unsubscribe(channel, connection)

    def _count(self, event: Event) -> None:
        agent = exact_json.loads(event.data).get("agent")
        if agent is None:
            # An event of the previous release, without the agent: limited callers reconnect and count from scratch.
            self._counts.clear()
            for connection in self.connections:
                if not connection.caller.sight.is_whole:
                    connection.close(RECONNECT)
            return
        for count in self._counts.values():
            count.take(event.seq, agent, event.session, 1 if event.kind == Kind.SESSION_CREATED else -1)

    def _close_redefined(self, agents: frozenset[str]) -> None:
        """Sessions of these agents have changed states: their subscribers need new snapshots."""
        if agents:
            for key in [key for key, agent in self._agents.items() if agent in agents]:
                self._close_subscribers(key)
            self._notifications.redefined(agents)

    def _notify(self, version: Version, text: str, agent: str, session: int) -> None:
        for connection in self._notified(version):
            if connection.caller.may_see(agent, session):
                connection.outbox.put_notice(text)

    def _notified(self, version: Version) -> Iterator[Connection]:
        for connection in self._connections.values():
            if connection.is_open and connection.version is version and version.summary_notifications.concerns(connection):
                yield connection

    def _close_subscribers(self, key: int) -> None:
        for _, connection in self._subscriptions(key):
            connection.close(RECONNECT)

    def _fail(self) -> None:
        """The feed or the notifications of this switchboard have failed. Its connections reconnect, to a new switchboard."""
        self.failed = True
        log.error("switchboard_failed tenant=%s; its connections are closed", self.tenant)
        for connection in self.connections:
            connection.close(RECONNECT)

    def _lost(self) -> None:
        log.warning("events_lost tenant=%s: the database crashed; connections are closed and get snapshots", self.tenant)
        self._counts.clear()
        for connection in self.connections:
            connection.close(RECONNECT)


def _action(envelope: str) -> str:
    return jsonrpc.notification_of("action", envelope)


def _send(connection: Connection, seq: int, channel: Channel | None, text: str) -> None:
    """A connection that is being closed gets no more actions; its client gets them when it reconnects."""
    if connection.close_code is None:
        connection.outbox.put_action(seq, channel, text)


class _Switchboards:
    """The switchboards of one event loop."""

    def __init__(self) -> None:
        self._boards: dict[int, tuple[Switchboard, asyncio.Task[None]]] = {}
        self._users: dict[Switchboard, int] = {}

    @asynccontextmanager
    async def of(self, tenant: int) -> AsyncIterator[Switchboard]:
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


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Switchboards] = WeakKeyDictionary()
_of_loops_lock = threading.Lock()


@asynccontextmanager
async def board_of(tenant: int) -> AsyncIterator[Switchboard]:
    """The tenant's switchboard in the running event loop, open within the block."""
    loop = asyncio.get_running_loop()
    with _of_loops_lock:
        boards = _of_loops.setdefault(loop, _Switchboards())
    async with boards.of(tenant) as board, presence.watched(board):
        yield board
