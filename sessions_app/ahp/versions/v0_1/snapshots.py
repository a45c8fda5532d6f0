"""States as they are at a number, read for clients (R61, R65). Synchronous: whoever calls is in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection.agents import agent_info
from sessions_app.ahp.versions.v0_1.projection.sessions import state_of
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.records import addresses
from sessions_app.core.sessions import state
from sessions_app.core.tenancy import agent_listings
from sessions_app.models import Session

SHOWN_TURNS = 200


@dataclass(frozen=True, slots=True)
class Target:
    """A resource that exists: its key in the journal, and the session it is; None: the root."""

    key: int
    uri: str
    session: Session | None = field(default=None, repr=False)

    @property
    def agent(self) -> str:
        """The session's agent; "" for the root."""
        return "" if self.session is None else self.session.agent_name


def find(caller: Caller, uri: str) -> Target:
    """SessionNotFound if there is no such resource."""
    found, _missing = find_all(caller, [uri])
    if not found:
        raise SessionNotFound
    return found[0]


def find_all(caller: Caller, uris: Sequence[str]) -> tuple[list[Target], list[str]]:
    """Each URI once, in order, those that do not exist apart; one query for all."""
    distinct = list(dict.fromkeys(uris))
    sessions = addresses.find_all(caller, [uri for uri in distinct if uri != ROOT])
    targets = {uri: Target(session.pk, uri, session) for uri, session in sessions.items()}
    targets[ROOT] = Target(-caller.tenant, ROOT)
    return [targets[uri] for uri in distinct if uri in targets], [uri for uri in distinct if uri not in targets]


def read(caller: Caller, target: Target) -> dict[str, Any]:
    """A snapshot. SessionNotFound if the session has gone since."""
    if target.session is None:
        seq, sessions, cards = agent_listings.root(caller)
        shown: dict[str, Any] = {"agents": [agent_info(card) for card in cards], "activeSessions": sessions}
    else:
        seq, shown = _session(caller, target.session)
    return {"resource": target.uri, "state": shown, "fromSeq": seq}


def _session(caller: Caller, session: Session) -> tuple[int, dict[str, Any]]:
    found = state.read(caller, session, SHOWN_TURNS)
    return found.seq, state_of(found, found.agent)


def read_all(caller: Caller, targets: Sequence[Target]) -> tuple[list[str], dict[int, int]]:
    """Snapshots, as JSON, of those that are still there, and for each key its number."""
    shots: list[str] = []
    floors: dict[int, int] = {}
    for target in targets:
        try:
            shot = read(caller, target)
        except SessionNotFound:
            continue
        shots.append(jsonrpc.encode(shot))
        floors[target.key] = shot["fromSeq"]
    return shots, floors
