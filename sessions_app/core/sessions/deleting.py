"""Deletes sessions: for a client, and idle ones by their tenant's retention policy."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from sessions_app.core import turns
from sessions_app.core.base import lock_timeouts
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import access, api_audit, audit, usage_entries
from sessions_app.core.terminals import disposing as terminals
from sessions_app.models import LIVE_STATES, DeferredModel, OptionValue, PendingMessage, Session, SessionClient, Turn


def delete(caller: Caller, row: Session) -> None:
    """Delete a session: it disappears at once, and its live turn stops. Housekeeping removes its rows later."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, row)
        api_audit.record(caller, audit.Action.SESSION_DELETED, f"session {session.public_id}")
        stopped = _delete(tx, session)
    turns.tell_worker(stopped)


def delete_by_operator(session: Session, *, actor: str, address: str) -> None:
    """The same for an operator of the server, with an audit record."""
    with journal.transaction() as tx:
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.SESSION_DELETED,
            target=f"session {session.public_id}",
            tenant=session.tenant,
        )
        stopped = _delete(tx, access.lock_any_session(session))
    turns.tell_worker(stopped)


def _delete(tx: journal.Transaction, session: Session) -> turns.Stopped | None:
    turns.lock_live_turn(session)
    counted_upto = usage_entries.session_deleted(session)
    Session.objects.filter(pk=session.pk).update(deleted_at=Now(), client_tools="[]", tool_refs=None, draft=None)
    OptionValue.objects.filter(session_id=session.pk).delete()
    default = addresses.default(session.agent_name, session.public_id), ""
    uri, family = addresses.families_of([session.pk]).get(session.pk, default)
    addresses.release(session)
    for rows in (SessionClient, PendingMessage, DeferredModel):
        rows.objects.filter(session_id=session.pk).delete()
    stopped = turns.stop_live_turn(tx, session, turns.Stop(cause="deleted", reason="error"))
    usage_entries.late_history_deleted(session, counted_upto)
    named = {"session": session.public_id, "agent": session.agent_name, "uri": uri, "family": family}
    gone = Happening(Kind.SESSION_DELETED, named)
    tx.append(NewEvent(session.tenant_id, session.pk, gone))
    counted = Happening(Kind.ACTIVE_SESSIONS_CHANGED, {})
    tx.append(NewEvent(session.tenant_id, None, counted, sessions=-1))
    terminals.dispose_of_session(tx, session)
    return stopped


def delete_of_tenant(session_id: int) -> None:
    """Delete a session of a tenant that is being deleted, as its client would."""
    with journal.transaction() as tx:
        session = Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
        stopped = None if session is None else _delete(tx, session)
    turns.tell_worker(stopped)


def idle_sessions(tenant: int, since: datetime, limit: int, excluded: Collection[int] = ()) -> list[int]:
    """Sessions that were not used since then, the longest unused first: no live turn, and no turn that ended later."""
    rows = (
        Session.objects.filter(tenant_id=tenant, modified_hour__lte=int(since.timestamp() // 3600), modified_at__lt=since)
        .exclude(_used_since(since))
        .exclude(pk__in=list(excluded))
    )
    # The hour has an index; it and the time have the same order.
    return list(rows.order_by("modified_hour", "modified_at", "pk").values_list("pk", flat=True)[:limit])


def _used_since(since: datetime) -> Exists:
    recent = Q(state__in=LIVE_STATES) | Q(ended_at__gte=since)
    return Exists(Turn.objects.filter(recent, session=OuterRef("pk")))


def delete_idle(session_id: int, since: datetime) -> bool:
    """Delete a session as its client would, unless it was used since then. Held if it is locked."""
    with lock_timeouts.short(journal.transaction(waiting=False)) as tx:
        session = Session.objects.select_for_update(no_key=True).filter(pk=session_id, modified_at__lt=since).first()
        # Checked again, now that no turn can start.
        if session is None or Turn.objects.filter(Q(state__in=LIVE_STATES) | Q(ended_at__gte=since), session=session).exists():
            return False
        _delete(tx, session)
    return True
