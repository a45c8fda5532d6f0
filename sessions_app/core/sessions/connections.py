"""Presence of AHP clients: one row per connection, renewed by its process and checked by the workers' sweep.

A client is present while one of its connections is. When its last connection is closed, or its process dies, a client of AHP
0.1 leaves its sessions. After a grace period (AGENTHOST_AHP_GRACE_SECONDS) its open calls fail, and another client may take
its place. A client of other versions leaves only then. A connection that was not renewed for
AGENTHOST_AHP_PRESENCE_SECONDS counts as closed.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from sessions_app.core import turns
from sessions_app.core.base import lock_timeouts, maintenance
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.events import Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import journal
from sessions_app.core.records import clients, live_workers
from sessions_app.core.tenancy import usage_entries
from sessions_app.models import ClientPresence, DispatchRecord, Session, SessionClient

LONGEST_CLIENT = 256

GONE = "Tool execution failed: the client that owns this tool has gone"


def connected(caller: Caller, client: str, connection: str, *, resumed: bool) -> str:
    """Record a connection. Returns the id of the client's life: client sequence numbers are unique within one life.

    ``resumed``: the client continues from an earlier connection, and may send again what it sent there.
    A connection whose key may only read is not recorded, or it could hold or take another client's place.
    """
    if not client or len(client) > LONGEST_CLIENT or UNSTORABLE.search(client):
        raise InvalidInput([Fault(("clientId",), f"needs 1 to {LONGEST_CLIENT} characters that can be stored")])
    if not caller.may(WRITE):
        return new_id("life")
    life = (_life(caller.tenant, client) if resumed else None) or new_id("life")
    SessionClient.objects.filter(tenant_id=caller.tenant, client=client, away_since__isnull=False).update(away_since=None)
    ClientPresence.objects.create(connection=connection, tenant_id=caller.tenant, client=client, life=life, seen_at=Now())
    return life


def _life(tenant: int, client: str) -> str | None:
    present = ClientPresence.objects.filter(tenant_id=tenant, client=client).order_by("-seen_at").values_list("life", flat=True)
    dispatched = DispatchRecord.objects.filter(tenant_id=tenant, client=client).order_by("-pk").values_list("life", flat=True)
    return present.first() or dispatched.first()


def renew(connections: Collection[str]) -> set[str]:
    """Renew these connections. Returns those that have no row any more: call ``connected`` for them again.

    Locked rows are skipped until the next renewal, so that other clients' presence does not wait for them.
    """
    wanted = list(connections)
    rows = ClientPresence.objects.filter(pk__in=wanted)
    skips = connection.features.has_select_for_update_skip_locked
    with transaction.atomic():
        free = list(rows.select_for_update(no_key=skips, skip_locked=skips).values_list("pk", flat=True))
        ClientPresence.objects.filter(pk__in=free).update(seen_at=Now())
    if len(free) == len(wanted):
        return set()
    return set(wanted) - set(rows.values_list("pk", flat=True))


def disconnected(caller: Caller, client: str, connection: str) -> None:
    """Remove a connection. If it was its client's last one, the client leaves its sessions, or is away from them."""
    if not caller.may(WRITE):
        return
    tenant = caller.tenant
    # Not in one transaction: if the last two are closed at once, one of them sees that none is left.
    ClientPresence.objects.filter(pk=connection).delete()
    if not ClientPresence.objects.filter(tenant_id=tenant, client=client).exists():
        active = SessionClient.objects.filter(tenant_id=tenant, client=client, left_at=None, away_since=None)
        for row in active.values_list("pk", flat=True):
            _leave(row, waiting=True)


_ACTS_OF_CLIENTS = (Kind.TURN_STARTED, Kind.TURN_REOPENED, Kind.MESSAGE_PENDING, Kind.CALL_GRANTED)


def is_attended(tenant: int, session: int) -> bool:
    """Whether a client can answer a question: the session has an active client, or one that acted recently is present."""
    if SessionClient.objects.filter(session_id=session, left_at=None).exists():
        return True
    origins = [payload.get("origin") for payload in journal.latest(session, _ACTS_OF_CLIENTS, 10)]
    acted = {origin["client"] for origin in origins if origin}
    alive = Now() - timedelta(seconds=settings.AGENTHOST_AHP_PRESENCE_SECONDS)
    return ClientPresence.objects.filter(tenant_id=tenant, client__in=acted, seen_at__gt=alive).exists()


def _is_there() -> Exists:
    alive = Now() - timedelta(seconds=settings.AGENTHOST_AHP_PRESENCE_SECONDS)
    return Exists(ClientPresence.objects.filter(tenant=OuterRef("tenant"), client=OuterRef("client"), seen_at__gt=alive))


def _leave(row: int, *, waiting: bool, until: datetime | None = None) -> bool:
    transaction = journal.transaction(waiting=waiting)
    with transaction if waiting else lock_timeouts.short(transaction) as tx:
        session = _lock_session_of(row, waiting=waiting)
        client = SessionClient.objects.filter(~_is_there(), live_workers.not_after(until), pk=row, left_at=None).first()
        if session is None or client is None:
            return False
        if client.stays:
            SessionClient.objects.filter(pk=row).update(away_since=Now())
        else:
            clients.record_leaving(tx, session, client, "gone")
    return True


def _lock_session_of(row: int, *, waiting: bool) -> Session | None:
    """None: the session is deleted. RowsHeld if it is locked and ``waiting`` is False."""
    wanted = Session.objects.filter(pk__in=SessionClient.objects.filter(pk=row).values("session"))
    skipping = not waiting and lock_timeouts.skip_locked()
    session = wanted.select_for_update(no_key=True, skip_locked=skipping).first()
    if session is None and skipping and wanted.exists():
        raise lock_timeouts.RowLocked
    return session


UNSUBSCRIBED = "Tool execution failed: the client that owns this tool does not follow the session any more"


def withdraw(caller: Caller, session: int, client: str) -> None:
    """Remove a client that is active in this session and does not follow it any more: its open calls fail at once."""
    if not client or not caller.may(WRITE) or not clients.is_active(session, client):
        return
    running = None
    with journal.transaction() as tx:
        row = Session.objects.filter(pk=session, tenant_id=caller.tenant).select_for_update(no_key=True).first()
        active = None if row is None else SessionClient.objects.filter(session=row, client=client, left_at=None).first()
        if row is None or active is None:
            return
        running = turns.fail_calls_of(tx, row, client, UNSUBSCRIBED)
        clients.record_leaving(tx, row, active, "unsubscribed")
        with usage_entries.counting_client_bytes(row):
            active.delete()
    turns.tell_worker_of_answer(running)


def withdraw_from_others(caller: Caller, client: str, followed: Collection[int]) -> None:
    """``withdraw`` from all sessions in which the client is active, but from these."""
    active = SessionClient.objects.filter(tenant_id=caller.tenant, client=client, left_at=None).exclude(session_id__in=followed)
    for session in active.values_list("session_id", flat=True):
        withdraw(caller, session, client)


# --- the sweep -----------------------------------------------------------------------------------


def leave_vanished(until: datetime | None = None) -> int:
    """Let clients without a connection leave their sessions, or be away from them; returns how many are.

    Waits for no lock: a client whose session is locked is left to the next round. ``until``: see live_workers.not_after.
    """
    gone = SessionClient.objects.filter(~_is_there(), live_workers.not_after(until), left_at=None, away_since=None)
    return maintenance.for_each(maintenance.fair_selection(gone), lambda row: _leave(row, waiting=False, until=until))


def end_grace_periods(until: datetime | None = None) -> int:
    """Remove clients whose grace period is over; returns how many. Waits for no lock."""
    due = SessionClient.objects.filter(_grace_is_over(), live_workers.not_after(until))
    return maintenance.for_each(maintenance.fair_selection(due), lambda row: _remove(row, until))


def _grace_is_over() -> Q:
    begun_before = Now() - timedelta(seconds=settings.AGENTHOST_AHP_GRACE_SECONDS)
    return Q(left_at__lt=begun_before) | Q(~_is_there(), left_at=None, away_since__lt=begun_before)


def _remove(row: int, until: datetime | None) -> bool:
    """Remove a client that did not come back, and fail its open calls; the turn continues without it."""
    with lock_timeouts.short(journal.transaction(waiting=False)) as tx:
        session = _lock_session_of(row, waiting=False)
        client = SessionClient.objects.filter(_grace_is_over(), live_workers.not_after(until), pk=row).first()
        if client is None:
            return False
        running = None if session is None else turns.fail_calls_of(tx, session, client.client, GONE)
        if session is not None and client.left_at is None:
            clients.record_leaving(tx, session, client, "gone")
        with nullcontext() if session is None else usage_entries.counting_client_bytes(session):
            client.delete()
    turns.tell_worker_of_answer(running)
    return True


def forget_dead(after: timedelta) -> int:
    """Delete the rows of connections that were not renewed for ``after``."""
    return maintenance.delete_in_batches(ClientPresence.objects.filter(seen_at__lt=Now() - after))
