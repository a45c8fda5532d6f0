"""From an outside id to a row: the only way, and the wall around what a key may see.

Another tenant's session, and one of an agent that a limited key may not use, are not told apart from one that never
existed.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import Session

# Written out, because every request begins with one of these. Times are left out: nobody who comes this way needs
# them, and each database has its own form of them.
_FIELDS = ("id", "tenant_id", "public_id", "agent_name", "tool_refs", "client_tools", "created_by_id", "title", "approval")
_SESSION = f"select {', '.join(_FIELDS)} from sessions_app_session where tenant_id = %s and deleted_at is null"
_BY_PUBLIC_ID = f"{_SESSION} and public_id = %s"
_BY_ROW = f"{_SESSION} and id = %s"
_LOCKED = f"{_SESSION} and id = %s {{for_change}}"


def _read(caller: Caller, sql: str, *params: Any) -> Session:
    return _made(caller, raw_sql.rows(sql, params))


def _made(caller: Caller, rows: list[tuple[Any, ...]]) -> Session:
    found = _existing(caller, rows[0]) if rows else None
    if found is None:
        raise SessionNotFound
    return found


def _existing(caller: Caller, row: tuple[Any, ...]) -> Session | None:
    """The row as a session, if that exists for the caller."""
    found = Session.from_db("default", _FIELDS, row)
    return found if caller.may_see(found.agent_name) else None


def visible(caller: Caller) -> QuerySet[Session]:
    """The sessions that exist for the caller."""
    rows = Session.objects.filter(tenant_id=caller.tenant)
    return rows if caller.key_agents is None else rows.filter(agent_name__in=sorted(caller.key_agents))


def session(caller: Caller, public_id: str) -> Session:
    if "\0" in public_id:
        raise SessionNotFound
    return _read(caller, _BY_PUBLIC_ID, caller.tenant, public_id)


def session_of_row(caller: Caller, row: int) -> Session:
    """A session whose row another row of the tenant names."""
    return _read(caller, _BY_ROW, caller.tenant, row)


_BY_URIS = f"""with wanted as (
 select session_id as id from sessions_app_address where tenant_id = %s and kind = 'session' and uri {{among_texts}}
 union select id from sessions_app_session where tenant_id = %s and public_id {{among_texts}})
select {", ".join(f"s.{field}" for field in _FIELDS)}, a.uri
from wanted join sessions_app_session s on s.id = wanted.id
left join sessions_app_address a on a.session_id = s.id and a.kind = 'session'
where s.tenant_id = %s and s.deleted_at is null"""


def sessions_by_uri(caller: Caller, uris: list[str], public_ids: list[str]) -> list[tuple[Session, str | None]]:
    """The caller's sessions that have one of these URIs or ids, each with the URI that a client chose for it, if one did."""
    rows = raw_sql.rows(_BY_URIS, (caller.tenant, uris, caller.tenant, public_ids, caller.tenant))
    return [(found, row[-1]) for row in rows if (found := _existing(caller, row[:-1])) is not None]


def lock_session(caller: Caller, row: Session) -> Session:
    """The row as it is now, locked until the transaction ends; the first lock that a change of a session takes.

    Without the key: rows that refer to the session are stored by transactions that do not lock it.
    """
    return _read(caller, _LOCKED, caller.tenant, row.pk)


def lock_session_and(caller: Caller, row: Session, question: Statement) -> tuple[Session, list[tuple[Any, ...]]]:
    """``lock_session`` with the answer to a question that is put once the row is locked."""
    locked, answer = raw_sql.rows_of_each([Statement(_LOCKED, (caller.tenant, row.pk)), question])
    return _made(caller, locked), answer
