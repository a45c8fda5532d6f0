"""Access control for sessions: the only functions that look up a session for a caller.

A session of another tenant, a deleted one, one of an agent that the key may not see, and any but the one that a token is
limited to give the same SessionNotFound as an id that never existed.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from sessions_app.core.base import loop_calls, raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import Session

# Hand-written, because every request begins with one of these. Times are left out: no caller needs them here, and each
# database returns them in another form.
_FIELDS = (
    *("id", "tenant_id", "public_id", "agent_name", "tool_refs", "client_tools", "created_by_id", "title", "read"),
    *("archived", "approval"),
)
"""In the order of the model."""
_SESSION = f"select {', '.join(_FIELDS)} from sessions_app_session where tenant_id = %s and deleted_at is null"
_BY_PUBLIC_ID = f"{_SESSION} and public_id = %s"
_BY_ROW = f"{_SESSION} and id = %s"
_LOCKED = f"{_SESSION} and id = %s {{for_change}}"


def _read(caller: Caller, sql: str, *params: Any) -> Session:
    return _first_visible(caller, raw_sql.rows(sql, params))


def _first_visible(caller: Caller, rows: list[tuple[Any, ...]]) -> Session:
    found = _if_visible(caller, rows[0]) if rows else None
    if found is None:
        raise SessionNotFound
    return found


def _if_visible(caller: Caller, row: tuple[Any, ...], fields: tuple[str, ...] = _FIELDS) -> Session | None:
    """The row as a session, or None if the caller may not see it."""
    found = Session.from_db("default", fields, row)
    return found if caller.may_see(found.agent_name, found.pk) else None


def visible(caller: Caller) -> QuerySet[Session]:
    """All sessions that the caller may see."""
    rows = Session.objects.filter(tenant_id=caller.tenant)
    if caller.key_agents is not None:
        rows = rows.filter(agent_name__in=sorted(caller.key_agents))
    return rows if caller.session is None else rows.filter(pk=caller.session)


def session(caller: Caller, public_id: str) -> Session:
    if "\0" in public_id:
        raise SessionNotFound
    if (known := remembered(caller, public_id)) is not None:
        return known
    found = _read(caller, _BY_PUBLIC_ID, caller.tenant, public_id)
    remember(found)
    return found


_CONSTANT = ("id", "tenant_id", "public_id", "agent_name", "created_by_id")
_MOST_KNOWN = 10_000
_known: dict[tuple[int, str], tuple[Any, ...]] = {}
"""What never changes of the sessions that this process has seen, for optimistic calls."""


def remember(session: Session) -> None:
    """Let optimistic calls find the session without a query."""
    while len(_known) >= _MOST_KNOWN:
        _known.pop(next(iter(_known)), None)
    _known[session.tenant_id, session.public_id] = tuple(getattr(session, name) for name in _CONSTANT)


def remembered(caller: Caller, public_id: str) -> Session | None:
    """In an optimistic call: the session as this process knows it, without the columns that may change.

    Whoever changes it locks it first, and then finds out whether it was deleted.
    """
    known = _known.get((caller.tenant, public_id)) if loop_calls.is_optimistic() else None
    return None if known is None else _if_visible(caller, known, _CONSTANT)


def forget_known() -> None:
    """For tests: clear the cache, as in a new process."""
    _known.clear()


def session_of_row(caller: Caller, row: int) -> Session:
    """A session by its row number, which another row of the tenant refers to."""
    return _read(caller, _BY_ROW, caller.tenant, row)


_BY_URIS = f"""with wanted as (
 select session_id as id from sessions_app_address where tenant_id = %s and kind = 'session' and uri {{among_texts}}
 union select id from sessions_app_session where tenant_id = %s and public_id {{among_texts}})
select {", ".join(f"s.{field}" for field in _FIELDS)}, a.uri
from wanted join sessions_app_session s on s.id = wanted.id
left join sessions_app_address a on a.session_id = s.id and a.kind = 'session'
where s.tenant_id = %s and s.deleted_at is null"""


def sessions_by_uri(caller: Caller, uris: list[str], public_ids: list[str]) -> list[tuple[Session, str | None]]:
    """The caller's sessions with one of these URIs or ids, each with the URI that a client chose, if any."""
    rows = raw_sql.rows(_BY_URIS, (caller.tenant, uris, caller.tenant, public_ids, caller.tenant))
    return [(found, row[-1]) for row in rows if (found := _if_visible(caller, row[:-1])) is not None]


def lock_session(caller: Caller, row: Session) -> Session:
    """Read the row again and lock it until the transaction ends. A change of a session takes this lock first.

    The lock does not cover the primary key, so other transactions can insert rows that refer to the session meanwhile.
    """
    return _read(caller, _LOCKED, caller.tenant, row.pk)


def lock_any_session(row: Session) -> Session:
    """``lock_session`` for an operator of the server, who has no key."""
    found = raw_sql.row(_LOCKED, (row.tenant_id, row.pk))
    if found is None:
        raise SessionNotFound
    return Session.from_db("default", _FIELDS, found)


def lock_session_and(caller: Caller, row: Session, *queries: Statement) -> tuple[Session, list[Rows]]:
    """``lock_session``, and the rows of queries that run after the lock is taken, in the same round trip."""
    locked, *rows = raw_sql.rows_of_each([Statement(_LOCKED, (caller.tenant, row.pk)), *queries])
    return _first_visible(caller, locked), rows
