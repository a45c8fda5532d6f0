"""Channels of AHP 0.1, the root, sessions and terminals, and their states (R61, R65). Synchronous: called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel, Resource, Snapshot
from sessions_app.ahp.versions.v0_1.projection import terminals
from sessions_app.ahp.versions.v0_1.projection.agent_settings import agent_info
from sessions_app.ahp.versions.v0_1.projection.sessions import state_of
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.records import addresses
from sessions_app.core.sessions import state
from sessions_app.core.terminals import access, listing
from sessions_app.core.terminals import state as terminal_states

SHOWN_TURNS = 200


def find_all(caller: Caller, uris: Sequence[str]) -> tuple[list[Resource], list[str]]:
    """One query for all sessions, and one for what is none of them."""
    distinct = list(dict.fromkeys(uris))
    sessions = addresses.find_all(caller, [uri for uri in distinct if uri != ROOT])
    found = {uri: Resource(Channel(session.pk, uri, "session", session.agent_name), session) for uri, session in sessions.items()}
    found[ROOT] = Resource(Channel(journal_keys.of_tenant(caller.tenant), ROOT, "root"))
    for uri, row in access.find_all(caller, [uri for uri in distinct if uri not in found]).items():
        found[uri] = Resource(Channel(journal_keys.of_terminal(row.pk), uri, "terminal"), terminal=row)
    return [found[uri] for uri in distinct if uri in found], [uri for uri in distinct if uri not in found]


def read(caller: Caller, resource: Resource) -> Snapshot:
    seq, shown = read_state(caller, resource)
    return Snapshot(seq, jsonrpc.encode({"resource": resource.channel.uri, "state": shown, "fromSeq": seq}))


def read_state(caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
    if resource.terminal is not None:
        view = terminal_states.read(caller, resource.terminal)
        return view.seq, terminals.state_of(view)
    if resource.session is None:
        seq, sessions, cards, entries = listing.root(caller)
        return seq, {
            "agents": [agent_info(card) for card in cards],
            "activeSessions": sessions,
            "terminals": [terminals.info_of(entry) for entry in entries],
        }
    found = state.read(caller, resource.session, SHOWN_TURNS)
    return found.seq, state_of(found, found.agent)
