"""What has to go, goes in batches: idle sessions, pruned events, rows of deleted sessions, workers long dead."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from sessions_app.core.base import database, lock_waits, redaction
from sessions_app.core.base.rounds import Round
from sessions_app.core.log import journal
from sessions_app.core.records import dispatches, idempotency, installation, live_workers
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import model_use, quotas
from sessions_app.core.worker import retention
from sessions_app.models import Session

log = logging.getLogger(__name__)

BATCH = 1000
_DEAD_AFTER = timedelta(hours=1)
_READERS_LEAVE_WITHIN = timedelta(minutes=1)
"""Streams that were open when a session was deleted still have to read its end."""
_SESSIONS_A_RUN = 200
_STEP_SECONDS = 20.0
_LOCK_SECONDS = 0.5
"""For statements that cannot skip what is locked; they are few."""
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
    finally:
        database.release()
        _at_work.release()


def run() -> None:
    """One round of all steps. Interrupted at any point it loses nothing: the next round goes on.

    Each step has its own time, and its errors are nobody else's.
    """
    for name, step in _STEPS:
        try:
            with lock_waits.waiting_at_most(_LOCK_SECONDS):
                step()
        except Exception as error:  # an edge: the next round tries again
            log.error("housekeeping_failed step=%r: %s", name, redaction.described(error))


def _fold_usage() -> None:
    until = time.monotonic() + _STEP_SECONDS
    while time.monotonic() < until and quotas.fold(BATCH):
        pass


def _forget_token_days() -> None:
    quotas.forget_days(quotas.today() - _DAYS_OF_TOKENS)


def _forget_model_use() -> None:
    model_use.forget_before(quotas.today() - timedelta(seconds=settings.AGENTHOST_USAGE_RETENTION_SECONDS))


def _prune_events() -> None:
    this, now = Round(_STEP_SECONDS), live_workers.database_clock()
    pruned = journal.prune(
        now - timedelta(seconds=settings.AGENTHOST_DELTA_RETENTION_SECONDS),
        now - timedelta(seconds=settings.AGENTHOST_EVENT_RETENTION_SECONDS),
        BATCH,
        this,
    )
    this.report("events")
    if pruned:
        log.info("housekeeping removed %s events", pruned)


def _remove_deleted() -> None:
    """As many as there is time for: retention may delete thousands in a round."""
    this, removed = Round(_STEP_SECONDS), 0
    while not this.over and (batch := _deleted(this.passed_over)):
        removed += this.each(batch, remove_session)
    this.report("deleted sessions")
    if removed:
        log.info("housekeeping removed %s deleted sessions", removed)


_STEPS: Sequence[tuple[str, Callable[[], object]]] = (
    ("usage", _fold_usage),
    ("days of tokens", _forget_token_days),
    ("model use", _forget_model_use),
    ("events", _prune_events),
    ("deleted sessions", _remove_deleted),
    ("workers", partial(live_workers.forget_dead, _DEAD_AFTER)),
    ("connections", partial(connections.forget_dead, _DEAD_AFTER)),
    ("idempotency", idempotency.forget_old),
    ("dispatches", partial(dispatches.forget_old, _DISPATCHES_KEPT)),
    ("retention", partial(retention.enforce, _STEP_SECONDS)),
    ("mark", installation.note_housekeeping),
)


def _deleted(besides: Collection[int]) -> list[int]:
    rows = Session.with_deleted.filter(deleted_at__lt=Now() - _READERS_LEAVE_WITHIN).exclude(pk__in=list(besides))
    return list(rows.order_by("deleted_at").values_list("pk", flat=True)[:_SESSIONS_A_RUN])


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
