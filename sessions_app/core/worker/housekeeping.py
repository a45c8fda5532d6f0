"""Periodic deletion in batches: idle sessions, old events, deleted sessions, unused workspaces, records of dead processes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db.models.functions import Now

from sessions_app.core import figures
from sessions_app.core.base import database, lock_timeouts, redaction
from sessions_app.core.base.maintenance import Round
from sessions_app.core.base.session_locks import Lock, SessionLocks
from sessions_app.core.log import journal
from sessions_app.core.records import database_checks, dispatches, handshakes, idempotency, live_workers, search_index
from sessions_app.core.sessions import connections, tenant_deletion
from sessions_app.core.sessions.removing import BATCH, remove_session
from sessions_app.core.tenancy import audit_chain, audit_sinks, key_addresses, model_use, tokens, usage_entries, webhooks
from sessions_app.core.terminals import services as terminals
from sessions_app.core.worker import retention
from sessions_app.core.workspaces import upkeep
from sessions_app.models import Session, TenantDeletion

log = logging.getLogger(__name__)

_DEAD_AFTER = timedelta(hours=1)
_READERS_LEAVE_WITHIN = timedelta(minutes=1)
"""Streams that were open when a session was deleted have this long to read its last events."""
_SESSIONS_A_RUN = 200
_STEP_SECONDS = 20.0
_SINK_SECONDS = 25.0
_SLICE_SECONDS, _PAUSE_SHARE = 2.0, 0.25
"""Of the deletion of tenants, which goes on from one slice to the next."""
_LOCK_SECONDS = 0.5
"""The lock timeout of the few statements that cannot skip locked rows."""
_HANDSHAKES_KEPT = timedelta(days=90)
"""At least as long as events are kept by default: after that, a client is asked to introduce itself again."""
_DISPATCHES_KEPT = timedelta(days=1)
_DAYS_OF_TOKENS = timedelta(days=90)
_LOCK_LOST_AFTER_SECONDS = 60.0
"""A process that hangs within a step loses the lock of housekeeping after this."""


_pause = time.sleep


class _Rounds:
    """Rounds of one task, each in a thread of its own and in one process of the deployment at a time."""

    def __init__(self, name: str, lock: Lock, run: Callable[[Callable[[], bool]], object]) -> None:
        self._name, self._lock, self._run = name, lock, run
        self._running = threading.Lock()

    def start(self) -> None:
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._run_and_release, name=self._name, daemon=True).start()

    def _run_and_release(self) -> None:
        locks = SessionLocks(_LOCK_LOST_AFTER_SECONDS)
        try:
            self._run(lambda: locks.hold(self._lock))
        finally:
            locks.close()
            database.release()
            self._running.release()


def start() -> None:
    """Run one round in separate threads, unless one is running in any process: the caller has other tasks to handle."""
    _database.start()
    _workspaces.start()
    _audit_sinks.start()
    _deletions.start()


def run(may_run: Callable[[], bool] = lambda: True) -> None:
    """One round of all steps. It may be interrupted at any point; the next round continues.

    Each step has its own time limit, and an error in one does not stop the others. ``may_run`` is asked before each step.
    """
    for name, step in _STEPS:
        if not may_run():
            return
        try:
            with lock_timeouts.at_most(_LOCK_SECONDS):
                step()
        except Exception as error:  # the next round tries again
            log.error("housekeeping_failed step=%r: %s", name, redaction.described(error))


def keep_workspaces(may_run: Callable[[], bool] = lambda: True) -> None:
    """One round of the upkeep of workspaces. A disk that hangs does not stop the steps of ``run``."""
    if not upkeep.is_needed() or not may_run():
        return
    try:
        upkeep.run(_STEP_SECONDS, may_run)
    except Exception as error:  # the next round tries again
        log.error("housekeeping_failed step='workspaces': %s", redaction.described(error))


def send_audit(may_run: Callable[[], bool] = lambda: True) -> None:
    """One round of sending the audit to other systems. One that does not answer does not stop the steps of ``run``."""
    if not audit_sinks.configured() or not may_run():
        return
    try:
        audit_sinks.keep_up(_SINK_SECONDS, may_run)
    except Exception as error:  # the next round tries again
        log.error("housekeeping_failed step='audit sinks': %s", redaction.described(error))


def delete_tenants(may_run: Callable[[], bool] = lambda: True) -> None:
    """Continue the deletions that were begun until they are finished, in slices of a few seconds.

    Between two of them others get the database: the steps of ``run``, turns, and on SQLite whoever waits to write.
    """
    try:
        while may_run() and tenant_deletion.advance_all(_SLICE_SECONDS):
            database.release()
            _pause(_SLICE_SECONDS * _PAUSE_SHARE)
    except Exception as error:  # the next round tries again
        log.error("housekeeping_failed step='deletions of tenants': %s", redaction.described(error))


_database = _Rounds("housekeeping", Lock.HOUSEKEEPING, lambda may_run: run(may_run))  # noqa: PLW0108  # tests replace it
_workspaces = _Rounds("workspaces", Lock.WORKSPACES, keep_workspaces)
_audit_sinks = _Rounds("audit-sinks", Lock.AUDIT_SINKS, send_audit)
_deletions = _Rounds("tenant-deletions", Lock.DELETIONS, delete_tenants)


def _index_words() -> None:
    search_index.index(Round(_STEP_SECONDS), live_workers.database_clock())


def _forget_token_days() -> None:
    usage_entries.delete_days(usage_entries.today() - _DAYS_OF_TOKENS)


def _forget_model_use() -> None:
    model_use.delete_before(usage_entries.today() - timedelta(seconds=settings.AGENTHOST_USAGE_RETENTION_SECONDS))


def _empty_partitions() -> None:
    keep_for = min(settings.AGENTHOST_DELTA_RETENTION_SECONDS, settings.AGENTHOST_EVENT_RETENTION_SECONDS)
    emptied = journal.empty_partitions(live_workers.database_clock(), timedelta(seconds=keep_for), Round(_STEP_SECONDS))
    if emptied:
        log.info("event_partitions_emptied count=%s", emptied)


def _prune_events() -> None:
    this_round, now = Round(_STEP_SECONDS), live_workers.database_clock()
    pruned = journal.prune(
        now - timedelta(seconds=settings.AGENTHOST_DELTA_RETENTION_SECONDS),
        now - timedelta(seconds=settings.AGENTHOST_EVENT_RETENTION_SECONDS),
        BATCH,
        this_round,
    )
    this_round.report("events")
    if pruned:
        log.info("events_pruned count=%s", pruned)


def _remove_deleted() -> None:
    """Remove the rows of deleted sessions, as many as the time allows: retention may delete thousands in a round."""
    this_round, removed = Round(_STEP_SECONDS), 0
    while not this_round.over and (batch := _deleted(this_round.skipped)):
        removed += this_round.for_each(batch, remove_session)
    this_round.report("deleted sessions")
    if removed:
        search_index.purge_removed(Round(_STEP_SECONDS))
        log.info("sessions_removed count=%s", removed)


def _keep_terminals() -> None:
    this_round = Round(_STEP_SECONDS)
    removed = terminals.keep_house(this_round)
    this_round.report("terminals")
    if removed:
        log.info("terminals_removed count=%s", removed)


_STEPS: Sequence[tuple[str, Callable[[], object]]] = (
    ("figures", partial(figures.keep, _STEP_SECONDS)),
    ("usage", partial(usage_entries.fold_backlog, BATCH, _STEP_SECONDS)),
    ("search", _index_words),
    ("days of tokens", _forget_token_days),
    ("model use", _forget_model_use),
    ("partitions of events", _empty_partitions),
    ("events", _prune_events),
    ("deleted sessions", _remove_deleted),
    ("workers", partial(live_workers.delete_dead, _DEAD_AFTER)),
    ("terminal services", partial(terminals.delete_dead, _DEAD_AFTER)),
    ("terminals", _keep_terminals),
    ("connections", partial(connections.forget_dead, _DEAD_AFTER)),
    ("idempotency", idempotency.delete_old),
    ("short-lived tokens", tokens.delete_old),
    ("addresses of keys", key_addresses.delete_old),
    ("webhook deliveries", webhooks.delete_old),
    ("dispatches", partial(dispatches.delete_old, _DISPATCHES_KEPT)),
    ("handshakes", partial(handshakes.delete_old, _HANDSHAKES_KEPT)),
    ("audit", audit_chain.keep_up),
    ("retention", partial(retention.enforce, _STEP_SECONDS)),
    ("mark", database_checks.note_housekeeping),
)


def _deleted(excluded: Collection[int]) -> list[int]:
    rows = Session.with_deleted.filter(deleted_at__lt=Now() - _READERS_LEAVE_WITHIN).exclude(pk__in=list(excluded))
    # The deletion of a tenant counts its sessions before it removes them.
    rows = rows.exclude(tenant_id__in=TenantDeletion.objects.filter(finished_at=None).values("tenant_id"))
    return list(rows.order_by("deleted_at").values_list("pk", flat=True)[:_SESSIONS_A_RUN])
