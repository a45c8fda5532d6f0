"""Retention: deletes sessions that were not used for the number of days that their tenant sets.

Each session is deleted in its own transaction, as if by its client, and without waiting for locks. Tenants take turns by
batches, so a tenant with a million old sessions does not delay the others.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial

from sessions_app.core.base.maintenance import Round
from sessions_app.core.records import live_workers
from sessions_app.core.sessions import deleting
from sessions_app.models import Tenant

log = logging.getLogger(__name__)

BATCH = 100


def enforce(seconds: float) -> int:
    """Delete idle sessions for at most about ``seconds``; returns how many. The next round continues.

    A session that is locked or cannot be deleted does not stop the others.
    """
    this_round, now = Round(seconds), live_workers.database_clock()
    tenants = Tenant.objects.filter(session_retention_days__isnull=False).order_by("pk")
    due = [(row.pk, row.slug, row.session_retention_days or 0) for row in tenants]
    deleted: dict[str, int] = {}
    while due and not this_round.over:
        for each in list(due):
            tenant, slug, days = each
            since = now - timedelta(days=days)
            found = deleting.idle_sessions(tenant, since, BATCH, this_round.skipped)
            gone = this_round.for_each(found, partial(deleting.delete_idle, since=since))
            if gone:
                deleted[slug] = deleted.get(slug, 0) + gone
                log.info("idle_sessions_deleted tenant=%s days=%s count=%s (so far)", slug, days, deleted[slug])
            if len(found) < BATCH:
                due.remove(each)
    this_round.report("retention")
    return sum(deleted.values())
