"""How a connection is set up: anew, or where an earlier one ended (R40-R52, R280-R288)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sessions_app.ahp import attendance, jsonrpc, negotiation, snapshots
from sessions_app.ahp.projection.v0_1 import actions
from sessions_app.ahp.registry import AsOf
from sessions_app.ahp.snapshots import Target
from sessions_app.ahp.wire.v0_1 import errors as wire_errors
from sessions_app.core import addresses, journal
from sessions_app.core.caller import Caller
from sessions_app.core.errors import PositionPruned
from sessions_app.core.journal.types import Event

if TYPE_CHECKING:
    from sessions_app.ahp.connection import Connection

VERSION = "0.1"
"""The line of versions that these handlers serve."""
_PROTOCOL_ERROR = 1002
_LONGEST_REPLAY = 10_000
"""Events; whoever missed more gets snapshots, which are smaller."""
_LONGEST_CLIENT_ID = 256


async def ping(_connection: Connection, _params: Any) -> None:
    return None


async def initialize(connection: Connection, params: Any) -> AsOf:
    version = negotiation.choose(params["protocolVersions"])
    if version is None:
        connection.close_after_answer(_PROTOCOL_ERROR)
        raise wire_errors.unsupported_protocol_version(negotiation.SUPPORTED)
    client = _client_id(params)
    targets, _missing = await connection.in_database(
        snapshots.find_all, connection.caller, params.get("initialSubscriptions", [])
    )
    await attendance.came(connection, client, resumed=False)
    with _subscribed(connection, targets):
        result, floors = await connection.in_database(_state_now, connection.caller, version, targets)
    connection.locale = params.get("locale")
    connection.version = VERSION
    _drop_gone(connection, targets, floors)
    return AsOf(result, floors)


def _state_now(caller: Caller, version: str, targets: Sequence[Target]) -> tuple[str, dict[int, int]]:
    counter, _sessions = journal.standing(caller.tenant)
    shots, floors = snapshots.read_all(caller, targets)
    # What the client has by this answer goes up to the lowest of them.
    seq = min(floors.values(), default=counter)
    return jsonrpc.encode({"protocolVersion": version, "serverSeq": seq, "snapshots": shots}), floors


async def reconnect(connection: Connection, params: Any) -> AsOf:
    client = _client_id(params)
    uris = params["subscriptions"]
    targets, missing = await connection.in_database(snapshots.find_all, connection.caller, uris)
    await attendance.came(connection, client, resumed=True)
    last_seen = params["lastSeenServerSeq"]
    with _subscribed(connection, targets):
        answer = await connection.in_database(_missed, connection.caller, client, targets, missing, last_seen)
        if answer is None:
            answer = await connection.in_database(_snapshots, connection.caller, targets)
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
        read = journal.read_several(caller.tenant, wanted, last_seen, _LONGEST_REPLAY)
    except PositionPruned:
        return None
    made_anew = any(target.session is not None and addresses.made_after(target.session, last_seen) for target in targets)
    redefined = frozenset().union(*(actions.agents_redefined(event) for event in read.events if event.session == own))
    if read.more or last_seen > read.counter or made_anew or any(target.agent in redefined for target in targets):
        return None
    uris = {target.key: target.uri for target in targets}
    envelopes = [envelope for event in read.events if (envelope := _envelope(event, uris, caller, client)) is not None]
    result = f'{{"type":"replay","actions":[{",".join(envelopes)}],"missing":{jsonrpc.encode(list(missing))}}}'
    return result, dict.fromkeys(uris, read.counter)


def _envelope(event: Event, uris: dict[int, str], caller: Caller, client: str) -> str | None:
    own = -caller.tenant
    if event.session != own:
        return actions.envelope_of(event, uris[event.session])
    rejection = actions.rejection_of(event)
    if rejection is not None:
        return rejection.envelope if rejection.client == client else None
    return actions.root_envelope_of(event, caller.key_agents) if own in uris else None


def _snapshots(caller: Caller, targets: Sequence[Target]) -> tuple[str, dict[int, int]]:
    shots, floors = snapshots.read_all(caller, targets)
    return jsonrpc.encode({"type": "snapshot", "snapshots": shots}), floors


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
