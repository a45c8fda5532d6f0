"""Numbers after a restore: clients may have seen more of them than the restored counters know.

A counter never hands a number out twice: after a restore all counters leap beyond everything that can have been sent since the
backup, and the numbers between are recorded as a gap, so a position in it is answered as one whose events are gone.
"""

from __future__ import annotations

import math
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Max

from sessions_app.core.log.journal import dialect
from sessions_app.core.log.journal.postgres import LEAP
from sessions_app.models import Event, TenantCounter

MARGIN_SECONDS = 3600
"""For clocks that differ, and for what was under way when the backup was made."""
_MOST = 2**53 - 1
"""Clients in JavaScript count no further."""


class ClockWrong(Exception):
    """The backup is of the future, or so old that the numbers would not suffice."""


def leap_of(seconds: float) -> int:
    """More numbers than a tenant can have used in this time: a million a second. Measured are a fifth of that at most."""
    return (math.ceil(max(seconds, 0)) + MARGIN_SECONDS) * LEAP


def newest_event_at() -> datetime | None:
    """When the newest event of any tenant was stored; None if there is none."""
    newest = [
        Event.objects.filter(tenant_id=tenant, seq__lte=seq).order_by("-seq").values_list("at", flat=True).first()
        for tenant, seq in TenantCounter.objects.values_list("tenant_id", "seq")
    ]
    return max((at for at in newest if at is not None), default=None)


def leap(seconds: float) -> int:
    """In the caller's transaction: move every counter beyond what was sent in ``seconds``; returns how many counters moved.

    For a database that no other process uses.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("leap needs a transaction")
    wide = leap_of(seconds)
    largest = TenantCounter.objects.aggregate(largest=Max("seq"))["largest"] or 0
    if seconds < -MARGIN_SECONDS or largest + wide > _MOST:
        raise ClockWrong
    dialect.current().begin_era()
    target = f"(seq / {LEAP} + 1) * {LEAP} + %s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into journal_gap(tenant_id, after, upto) select tenant_id, seq, {target} from tenant_counter", (wide,)
        )
        era = f", era = {dialect.current().ERA}" if connection.vendor == "postgresql" else ""
        cursor.execute(f"update tenant_counter set seq = {target}{era}", (wide,))
        return int(cursor.rowcount)
