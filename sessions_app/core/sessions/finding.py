"""Finds a tenant's sessions for people: by agent, key, state, time, id, and words of titles and messages.

A list is never counted, and continues behind a session that the caller has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery

from sessions_app.core.base.caller import EVERYTHING, READ, Caller, Sight
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.records import search_index
from sessions_app.core.tenancy import api_audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import LIVE_STATES, ApiKey, Session, Turn, TurnState

IDLE = "idle"
STATES = (*(state.value for state in LIVE_STATES), IDLE, TurnState.ERROR.value)
"""Of the live turn; ``idle``: none is live; ``error``: the newest turn failed, among the tenant's last 500 failures."""
_MATCHES, _KEYS = 500, 50


@dataclass(frozen=True, slots=True)
class Filters:
    """Empty or None: not filtered. ``id``: the start of a session's id. ``key``: the start of a key."""

    words: str = ""
    id: str = ""
    agent: str = ""
    key: str = ""
    state: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """``state``: of the newest turn; empty if there is none."""

    row: Session
    state: str


def find(tenant: int, wanted: Filters, *, before: int | None = None, most: int = 50, sight: Sight = EVERYTHING) -> list[Found]:
    """The newest first. ``before``: only those behind the session with this row number.

    Whoever may not read transcripts must not filter by words, because the list would show who wrote them.
    """
    rows = _filtered(_seen(Session.objects.filter(tenant_id=tenant), sight), tenant, wanted)
    if before is not None:
        at = Session.with_deleted.filter(tenant_id=tenant, pk=before).values_list("created_at", flat=True).first()
        if at is None:
            return []
        # The first comparison alone can use the index; the second settles equal times.
        rows = rows.filter(created_at__lte=at).filter(Q(created_at__lt=at) | Q(pk__lt=before))
    newest = Turn.objects.filter(session=OuterRef("pk")).order_by("-pk").values("state")[:1]
    found = rows.annotate(newest_state=Subquery(newest, output_field=CharField())).select_related("created_by")
    found = found.defer("tool_refs", "client_tools").order_by("-created_at", "-pk")
    return [Found(row, getattr(row, "newest_state", None) or "") for row in found[:most]]


def find_for(caller: Caller, wanted: Filters, *, before: int | None = None, most: int = 50) -> list[Found]:
    """``find`` for a client, among the sessions that it sees."""
    caller.require(READ)
    api_audit.read(caller, Action.SESSIONS_LISTED, "sessions")
    return find(caller.tenant, wanted, before=before, most=most, sight=caller.sight)


def _seen(rows: QuerySet[Session], sight: Sight) -> QuerySet[Session]:
    if sight.agents is not None:
        rows = rows.filter(agent_name__in=sorted(sight.agents))
    return rows if sight.session is None else rows.filter(pk=sight.session)


def one(tenant: int, public_id: str) -> Session:
    """SessionNotFound if the tenant has no session with this id."""
    rows = Session.objects.select_related("tenant", "created_by").filter(tenant_id=tenant)
    found = None if "\0" in public_id else rows.filter(public_id=public_id).first()
    if found is None:
        raise SessionNotFound
    return found


def _filtered(rows: QuerySet[Session], tenant: int, wanted: Filters) -> QuerySet[Session]:
    if wanted.words:
        terms = search_index.terms(wanted.words)
        rows = rows.filter(pk__in=[match.session for match in search_index.matches(terms, tenant, None, _MATCHES)])
    if wanted.id:
        rows = rows.filter(public_id__startswith=wanted.id)
    if wanted.agent:
        rows = rows.filter(agent_name=wanted.agent)
    if wanted.key:
        keys = ApiKey.objects.filter(tenant_id=tenant, prefix__startswith=wanted.key[:16]).values_list("pk", flat=True)
        rows = rows.filter(created_by_id__in=list(keys[:_KEYS]))
    if wanted.since is not None:
        rows = rows.filter(created_at__gte=wanted.since)
    if wanted.until is not None:
        rows = rows.filter(created_at__lt=wanted.until)
    return _in_state(rows, tenant, wanted.state)


def _in_state(rows: QuerySet[Session], tenant: int, state: str) -> QuerySet[Session]:
    live = Turn.objects.filter(tenant_id=tenant, state__in=LIVE_STATES)
    if state == IDLE:
        return rows.exclude(pk__in=live.values("session"))
    if state == TurnState.ERROR:
        newest = Turn.objects.filter(session=OuterRef("pk")).order_by("-pk").values("state")[:1]
        # Of the newest failures, which have an index: all sessions of the tenant would be looked at otherwise.
        failed = Turn.objects.filter(tenant_id=tenant, state=TurnState.ERROR).order_by("-pk").values_list("session", flat=True)
        rows = rows.filter(pk__in=set(failed[:_MATCHES]))
        return rows.alias(last=Subquery(newest, output_field=CharField())).filter(last=TurnState.ERROR)
    # The live turns are few: they lead to their sessions.
    return rows.filter(pk__in=live.filter(state=state).values("session")) if state in LIVE_STATES else rows
