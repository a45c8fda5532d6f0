"""Sessions: made, described, listed, deleted."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.spec import AgentSpec
from sessions_app.core import turns
from sessions_app.core.base import events, lock_waits, prepared
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import BadCursor, InvalidInput
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.prepared import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses, history, idempotency, session_settings
from sessions_app.core.records import options as session_options
from sessions_app.core.records.idempotency import Once
from sessions_app.core.tenancy import access, agents, quotas
from sessions_app.models import LIVE_STATES, DeferredModel, OptionValue, PendingMessage, Session, SessionClient, Turn

PAGE = 50
"""Sessions a page (A33)."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What a client may know of a session; secrets are masked."""

    public_id: str
    agent_name: str
    tool_refs: list[dict[str, Any]] | None
    options: dict[str, str]
    client_tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Page:
    items: list[SessionFacts]
    next: str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session is to be made of. ``seed`` was checked by content.seed_messages."""

    agent: str
    tool_refs: list[dict[str, Any]] | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_tools: list[dict[str, Any]] = field(default_factory=list)
    seed: list[dict[str, Any]] = field(default_factory=list)


def create(caller: Caller, wanted: Wanted, once: Once | None = None) -> str:
    """A session with its seed; the model is not called. Answers its public id.

    A repeated request gets the id of the first.
    """
    return idempotency.once_only(caller, once, lambda earlier: earlier.session, partial(_create, caller, wanted, once))


def _create(caller: Caller, wanted: Wanted, once: Once | None) -> str:
    spec = checked(caller, wanted)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        public_id = new_id("sess")
        idempotency.remember(caller, once, session=public_id)
        make(tx, caller, spec, public_id, wanted)
        asking.admit_session(tx.write)
    return public_id


def checked(caller: Caller, wanted: Wanted) -> AgentSpec:
    """The agent of a session to be; InvalidInput if it does not take what is wanted of it."""
    spec = agents.for_creation(caller, wanted.agent)
    faults = session_settings.faults(
        spec, tool_refs=wanted.tool_refs, given_options=wanted.options, client_tools=wanted.client_tools, before=None
    )
    if faults:
        raise InvalidInput(faults)
    return spec


# Written out, because programs make sessions as often as turns.
_COLUMNS = ("tenant_id", "public_id", "agent_name", "tool_refs", "client_tools", "created_by_id", "created_at")
_INSERTED = (
    f"insert into sessions_app_session ({', '.join(_COLUMNS)}, modified_at)"
    f" values ({', '.join(['%s'] * len(_COLUMNS))}, {{now}}) returning id"
)


def make(
    tx: journal.Transaction, caller: Caller, spec: AgentSpec, public_id: str, wanted: Wanted, uri: str | None = None
) -> Session:
    """A session of what was ``checked``, inside a transaction; the caller asks for its place among the tenant's."""
    now = timezone.now()
    refs = None if wanted.tool_refs is None else exact_json.dumps(wanted.tool_refs)
    values = (caller.tenant, public_id, spec.name, refs, exact_json.dumps(wanted.client_tools), caller.key, now)
    # The transaction's BEGIN goes with it.
    (((row,),),) = prepared.answers([Statement(_INSERTED, values)])
    session = Session.from_db("default", ("id", *_COLUMNS, "title", "approval"), (row, *values, None, ""))
    session_options.store(session, spec, wanted.options)
    if wanted.seed:
        history.add_seed(session, wanted.seed, {tool["name"] for tool in wanted.client_tools}, now)
    is_bare = not wanted.options and not wanted.seed
    tx.last([journal.new_tail(session.pk), quotas.session_made(session, bare=is_bare)])
    created = events.Happening(
        events.Kind.SESSION_CREATED,
        {"session": public_id, "agent": spec.name, "uri": uri or addresses.default(spec.name, public_id)},
    )
    tx.append(NewEvent(caller.tenant, session.pk, created))
    counted = events.Happening(events.Kind.ACTIVE_SESSIONS_CHANGED, {})
    tx.append(NewEvent(caller.tenant, None, counted, sessions=1))
    return session


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


# --- lists: a cursor is a position in the order (creation time, id), so pages stay stable (A35) ---

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_CURSOR = struct.Struct(">QQ")
_MARK_BYTES = 8


def _mark(tenant: int, body: bytes) -> bytes:
    return hmac.digest(settings.SECRET_KEY.encode(), b"cursor\0%d\0" % tenant + body, hashlib.sha256)[:_MARK_BYTES]


def _cursor(tenant: int, row: int, created_at: datetime) -> str:
    body = _CURSOR.pack((created_at - _EPOCH) // timedelta(microseconds=1), row)
    return base64.urlsafe_b64encode(body + _mark(tenant, body)).rstrip(b"=").decode()


def _read_cursor(tenant: int, cursor: str) -> tuple[datetime, int]:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise BadCursor from error
    body, mark = raw[: _CURSOR.size], raw[_CURSOR.size :]
    if len(body) != _CURSOR.size or not hmac.compare_digest(mark, _mark(tenant, body)):
        raise BadCursor
    micros, row = _CURSOR.unpack(body)
    return _EPOCH + timedelta(microseconds=micros), row


def page(caller: Caller, after: str | None) -> Page:
    """The sessions that exist for the caller, newest first."""
    rows = access.visible(caller).order_by("-created_at", "-pk")
    if after is not None:
        at, row = _read_cursor(caller.tenant, after)
        # The first comparison alone can use the index; the second settles equal times.
        rows = rows.filter(created_at__lte=at).filter(Q(created_at__lt=at) | Q(pk__lt=row))
    # Without making models of them: their times alone take as long to read as the rest.
    found = list(rows.values_list(*_Shown._fields, "created_at")[: PAGE + 1])
    shown = [_Shown(*columns) for *columns, _ in found[:PAGE]]
    return Page(_describe(shown), _cursor(caller.tenant, shown[-1].pk, found[PAGE - 1][-1]) if len(found) > PAGE else None)


def delete(caller: Caller, row: Session) -> None:
    """Gone at once from everywhere; what was running stops. The rows themselves go in the background."""
    with journal.transaction() as tx:
        stopped = _delete(tx, access.lock_session(caller, row))
    turns.tell_worker(stopped)


def _delete(tx: journal.Transaction, session: Session) -> turns.Stopped | None:
    turns.lock_live_turn(session)
    counted_upto = quotas.session_gone(session)
    Session.objects.filter(pk=session.pk).update(deleted_at=Now(), client_tools="[]", tool_refs=None)
    OptionValue.objects.filter(session_id=session.pk).delete()
    uri = addresses.of(session)
    addresses.free(session)
    for rows in (SessionClient, PendingMessage, DeferredModel):
        rows.objects.filter(session_id=session.pk).delete()
    stopped = turns.stop_live_turn(tx, session, turns.Stop(cause="deleted", reason="error"))
    quotas.rest_gone(session, counted_upto)
    gone = events.Happening(events.Kind.SESSION_DELETED, {"session": session.public_id, "agent": session.agent_name, "uri": uri})
    tx.append(NewEvent(session.tenant_id, session.pk, gone))
    counted = events.Happening(events.Kind.ACTIVE_SESSIONS_CHANGED, {})
    tx.append(NewEvent(session.tenant_id, None, counted, sessions=-1))
    return stopped


def idle(tenant: int, since: datetime, limit: int, besides: Collection[int] = ()) -> list[int]:
    """Sessions that nobody has used since then, the longest unused first: no live turn, no turn that ended later.

    ``besides``: without these.
    """
    rows = (
        Session.objects.filter(tenant_id=tenant, modified_at__lt=since).exclude(_used_since(since)).exclude(pk__in=list(besides))
    )
    return list(rows.order_by("modified_at", "pk").values_list("pk", flat=True)[:limit])


def _used_since(since: datetime) -> Exists:
    recent = Q(state__in=LIVE_STATES) | Q(ended_at__gte=since)
    return Exists(Turn.objects.filter(recent, session=OuterRef("pk")))


def delete_idle(session_id: int, since: datetime) -> bool:
    """Delete a session as its client would, unless somebody has used it since then. Held if somebody has it locked."""
    with lock_waits.briefly(journal.transaction(waiting=False)) as tx:
        session = Session.objects.select_for_update(no_key=True).filter(pk=session_id, modified_at__lt=since).first()
        # Asked again, now that no turn can begin.
        if session is None or Turn.objects.filter(Q(state__in=LIVE_STATES) | Q(ended_at__gte=since), session=session).exists():
            return False
        _delete(tx, session)
    return True
