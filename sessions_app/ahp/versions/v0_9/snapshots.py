"""Channels of AHP 0.9 and 1.0, the root, sessions, their chats, terminals, and their states. Synchronous: called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.version import Channel, Resource, Snapshot
from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import chats, sessions, terminals
from sessions_app.ahp.versions.v0_9.projection.agents import agent_info
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.core.base import journal_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.sessions import state
from sessions_app.core.terminals import access, listing
from sessions_app.core.terminals import state as terminal_states

_ALL_TURNS = 1_000_000


@dataclass(frozen=True, slots=True)
class Snapshots:
    face: Face

    def find_all(self, caller: Caller, uris: Sequence[str]) -> tuple[list[Resource], list[str]]:
        """Each spelling of a URI is a channel of its own."""
        distinct = list(dict.fromkeys(uris))
        found = {ROOT: Resource(Channel(journal_keys.of_tenant(caller.tenant), ROOT, "root"))}
        for uri, each in addresses.find_all(caller, [uri for uri in distinct if uri != ROOT]).items():
            row, canonical = each.session, each.canonical(by_provider=self.face.by_provider)
            found[uri] = Resource(Channel(row.pk, uri, each.kind, row.agent_name, canonical), row)
        # After those that there are, those that old results name.
        for find in (access.find_all, access.find_kept):
            for uri, terminal in find(caller, [uri for uri in distinct if uri not in found]).items():
                found[uri] = Resource(Channel(journal_keys.of_terminal(terminal.pk), uri, "terminal"), terminal=terminal)
        return [found[uri] for uri in distinct if uri in found], [uri for uri in distinct if uri not in found]

    def read(self, caller: Caller, resource: Resource) -> Snapshot:
        seq, shown = self.read_state(caller, resource)
        return Snapshot(seq, jsonrpc.encode({"resource": resource.channel.uri, "state": shown, "fromSeq": seq}))

    def read_state(self, caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
        if resource.terminal is not None:
            view = terminal_states.read(caller, resource.terminal)
            return view.seq, terminals.state_of(view, self.face)
        if resource.session is None:
            seq, count, cards, entries = listing.root(caller)
            shown: dict[str, Any] = {"agents": [agent_info(card) for card in cards], "activeSessions": count}
            return seq, {**shown, "terminals": [terminals.info_of(entry, self.face) for entry in entries]}
        is_chat = resource.channel.kind == "chat"
        found = state.read(caller, resource.session, _ALL_TURNS if is_chat else 0)
        if is_chat:
            return found.seq, chats.state_of(found, sessions.uri_of(found.summary, self.face), self.face)
        return found.seq, sessions.state_of(found, found.agent, self.face)
