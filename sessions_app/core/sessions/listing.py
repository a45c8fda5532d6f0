"""Sessions as AAP lists and shows them: pages by cursor, without messages, secrets masked. Reads only."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from agents_app import exact_json, registry
from sessions_app.core.base import secret_keys
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import BadCursor
from sessions_app.core.records import options as session_options
from sessions_app.core.tenancy import access, api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import Session

PAGE = 50
"""Sessions per page (A33)."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session as its clients see it; secrets are masked."""

    public_id: str
    agent_name: str
    tool_refs: list[dict[str, Any]] | None
    options: dict[str, str]
    client_tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    items: list[SessionFacts]
    next: str | None


class _Shown(NamedTuple):
    """The columns of a session that ``SessionFacts`` are made of."""

    pk: int
    public_id: str
    agent_name: str
    tool_refs: str | None
    client_tools: str


def _shown_refs(row: _Shown) -> list[dict[str, Any]] | None:
    if row.tool_refs is None:
        return None
    refs: list[dict[str, Any]] = exact_json.loads(row.tool_refs)
    spec = registry.find(row.agent_name)
    if spec is None:
        return refs
    exposed = {tool.name for tool in spec.exposed_tools}
    return [ref for ref in refs if ref["name"] in exposed]


def _describe(rows: Sequence[_Shown]) -> list[SessionFacts]:
    shown = session_options.shown(row.pk for row in rows)
    return [
        SessionFacts(row.public_id, row.agent_name, _shown_refs(row), shown.get(row.pk, {}), exact_json.loads(row.client_tools))
        for row in rows
    ]


def facts(session: Session) -> SessionFacts:
    return _describe([_Shown(session.pk, session.public_id, session.agent_name, session.tool_refs, session.client_tools)])[0]


# --- pages: a cursor is a position in the order (creation time, id), so pages stay stable (A35) ---

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_CURSOR = struct.Struct(">QQ")
_MARK_BYTES = 8


def _mark(key: str, tenant: int, body: bytes) -> bytes:
    return hmac.digest(key.encode(), b"cursor\0%d\0" % tenant + body, hashlib.sha256)[:_MARK_BYTES]


def _cursor(tenant: int, row: int, created_at: datetime) -> str:
    body = _CURSOR.pack((created_at - _EPOCH) // timedelta(microseconds=1), row)
    return base64.urlsafe_b64encode(body + _mark(secret_keys.newest(), tenant, body)).rstrip(b"=").decode()


def _read_cursor(tenant: int, cursor: str) -> tuple[datetime, int]:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise BadCursor from error
    body, mark = raw[: _CURSOR.size], raw[_CURSOR.size :]
    fits = any(hmac.compare_digest(mark, _mark(key, tenant, body)) for key in secret_keys.accepted())
    if len(body) != _CURSOR.size or not fits:
        raise BadCursor
    micros, row = _CURSOR.unpack(body)
    return _EPOCH + timedelta(microseconds=micros), row


def page(caller: Caller, after: str | None) -> Page:
    """The sessions that exist for the caller, newest first."""
    api_audit.read(caller, Action.SESSIONS_LISTED, "sessions")
    rows = access.visible(caller).order_by("-created_at", "-pk")
    if after is not None:
        at, row = _read_cursor(caller.tenant, after)
        # The first comparison alone can use the index; the second settles equal times.
        rows = rows.filter(created_at__lte=at).filter(Q(created_at__lt=at) | Q(pk__lt=row))
    # Tuples instead of model instances, whose time columns alone would take as long to read as the other columns.
    found = list(rows.values_list(*_Shown._fields, "created_at")[: PAGE + 1])
    shown = [_Shown(*columns) for *columns, _ in found[:PAGE]]
    return Page(_describe(shown), _cursor(caller.tenant, shown[-1].pk, found[PAGE - 1][-1]) if len(found) > PAGE else None)
