"""What has to go, goes in batches: idle sessions, pruned events, rows of deleted sessions, workers long dead."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from sessions_app.core import (
    connections,
    database,
    dispatches,
    faults,
    idempotency,
    installation,
    journal,
    model_use,
    presence,
    quotas,
    retention,
)
from sessions_app.models import Session

log = logging.getLogger(__name__)

BATCH = 1000
_DEAD_WORKERS_AFTER = timedelta(hours=1)
_READERS_LEAVE_WITHIN = timedelta(minutes=1)
"""Streams that were open when a session was deleted still have to read its end."""
_SESSIONS_A_RUN = 200
_RETENTION_SECONDS = 20.0
_REMOVAL_SECONDS = 20.0
_DISPATCHES_KEPT = timedelta(days=1)
_DAYS_OF_TOKENS = timedelta(days=90)


_at_work = threading.Lock()


def start() -> None:
    """One round in a thread of its own, unless one is under way here: whoever asks has others to wake meanwhile."""
    if _at_work.acquire(blocking=False):
        threading.Thread(target=_run_and_release, name="housekeeping", daemon=True).start()


def _run_and_release() -> None:
    try:
        run()
    except Exception as error:  # an edge: the next round tries again
        log.error("housekeeping failed: %s", faults.described(error))
    finally:
        database.release()
        _at_work.release()


def run() -> None:
    """One round. Interrupted at any point it loses nothing: the next round goes on."""
    now = timezone.now()
    while quotas.fold(BATCH):
        pass
    quotas.forget_days(quotas.today() - _DAYS_OF_TOKENS)
    oldest = quotas.today() - timedelta(seconds=settings.AGENTHOST_USAGE_RETENTION_SECONDS)
    while model_use.forget_before(oldest, BATCH) == BATCH:
        pass
    events = journal.prune(
        now - timedelta(seconds=settings.AGENTHOST_DELTA_RETENTION_SECONDS),
        now - timedelta(seconds=settings.AGENTHOST_EVENT_RETENTION_SECONDS),
        BATCH,
    )
    sessions = _remove_deleted()
    presence.forget_dead(_DEAD_WORKERS_AFTER)
    connections.forget_dead(_DEAD_WORKERS_AFTER)
    while idempotency.forget_old(BATCH) == BATCH:
        pass
    while dispatches.forget_old(now - _DISPATCHES_KEPT, BATCH) == BATCH:
        pass
    if events or sessions:
        log.info("housekeeping removed %s events and %s deleted sessions", events, sessions)
    retention.enforce(_RETENTION_SECONDS)
    installation.note_housekeeping()


def _remove_deleted() -> int:
    """As many as there is time for: retention may delete thousands in a round."""
    until, removed = time.monotonic() + _REMOVAL_SECONDS, 0
    while batch := _deleted():
        for session in batch:
            if time.monotonic() >= until:
                return removed
            removed += remove_session(session)
    return removed


def _deleted() -> list[int]:
    rows = (
        Session.with_deleted.filter(deleted_at__lt=timezone.now() - _READERS_LEAVE_WITHIN)
        .order_by("deleted_at")
        .values_list("pk", flat=True)
    )
    return list(rows[:_SESSIONS_A_RUN])


_OWNED = (
    "sessions_app_message",
    "sessions_app_toolcall",
    "sessions_app_compaction",
    "sessions_app_optionvalue",
    "sessions_app_form",
    "sessions_app_pendingmessage",
    "sessions_app_deferredmodel",
    "sessions_app_sessionclient",
    "sessions_app_address",
    "sessions_app_turn",
)


def remove_session(session: int) -> bool:
    """Delete a deleted session's rows, a batch a statement, so that nobody waits for a long transaction."""
    with connection.cursor() as cursor:
        for table in _OWNED:
            while True:
                cursor.execute(
                    f"delete from {table} where id in (select id from {table} where session_id = %s limit {BATCH})", [session]
                )
                if cursor.rowcount < BATCH:
                    break
        cursor.execute(
            "delete from sessions_app_usagetotal where measure = 'session' and key_id = %s"
            " and tenant_id = (select tenant_id from sessions_app_session where id = %s)",
            [session, session],
        )
    journal.forget_session(session)
    Session.with_deleted.filter(pk=session, deleted_at__isnull=False).delete()
    return True
