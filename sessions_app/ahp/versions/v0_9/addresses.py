"""Finds sessions and their chats by all their URIs (V43-V45). Synchronous: called in threads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from sessions_app.ahp.versions.v0_9.spelling import Spelled, chat_uri, session_uri, spelled
from sessions_app.core.base import loop_calls
from sessions_app.core.base.caller import Caller
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import access
from sessions_app.models import Session

__all__ = ["Found", "chat_uri", "find", "find_all", "session_uri"]


Kind = Literal["session", "chat"]


@dataclass(frozen=True, slots=True)
class Found:
    """``uri``: the session's in the core, and ``family`` of the version in which a client chose it ("": none did)."""

    kind: Kind
    session: Session = field(repr=False)
    uri: str
    family: str

    def canonical(self, *, by_provider: bool = False) -> str:
        """The canonical URI of the session."""
        return session_uri(self.uri, self.family, self.session.agent_name, self.session.public_id, by_provider=by_provider)


def find(caller: Caller, uri: str) -> Found | None:
    if loop_calls.is_optimistic() and (known := _known.get((caller.tenant, uri))) is not None:
        kind, public_id, chosen, family = known
        session = access.remembered(caller, public_id)
        if session is not None:
            return Found(kind, session, chosen, family)
    found = find_all(caller, [uri]).get(uri)
    if found is not None:
        _remember(caller, uri, found)
    return found


_MOST_KNOWN = 10_000
_known: dict[tuple[int, str], tuple[Kind, str, str, str]] = {}
"""Kind, public id, URI in the core and family, by tenant and spelling, for optimistic calls.

A spelling changes its session only when that is deleted, which the call finds out.
"""


def _remember(caller: Caller, uri: str, found: Found) -> None:
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[caller.tenant, uri] = found.kind, found.session.public_id, found.uri, found.family
    access.remember(found.session)


def find_all(caller: Caller, uris: Collection[str]) -> dict[str, Found]:
    """What exists for the caller, by the URIs as they were spelled."""
    wanted = {uri: spelled(uri) for uri in uris}
    exact = {each.session for each in wanted.values() if each.session} | set(wanted)
    named, chats = addresses.find_named(caller, exact, {each.public_id for each in wanted.values() if each.public_id})
    by_uri = {each.uri: each for each in named}
    by_id = {each.session.public_id: each for each in named}
    by_row = {each.session.pk: each for each in named}
    found = {}
    for uri, each in wanted.items():
        row = chats.get(uri)
        if row is not None and (of_chat := by_row.get(row)) is not None:
            found[uri] = Found("chat", of_chat.session, of_chat.uri, of_chat.family)
        # The URI that was chosen for a session comes before what looks like the id of another one.
        elif (session := by_uri.get(each.session) or _by_id(each, by_id)) is not None:
            found[uri] = Found(each.kind, session.session, session.uri, session.family)
    return found


def _by_id(wanted: Spelled, by_id: dict[str, addresses.Named]) -> addresses.Named | None:
    found = by_id.get(wanted.public_id)
    if found is None or (wanted.agent and wanted.agent != found.session.agent_name):
        return None
    return found
