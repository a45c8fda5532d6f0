"""The URIs of sessions.

An AHP client that creates a session chooses its URI, which is stored as a row. Any other session's URI consists of its
agent's name and its public id; so creating a session over AAP writes no row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from sessions_app.core.base import loop_calls, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import AddressTaken, SessionNotFound
from sessions_app.core.base.events import Kind
from sessions_app.core.tenancy import access
from sessions_app.models import LONGEST_URI, Address, Session

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*", re.ASCII)
_OTHER_SCHEME = "session"
_DEFAULT = re.compile(r"[^:]+:/(sess_[A-Za-z0-9]+)")


def default(agent: str, public_id: str) -> str:
    """The URI of a session for which no client chose one."""
    return f"{agent if _SCHEME.fullmatch(agent) else _OTHER_SCHEME}:/{quote(public_id, safe='')}"


def find(caller: Caller, uri: str) -> Session:
    """The session with exactly this URI; SessionNotFound if there is none for the caller."""
    if loop_calls.is_optimistic() and (public_id := _known.get((caller.tenant, uri))) is not None:
        known = access.remembered(caller, public_id)
        if known is not None:
            return known
    found = find_all(caller, [uri]).get(uri)
    if found is None:
        raise SessionNotFound
    return found


_MOST_KNOWN = 10_000
_known: dict[tuple[int, str], str] = {}
"""Public ids by tenant and URI, for optimistic calls. A URI changes its session only when that is deleted."""


def _remember(uri: str, session: Session) -> None:
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[session.tenant_id, uri] = session.public_id
    access.remember(session)


def forget_known() -> None:
    """For tests: clear the cache, as in a new process."""
    _known.clear()


def find_all(caller: Caller, uris: Collection[str]) -> dict[str, Session]:
    """The existing sessions with exactly these URIs, in one query."""
    usable = {uri for uri in uris if len(uri) <= LONGEST_URI and not UNSTORABLE.search(uri)}
    if not usable:
        return {}
    public_ids = [named[1] for uri in usable if (named := _DEFAULT.fullmatch(uri)) is not None]
    rows = access.sessions_by_uri(caller, sorted(usable), sorted(public_ids))
    by_uri = {chosen or default(session.agent_name, session.public_id): session for session, chosen in rows}
    found = {uri: session for uri, session in by_uri.items() if uri in usable}
    for uri, session in found.items():
        _remember(uri, session)
    return found


@dataclass(frozen=True, slots=True)
class Named:
    """A session with its URI. ``family``: of the version of AHP in which a client chose the URI; "" if none did."""

    session: Session
    uri: str
    family: str


def find_named(caller: Caller, uris: Collection[str], public_ids: Collection[str]) -> tuple[list[Named], dict[str, int]]:
    """The caller's sessions with one of these URIs or public ids; and of the URIs that name chats, the session's row."""
    usable = sorted({uri for uri in uris if len(uri) <= LONGEST_URI and not UNSTORABLE.search(uri)})
    ids = sorted({each for each in public_ids if not UNSTORABLE.search(each)})
    if not usable and not ids:
        return [], {}
    chats = dict(Address.objects.filter(tenant_id=caller.tenant, kind="chat", uri__in=usable).values_list("uri", "session_id"))
    rows = [found for found, _ in access.sessions_by_uri(caller, usable, ids)]
    known = {row.pk for row in rows}
    for row in dict.fromkeys(chats.values()):
        if row not in known:
            with suppress(SessionNotFound):
                rows.append(access.session_of_row(caller, row))
    chosen = families_of([row.pk for row in rows])
    named = [
        Named(row, *(chosen.get(row.pk) or (default(row.agent_name, row.public_id), "")))
        for row in {row.pk: row for row in rows}.values()
    ]
    return named, chats


def families_of(sessions: Collection[int]) -> dict[int, tuple[str, str]]:
    """The URIs that clients chose for these sessions, by row number, with the family of the version."""
    rows = Address.objects.filter(session_id__in=list(sessions), kind="session").values_list("session_id", "uri", "family")
    return {row: (uri, family) for row, uri, family in rows}


def name_chat(caller: Caller, session: Session, uri: str) -> bool:
    """Store a further URI of the session's chat; False if a client has named it already. AddressTaken if it is another's."""
    before = Address.objects.filter(session=session, kind="chat").values_list("uri", flat=True).first()
    if before is not None:
        return before == uri
    if is_taken(caller, uri):
        raise AddressTaken(uri)
    sql = "insert into sessions_app_address (tenant_id, uri, kind, session_id) values (%s, %s, 'chat', %s)"
    if raw_sql.row(f"{sql} on conflict do nothing returning id", (caller.tenant, uri, session.pk)) is None:
        raise AddressTaken(uri)
    return True


def of(session: Session) -> str:
    return of_all([session])[session.pk]


def of_all(sessions: Iterable[Session]) -> dict[int, str]:
    """The URIs of these sessions, by row number."""
    rows = list(sessions)
    chosen = dict(
        Address.objects.filter(session_id__in=[row.pk for row in rows], kind="session").values_list("session_id", "uri")
    )
    return {row.pk: chosen.get(row.pk) or default(row.agent_name, row.public_id) for row in rows}


def is_taken(caller: Caller, uri: str) -> bool:
    """Whether a session or chat has this URI, also one that the caller may not see: a URI is unique in its tenant."""
    if Address.objects.filter(tenant_id=caller.tenant, uri=uri).exists():
        return True
    try:
        find(caller.seeing_everything(), uri)
    except SessionNotFound:
        return False
    return True


def take(caller: Caller, session: Session, uri: str, family: str = "0.1") -> None:
    """Store the URI of a session that is being created; AddressTaken if another session has it.

    ``family``: of the version of AHP in which the client chose it.
    """
    try:
        if find(caller.seeing_everything(), uri).pk != session.pk:
            raise AddressTaken(uri)
    except SessionNotFound:
        pass
    sql = "insert into sessions_app_address (tenant_id, uri, kind, session_id, family) values (%s, %s, 'session', %s, %s)"
    if raw_sql.row(f"{sql} on conflict do nothing returning id", (caller.tenant, uri, session.pk, family)) is None:
        raise AddressTaken(uri)


def release(session: Session) -> None:
    """Delete the URI of a deleted session, so that it may be used again."""
    Address.objects.filter(session_id=session.pk).delete()


def any_created_after(keys: Collection[int], seq: int) -> bool:
    """Whether one of these sessions and terminals was created, or a terminal disposed of, after this event number.

    Then its URI meant another one before, or no event says how it ended. ``keys``: their numbers in the journal.
    """
    sql = "select count(*) from event where session_id {among} and seq > %s and kind in (%s, %s, %s)"
    kinds = Kind.SESSION_CREATED.value, Kind.TERMINAL_CREATED.value, Kind.TERMINAL_DISPOSED.value
    row = raw_sql.row(sql, (list(keys), seq, *kinds))
    return row is not None and row[0] > 0
