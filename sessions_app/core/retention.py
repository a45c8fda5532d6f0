"""Retention: sessions that nobody has used for as long as their tenant keeps them are deleted.

Each in a transaction of its own, as its client would delete it, so nobody waits. Tenants take turns, a batch
each, so one with a million old sessions does not keep the others' policies from being kept.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime, timedelta

from django.db import DatabaseError, InterfaceError, OperationalError
from django.utils import timezone

from sessions_app.core import journal, sessions
from sessions_app.models import Tenant

log = logging.getLogger(__name__)

BATCH = 100


def enforce(seconds: float) -> int:
    """Delete what is due, for at most about so long; how many sessions. The next round goes on where this one stopped."""
    until = time.monotonic() + seconds
    kept = Tenant.objects.filter(session_retention_days__isnull=False).order_by("pk")
    due = [(row.pk, row.slug, row.session_retention_days or 0) for row in kept]
    deleted: dict[str, int] = {}
    while due and time.monotonic() < until:
        for each in list(due):
            tenant, slug, days = each
            since = timezone.now() - timedelta(days=days)
            found = sessions.idle(tenant, since, BATCH)
            gone = 0
            for session in found:
                if time.monotonic() >= until:
                    break
                gone += _delete(session, since)
            if gone:
                deleted[slug] = deleted.get(slug, 0) + gone
                log.info("retention: tenant %s: %s sessions unused for %s days deleted so far", slug, deleted[slug], days)
            if len(found) < BATCH or not gone:
                due.remove(each)
    return sum(deleted.values())


def _delete(session: int, since: datetime) -> bool:
    try:
        return sessions.delete_idle(session, since)
    except (OperationalError, InterfaceError):
        raise
    except (DatabaseError, journal.MissingTail, journal.StaleFence) as error:
        # One session that cannot be deleted must not keep the others.
        log.error("retention: session %s could not be deleted: %s", session, type(error).__name__)
        return False
