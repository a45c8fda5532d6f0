"""Channels of AHP 0.1, the root and sessions, and their states (R61, R65). Synchronous: called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel, Resource, Snapshot
from sessions_app.ahp.versions.v0_1.projection.agent_settings import agent_info
from sessions_app.ahp.versions.v0_1.projection.sessions import state_of
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base.caller import Caller
from sessions_app.core.records import addresses
from sessions_app.core.sessions import state
from sessions_app.core.tenancy import agent_listings

SHOWN_TURNS = 200


def find_all(caller: Caller, uris: Sequence[str]) -> tuple[list[Resource], list[str]]:
    """One query for all."""
    distinct = list(dict.fromkeys(uris))
    sessions = addresses.find_all(caller, [uri for uri in distinct if uri != ROOT])
    found = {uri: Resource(Channel(session.pk, uri, "session", session.agent_name), session) for uri, session in sessions.items()}
    found[ROOT] = Resource(Channel(-caller.tenant, ROOT, "root"))
    return [found[uri] for uri in distinct if uri in found], [uri for uri in distinct if uri not in found]


def read(caller: Caller, resource: Resource) -> Snapshot:
    seq, shown = read_state(caller, resource)
    return Snapshot(seq, jsonrpc.encode({"resource": resource.channel.uri, "state": shown, "fromSeq": seq}))


def read_state(caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
    if resource.session is None:
        seq, sessions, cards = agent_listings.root(caller)
        return seq, {"agents": [agent_info(card) for card in cards], "activeSessions": sessions}
    found = state.read(caller, resource.session, SHOWN_TURNS)
    return found.seq, state_of(found, found.agent)
