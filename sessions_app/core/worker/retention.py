"""Retention: sessions that nobody has used for as long as their tenant keeps them are deleted.

Each in a transaction of its own, as its client would delete it, and without waiting for a lock. Tenants take turns, a
batch each, so one with a million old sessions does not keep the others' policies from being kept.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from sessions_app.core.base.rounds import Round
from sessions_app.core.records import live_workers
from sessions_app.core.sessions import deleting
from sessions_app.models import Tenant

log = logging.getLogger(__name__)

BATCH = 100


def enforce(seconds: float) -> int:
    """Delete what is due, for at most about so long; how many sessions. The next round goes on where this one stopped.

    A session that is locked or cannot be deleted keeps no other one.
    """
    this, now = Round(seconds), live_workers.database_clock()
    kept = Tenant.objects.filter(session_retention_days__isnull=False).order_by("pk")
    due = [(row.pk, row.slug, row.session_retention_days or 0) for row in kept]
    deleted: dict[str, int] = {}
    while due and not this.over:
        for each in list(due):
            tenant, slug, days = each
            since = now - timedelta(days=days)
            found = deleting.idle(tenant, since, BATCH, this.passed_over)
            gone = this.each(found, partial(deleting.delete_idle, since=since))
            if gone:
                deleted[slug] = deleted.get(slug, 0) + gone
                log.info("retention: tenant %s: %s sessions unused for %s days deleted so far", slug, deleted[slug], days)
            if len(found) < BATCH:
                due.remove(each)
    this.report("retention")
    return sum(deleted.values())
