"""How a connection is set up: anew, or where an earlier one ended (R40-R52, R280-R288)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings

from sessions_app.ahp.tenant import presence
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import AsOf
from sessions_app.ahp.versions.v0_1 import negotiation, snapshots
from sessions_app.ahp.versions.v0_1.projection import actions
from sessions_app.ahp.versions.v0_1.snapshots import Target
from sessions_app.ahp.versions.v0_1.wire import errors as wire_errors
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.base.events import Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import Event
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import agent_listings

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

VERSION = "0.1"
"""The line of versions that these handlers serve."""
_PROTOCOL_ERROR = 1002
_LONGEST_REPLAY = 10_000
_LARGEST_REPLAY = 64 * 1024 * 1024
"""Events, and bytes of them; whoever missed more gets snapshots, which are smaller."""
_LONGEST_CLIENT_ID = 256
_MOST_VERSIONS = 100
_READ_AT_ONCE = 8
_MOST_SNAPSHOTS = 64 * 1024 * 1024
"""Characters of all snapshots in one answer; a single one may have more."""


async def ping(_connection: Connection, _params: Any) -> None:
    return None


async def initialize(connection: Connection, params: Any) -> AsOf:
    if len(params["protocolVersions"]) > _MOST_VERSIONS:
        raise jsonrpc.invalid_params(f"params.protocolVersions has at most {_MOST_VERSIONS} versions")
    version = negotiation.choose(params["protocolVersions"])
    if version is None:
        connection.close_after_answer(_PROTOCOL_ERROR)
        raise wire_errors.unsupported_protocol_version(negotiation.SUPPORTED)
    client = _client_id(params)
    targets, _missing = await _found(connection, params, "initialSubscriptions")
    await presence.came(connection, client, resumed=False)
    with _subscribed(connection, targets):
        shots, floors = await _snapshots(connection, targets)
        if not floors:
            counter, _sessions = await connection.in_database(journal.standing, connection.caller.tenant)
    # What the client has by this answer goes up to the lowest of them.
    seq = min(floors.values()) if floors else counter
    result = f'{{"protocolVersion":{jsonrpc.encode(version)},"serverSeq":{seq},"snapshots":{shots}}}'
    connection.locale = params.get("locale")
    connection.version = VERSION
    _drop_gone(connection, targets, floors)
    return AsOf(result, floors)


async def reconnect(connection: Connection, params: Any) -> AsOf:
    client = _client_id(params)
    targets, missing = await _found(connection, params, "subscriptions")
    await presence.came(connection, client, resumed=True)
    last_seen = params["lastSeenServerSeq"]
    with _subscribed(connection, targets):
        answer = await connection.in_database(_missed, connection.caller, client, targets, missing, last_seen)
        if answer is None:
            shots, floors = await _snapshots(connection, targets)
            answer = f'{{"type":"snapshot","snapshots":{shots}}}', floors
    result, floors = answer
    connection.version = VERSION
    _drop_gone(connection, targets, floors)
    return AsOf(result, floors)


def _missed(
    caller: Caller, client: str, targets: Sequence[Target], missing: Sequence[str], last_seen: int
) -> tuple[str, dict[int, int]] | None:
    """Every envelope since then; None if they cannot be replayed."""
    if last_seen < 0:
        return None
    own = -caller.tenant
    wanted = {own, *(target.key for target in targets)}
    try:
        read, sessions = agent_listings.missed(caller, wanted, last_seen, _LONGEST_REPLAY, _LARGEST_REPLAY)
    except PositionPruned:
        return None
    made_anew = addresses.any_made_after([target.session for target in targets if target.session is not None], last_seen)
    redefined = frozenset().union(*(actions.agents_redefined(event) for event in read.events if event.session == own))
    if read.more or last_seen > read.counter or made_anew or any(target.agent in redefined for target in targets):
        return None
    uris = {target.key: target.uri for target in targets}
    counted = max((event.seq for event in read.events if event.kind == Kind.ACTIVE_SESSIONS_CHANGED), default=-1)
    envelopes = []
    for event in read.events:
        # A limited key is told its own count, once, as of the end of the replay.
        envelope = _envelope(event, uris, caller, client, sessions if event.seq == counted else None)
        if envelope is not None:
            envelopes.append(envelope)
    result = f'{{"type":"replay","actions":[{",".join(envelopes)}],"missing":{jsonrpc.encode(list(missing))}}}'
    return result, dict.fromkeys(uris, read.counter)


def _envelope(event: Event, uris: dict[int, str], caller: Caller, client: str, sessions: int | None) -> str | None:
    own = -caller.tenant
    if event.session != own:
        return actions.envelope_of(event, uris[event.session])
    rejection = actions.rejection_of(event)
    if rejection is not None:
        return rejection.envelope if rejection.client == client and _is_own(rejection, caller) else None
    return actions.root_envelope_of(event, caller.key_agents, sessions) if own in uris else None


def _is_own(rejection: actions.Rejection, caller: Caller) -> bool:
    """A client names itself, so its name alone would show a limited key what another key wrote."""
    return caller.key_agents is None if rejection.line is None else rejection.line == caller.line


async def _found(connection: Connection, params: Any, member: str) -> tuple[list[Target], list[str]]:
    """The resources that a client asks for, and the URIs of those that do not exist."""
    uris = params.get(member, [])
    most = settings.AGENTHOST_AHP_SUBSCRIPTIONS
    if len(uris) > most:
        raise jsonrpc.invalid_params(f"params.{member}: {len(uris):,} URIs; the limit is {most:,}")
    return await connection.in_database(snapshots.find_all, connection.caller, uris)


async def _snapshots(connection: Connection, targets: Sequence[Target]) -> tuple[str, dict[int, int]]:
    """The list of their snapshots as JSON, and for each key its number.

    Read a few at a time, so that the work ends with the connection and others of its tenant have their turn in between.
    """
    shots: list[str] = []
    floors: dict[int, int] = {}
    size = 0
    for start in range(0, len(targets), _READ_AT_ONCE):
        read, numbers = await connection.in_database(
            snapshots.read_all, connection.caller, targets[start : start + _READ_AT_ONCE]
        )
        size += sum(map(len, read))
        if shots and size > _MOST_SNAPSHOTS:
            raise jsonrpc.invalid_params(
                f"params: the snapshots of these resources have more than {_MOST_SNAPSHOTS:,} characters; subscribe one by one"
            )
        shots += read
        floors.update(numbers)
    return f"[{','.join(shots)}]", floors


def _client_id(params: Any) -> str:
    client: str = params["clientId"]
    if len(client) > _LONGEST_CLIENT_ID or not client.isprintable():
        raise jsonrpc.invalid_params(f"params.clientId has at most {_LONGEST_CLIENT_ID} printable characters")
    return client


@contextmanager
def _subscribed(connection: Connection, targets: Sequence[Target]) -> Iterator[None]:
    """Subscribed first, read then: what happens in between is held back, not lost. No longer, if the reading fails."""
    for target in targets:
        connection.switchboard.subscribe(target, connection)
    try:
        yield
    except BaseException:
        for target in targets:
            connection.switchboard.unsubscribe(target.key, connection)
        raise


def _drop_gone(connection: Connection, targets: Sequence[Target], floors: dict[int, int]) -> None:
    for target in targets:
        if target.key not in floors:
            connection.switchboard.unsubscribe(target.key, connection)
