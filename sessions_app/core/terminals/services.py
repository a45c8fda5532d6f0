"""Terminal services: their leases, the terminals that they claim, and the end of those whose service is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import BigIntegerField, Exists, F, OuterRef, QuerySet
from django.db.models.functions import Coalesce, Now

from agents_app import exact_json
from sessions_app.core.base import journal_keys, maintenance, raw_sql
from sessions_app.core.log import journal
from sessions_app.core.records import live_workers
from sessions_app.core.tenancy import usage_entries
from sessions_app.core.terminals import checkpoints, disposing, ending, keeping
from sessions_app.models import ApiKey, Terminal, TerminalScreen, TerminalService, TerminalState

START_SECONDS = 30.0
"""A terminal that no service has claimed after this time has failed."""
_REMOVED_AFTER = timedelta(minutes=1)
"""Connections have this long to receive the last events of a disposed terminal."""
_AT_ONCE = 200

NO_SERVICE_LEFT = "\r\n[The process that ran this terminal has ended.]\r\n"
SUSPENDED = "\r\n[Closed: the tenant was suspended.]\r\n"
REVOKED = "\r\n[Closed: the key that opened this terminal was revoked.]\r\n"
NOT_STARTED = f"[The terminal could not be started: no terminal service took it within {START_SECONDS:.0f} s.]\r\n"

_RENEW = """
insert into sessions_app_terminalservice (service, host, pid, seen_at, lease_expires_at, fault)
values (%s, %s, %s, {now}, {moment}, %s)
on conflict (service) do update
 set seen_at = excluded.seen_at, lease_expires_at = excluded.lease_expires_at, fault = excluded.fault
returning service
"""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A terminal that a service has claimed and has to start."""

    terminal: int
    tenant: int
    fence: int
    public_id: str
    workspace: int | None
    cwd: str
    title: str
    cols: int
    rows: int
    seq: int
    """The number of its first event: input comes after it."""
    command: str | None = None
    """What its shell runs; None: it is interactive."""
    network: tuple[str, ...] | None = None
    """The hosts that its agent may reach; None: its agent has no network, or it is no agent's."""
    trace: str | None = None
    """The traceparent for its command."""

    @property
    def key(self) -> int:
        return journal_keys.of_terminal(self.terminal)


def renew(service: str, fault: str = "") -> dict[int, int]:
    """Renew the service's lease. Returns its terminals in the database, each with its fence."""
    values = (service, socket.gethostname()[:200], os.getpid(), float(settings.AGENTHOST_LEASE_SECONDS), fault)
    raw_sql.rows(_RENEW, values)
    return dict(Terminal.objects.filter(service=service, state=TerminalState.RUNNING).values_list("pk", "fence"))


def leave(service: str) -> None:
    """Delete the service's lease: its remaining terminals are ended by the next sweep."""
    TerminalService.objects.filter(service=service).delete()


def delete_dead(after: timedelta) -> int:
    return maintenance.delete_in_batches(TerminalService.objects.filter(seen_at__lt=Now() - after))


def claim(service: str, free: int, *, reserved: int = 0, tenants: Collection[int] = ()) -> list[Claimed]:
    """Claim requested terminals, the oldest first, for ``free`` slots. Of several services that try, one gets each.

    ``reserved`` of the slots are for tenants of which the service runs no terminal; ``tenants`` are the others.
    """
    claimed: list[Claimed] = []
    served = set(tenants)
    while len(claimed) < free:
        requested = Terminal.objects.filter(state=TerminalState.REQUESTED)
        if free - len(claimed) <= reserved:
            requested = requested.exclude(tenant__in=served)
        row = requested.order_by("pk").first()
        if row is None:
            break
        mine = Terminal.objects.filter(pk=row.pk, state=TerminalState.REQUESTED)
        if not mine.update(state=TerminalState.RUNNING, service=service, fence=F("fence") + 1):
            # Another service was faster.
            continue
        served.add(row.tenant_id)
        created = journal.first_number(journal_keys.of_terminal(row.pk))
        claimed.append(
            Claimed(
                row.pk,
                row.tenant_id,
                row.fence + 1,
                row.public_id,
                row.workspace,
                row.cwd,
                row.title,
                row.cols,
                row.rows,
                created,
                row.command,
                None if row.network is None else tuple(exact_json.loads(row.network)),
                row.trace,
            )
        )
    return claimed


def sweep(until: datetime) -> None:
    """End the terminals of dead services, and those that no service has claimed. Called by workers.

    ``until``: the latest database time at which a missing renewal proves that a service is gone.
    """
    for row in list(_orphaned(until)[:_AT_ONCE]):
        ending.exited(row.pk, row.fence, None, message=NO_SERVICE_LEFT, lost=True)
        checkpoints.store(row.pk)
    for terminal in disposing.abandoned(_AT_ONCE):
        disposing.dispose_for_call(terminal)
    late = Terminal.objects.filter(state=TerminalState.REQUESTED, requested_at__lt=Now() - timedelta(seconds=START_SECONDS))
    for row in list(late.order_by("pk")[:_AT_ONCE]):
        ending.exited(row.pk, row.fence, None, message=NOT_STARTED)


def end_refused() -> None:
    """End the terminals of suspended tenants, and those that a revoked key has created, as turns are stopped for them.

    A terminal of a key that was rotated belongs to the keys that came after it.
    """
    valid = ApiKey.objects.annotate(of=Coalesce("line", "pk", output_field=BigIntegerField())).filter(
        of=OuterRef("line"), revoked_at=None
    )
    live = Terminal.objects.filter(state__in=[TerminalState.REQUESTED, TerminalState.RUNNING])
    for message, rows in ((SUSPENDED, live.filter(tenant__suspended_at__isnull=False)), (REVOKED, live.filter(~Exists(valid)))):
        for row in list(rows.order_by("pk")[:_AT_ONCE]):
            ending.exited(row.pk, row.fence, None, message=message)


def _orphaned(until: datetime) -> QuerySet[Terminal]:
    alive = TerminalService.objects.filter(service=OuterRef("service"), lease_expires_at__gte=Now())
    rows = Terminal.objects.filter(live_workers.not_after(until), ~Exists(alive), state=TerminalState.RUNNING)
    return rows.order_by("pk")


def dispose_old(excluded: Collection[int] = ()) -> list[int]:
    """Terminals that have exited long ago."""
    before = Now() - timedelta(seconds=settings.AGENTHOST_TERMINAL_EXITED_SECONDS)
    rows = Terminal.objects.filter(state=TerminalState.EXITED, exited_at__lt=before).exclude(pk__in=list(excluded))
    return list(rows.order_by("exited_at").values_list("pk", flat=True)[:_AT_ONCE])


def keep_house(this: maintenance.Round) -> int:
    """Dispose of old exited terminals, and clear away what is left of disposed ones; returns of how many."""
    this.for_each(dispose_old(this.skipped), disposing.dispose_row)
    gone = Terminal.with_disposed.filter(disposed_at__lt=Now() - _REMOVED_AFTER, kept=False).exclude(pk__in=list(this.skipped))
    return this.for_each(list(gone.order_by("disposed_at").values_list("pk", flat=True)[:_AT_ONCE]), _clear_away)


def _clear_away(terminal: int) -> bool:
    return keeping.keep(terminal) or remove(terminal)


def remove(terminal: int) -> bool:
    """Remove the rows and events of a disposed terminal."""
    journal.forget_session(journal_keys.of_terminal(terminal))
    with transaction.atomic():
        screens = TerminalScreen.objects.filter(pk=terminal).select_for_update()
        for counted, tenant, line in screens.values_list("counted", "terminal__tenant_id", "terminal__line"):
            usage_entries.record_output(tenant, line, -counted)
        TerminalScreen.objects.filter(pk=terminal).delete()
    Terminal.with_disposed.filter(pk=terminal, disposed_at__isnull=False).delete()
    return True
