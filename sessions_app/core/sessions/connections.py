"""Connections of clients: a row each, renewed by the process that holds it; the sweep sees who is gone.

A client is there while one of its connections is. When the last one is gone, or its process is, the client
has left its sessions and has a grace (AGENTHOST_AHP_GRACE_SECONDS); after that its open calls fail and others may take
its place. A connection that was not renewed for AGENTHOST_AHP_PRESENCE_SECONDS is gone with its process.
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
from sessions_app.core.base import lock_waits, rounds
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.events import Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import broadcast, journal
from sessions_app.core.records import clients, live_workers
from sessions_app.core.tenancy import quotas
from sessions_app.models import ClientPresence, DispatchRecord, Session, SessionClient

LONGEST_CLIENT = 256

GONE = "Tool execution failed: the client that owns this tool has gone"


def connected(caller: Caller, client: str, connection: str, *, resumed: bool) -> str:
    """A connection is there; answers the life that its dispatches belong to.

    ``resumed``: the client goes on where another connection of its stopped, and may send again what it sent there.
    A connection whose key may only read counts as nobody's presence: it could keep or take a client's place.
    """
    if not client or len(client) > LONGEST_CLIENT or UNSTORABLE.search(client):
        raise InvalidInput([Fault(("clientId",), f"a client's id has 1 to {LONGEST_CLIENT} characters that can be stored")])
    if not caller.may(WRITE):
        return new_id("life")
    life = (_life(caller.tenant, client) if resumed else None) or new_id("life")
    ClientPresence.objects.create(connection=connection, tenant_id=caller.tenant, client=client, life=life, seen_at=Now())
    return life


def _life(tenant: int, client: str) -> str | None:
    there = ClientPresence.objects.filter(tenant_id=tenant, client=client).order_by("-seen_at").values_list("life", flat=True)
    said = DispatchRecord.objects.filter(tenant_id=tenant, client=client).order_by("-pk").values_list("life", flat=True)
    return there.first() or said.first()


def renew(connections: Collection[str]) -> set[str]:
    """Say that these are there still. Answers those that were taken for gone: they have to be ``connected`` again.

    A row that somebody holds is left for the next time: the presence of all other tenants' clients must not wait for it.
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
    """A connection is gone. If it was its client's last one, the client has left its sessions."""
    if not caller.may(WRITE):
        return
    tenant = caller.tenant
    # Not in one transaction: of two last ones that go at once, one sees that nothing is left.
    ClientPresence.objects.filter(pk=connection).delete()
    if not ClientPresence.objects.filter(tenant_id=tenant, client=client).exists():
        for row in SessionClient.objects.filter(tenant_id=tenant, client=client, left_at=None).values_list("pk", flat=True):
            _leave(row, waiting=True)


_HAND_IN_IT = (Kind.TURN_STARTED, Kind.MESSAGE_PENDING, Kind.CALL_GRANTED)


def attended(tenant: int, session: int) -> bool:
    """Whether somebody is there who can be asked something: the session's client, or one who lately had a hand in it."""
    if SessionClient.objects.filter(session_id=session, left_at=None).exists():
        return True
    said = [payload.get("origin") for payload in journal.latest(session, _HAND_IN_IT, 10)]
    hands = {origin["client"] for origin in said if origin}
    alive = Now() - timedelta(seconds=settings.AGENTHOST_AHP_PRESENCE_SECONDS)
    return ClientPresence.objects.filter(tenant_id=tenant, client__in=hands, seen_at__gt=alive).exists()


def _is_there() -> Exists:
    alive = Now() - timedelta(seconds=settings.AGENTHOST_AHP_PRESENCE_SECONDS)
    return Exists(ClientPresence.objects.filter(tenant=OuterRef("tenant"), client=OuterRef("client"), seen_at__gt=alive))


def _leave(row: int, *, waiting: bool, until: datetime | None = None) -> bool:
    transaction = journal.transaction(waiting=waiting)
    with transaction if waiting else lock_waits.briefly(transaction) as tx:
        session = _lock_session_of(row, waiting=waiting)
        client = SessionClient.objects.filter(~_is_there(), live_workers.not_after(until), pk=row, left_at=None).first()
        if session is None or client is None:
            return False
        clients.left(tx, session, client, "gone")
    return True


def _lock_session_of(row: int, *, waiting: bool) -> Session | None:
    """None: it is deleted. RowsHeld if it is locked and the caller does not wait."""
    wanted = Session.objects.filter(pk__in=SessionClient.objects.filter(pk=row).values("session"))
    skipping = not waiting and lock_waits.skip_locked()
    session = wanted.select_for_update(no_key=True, skip_locked=skipping).first()
    if session is None and skipping and wanted.exists():
        raise lock_waits.RowsHeld
    return session


# --- the sweep -----------------------------------------------------------------------------------


def leave_vanished(until: datetime | None = None) -> int:
    """Clients whose connections are gone leave their sessions; how many did.

    Waits for nobody: a client whose session is locked is left for the next round. ``until``: see presence.not_after.
    """
    gone = SessionClient.objects.filter(~_is_there(), live_workers.not_after(until), left_at=None)
    return rounds.each(rounds.fairly(gone), lambda row: _leave(row, waiting=False, until=until))


def end_graces(until: datetime | None = None) -> int:
    """Clients whose grace is over are let go; how many were. Waits for nobody."""
    over = SessionClient.objects.filter(_grace_is_over(), live_workers.not_after(until))
    return rounds.each(rounds.fairly(over), lambda row: _let_go(row, until))


def _grace_is_over() -> Q:
    return Q(left_at__lt=Now() - timedelta(seconds=settings.AGENTHOST_AHP_GRACE_SECONDS))


def _let_go(row: int, until: datetime | None) -> bool:
    """Fail the open calls of a client that did not come back; the turn goes on without it."""
    with lock_waits.briefly(journal.transaction(waiting=False)) as tx:
        session = _lock_session_of(row, waiting=False)
        client = SessionClient.objects.filter(_grace_is_over(), live_workers.not_after(until), pk=row).first()
        if client is None:
            return False
        with nullcontext() if session is None else quotas.counting_guests(session):
            client.delete()
        told = None if session is None else turns.fail_calls_of(tx, session, client.client, GONE)
    if told is not None and told.worker:
        broadcast.tell_worker(told.worker, {"turn": told.turn_id, "what": "answered"})
    return True


def forget_dead(after: timedelta) -> int:
    """Delete what was not renewed for so long."""
    return rounds.delete(ClientPresence.objects.filter(seen_at__lt=Now() - after))
