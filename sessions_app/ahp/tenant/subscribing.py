"""Channels for a connection's handshake and subscriptions: finding them, reading snapshots, replaying missed events.

Commands of all versions use these functions; what is sent comes from the connection's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.conf import settings

from agents_app import exact_json
from sessions_app.ahp.tenant.switchboard import agents_redefined, root_key
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel, Resource, Snapshot, Version
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import PositionPruned, SessionNotFound, TerminalNotFound
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import agent_listings, api_audit
from sessions_app.core.tenancy.audit import Action

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_MAX_EVENTS = 10_000
_MAX_BYTES = 64 * 1024 * 1024
"""Of the events of a replay. A client that missed more gets snapshots, which are smaller."""
_READ_AT_ONCE = 8
_MAX_SNAPSHOTS = 64 * 1024 * 1024
# No database takes a larger one in a query.
_LARGEST_NUMBER = 2**63 - 1
"""Characters of all snapshots in one answer; a single one may have more."""


@dataclass(frozen=True, slots=True)
class Replay:
    """``envelopes``: JSON texts. ``seq``: the position that they lead to."""

    envelopes: list[str] = field(repr=False)
    seq: int


# --- finding and subscribing ---


async def find(connection: Connection, uri: str) -> Resource:
    """SessionNotFound if there is nothing with this URI."""
    found, _missing = await connection.in_database(connection.version.snapshots.find_all, connection.caller, [uri])
    if not found:
        raise SessionNotFound
    return found[0]


async def find_all(connection: Connection, uris: Sequence[str], member: str) -> tuple[list[Resource], list[str]]:
    """The resources of a handshake, and the URIs that do not exist. ``member``: of the params, for errors."""
    most = settings.AGENTHOST_AHP_SUBSCRIPTIONS
    if len(uris) > most:
        raise jsonrpc.invalid_params(f"params.{member}: {len(uris):,} URIs; the limit is {most:,}")
    return await connection.in_database(connection.version.snapshots.find_all, connection.caller, uris)


def require_room_for(connection: Connection, channel: Channel) -> None:
    most = settings.AGENTHOST_AHP_SUBSCRIPTIONS
    if channel not in connection.subscriptions and len(connection.subscriptions) >= most:
        raise jsonrpc.invalid_params(f"params.resource: this connection has {most:,} subscriptions, which is the limit")


@contextmanager
def subscribed(connection: Connection, resources: Sequence[Resource]) -> Iterator[frozenset[Channel]]:
    """Subscribe before reading snapshots, so that later events are delayed and not lost. Undone if the block fails.

    Yields the channels to which the connection was subscribed before.
    """
    channels = [resource.channel for resource in resources]
    new = [channel for channel in channels if connection.switchboard.subscribe(channel, connection)]
    try:
        yield frozenset(channels).difference(new)
    except BaseException:
        for channel in new:
            connection.switchboard.unsubscribe(channel, connection)
        raise


def unsubscribe_deleted(connection: Connection, resources: Sequence[Resource], positions: Mapping[Channel, int]) -> None:
    """End the subscriptions of sessions and terminals that were deleted before their snapshot was read."""
    for resource in resources:
        if resource.channel not in positions:
            connection.switchboard.unsubscribe(resource.channel, connection)


# --- snapshots ---


async def snapshots(connection: Connection, resources: Sequence[Resource]) -> tuple[str, dict[Channel, int]]:
    """Snapshots as a JSON list, and the position of each; deleted sessions are left out.

    Read a few at a time: the work ends with the connection, and others of its tenant get threads in between.
    """
    texts: list[str] = []
    positions: dict[Channel, int] = {}
    size = 0
    for start in range(0, len(resources), _READ_AT_ONCE):
        some = resources[start : start + _READ_AT_ONCE]
        found = await connection.in_database(read_all, connection.version, connection.caller, some)
        size += sum(len(snapshot.text) for snapshot in found.values())
        if texts and size > _MAX_SNAPSHOTS:
            raise jsonrpc.invalid_params(
                f"params: the snapshots of these resources have more than {_MAX_SNAPSHOTS:,} characters; subscribe one by one"
            )
        for channel, snapshot in found.items():
            texts.append(snapshot.text)
            positions[channel] = snapshot.seq
    return f"[{','.join(texts)}]", positions


def read_all(version: Version, caller: Caller, resources: Sequence[Resource]) -> dict[Channel, Snapshot]:
    found: dict[Channel, Snapshot] = {}
    for resource in resources:
        try:
            found[resource.channel] = version.snapshots.read(caller, resource)
        except (SessionNotFound, TerminalNotFound):
            continue
    return found


# --- replay ---


def replay(version: Version, caller: Caller, client: str, resources: Sequence[Resource], last_seen: int) -> Replay | None:
    """Every envelope since ``last_seen``; None if they cannot be replayed."""
    if not 0 <= last_seen <= _LARGEST_NUMBER:
        return None
    root = root_key(caller.tenant)
    channels: dict[int, list[Channel]] = {}
    for resource in resources:
        channels.setdefault(resource.channel.key, []).append(resource.channel)
    try:
        read, sessions = agent_listings.events_after(caller, {root, *channels}, last_seen, _MAX_EVENTS, _MAX_BYTES)
    except PositionPruned:
        return None
    if read.more or last_seen > read.counter:
        return None
    if addresses.any_created_after([key for key in channels if key != root], last_seen):
        return None
    redefined = frozenset().union(*(agents_redefined(event) for event in read.events if event.session == root))
    if any(resource.channel.agent in redefined for resource in resources):
        return None
    if any(event.session != root and version.projection.breaks(event) for event in read.events):
        return None
    for resource in resources:
        if resource.session is not None:
            api_audit.read(caller, Action.TRANSCRIPT_READ, f"session {resource.session.public_id}")
        elif resource.terminal is not None:
            api_audit.read(caller, Action.TERMINAL_READ, f"terminal {resource.terminal.public_id}")
    last_count = max((event.seq for event in read.events if event.kind == Kind.ACTIVE_SESSIONS_CHANGED), default=-1)
    envelopes: list[str] = []
    for event in read.events:
        if event.session != root:
            envelopes += [text for _, text in version.projection.envelopes(event, channels[event.session])]
        elif event.kind == Kind.DISPATCH_REFUSED:
            if _is_refusal_for(event, caller, client) and (text := version.projection.rejection(event)) is not None:
                envelopes.append(text)
        elif root in channels:
            # A limited caller is sent its own number of sessions only once, as of the end of the replay.
            count = sessions if event.seq == last_count else None
            if (text := version.projection.root_envelope(event, caller.sight, count)) is not None:
                envelopes.append(text)
    return Replay(envelopes, read.counter)


def _is_refusal_for(event: Event, caller: Caller, client: str) -> bool:
    """Clients choose their ids, so an id alone could show a limited caller what another one has sent."""
    payload = exact_json.loads(event.data)
    if payload["origin"]["client"] != client:
        return False
    if caller.session is not None and payload.get("session") != caller.session:
        return False
    # Events of the previous release do not have the key's line.
    line = payload.get("line")
    return caller.key_agents is None if line is None else bool(line == caller.line)
