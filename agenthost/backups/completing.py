"""Completes a restore of any kind: event numbers, turns, keys, audit. Afterwards processes may start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from agenthost.backups import workspaces
from agenthost.backups.errors import BackupError
from agenthost.backups.streams import Report
from agenthost.doctor.findings import Finding, fail, ok, warning
from sessions_app.core import turns
from sessions_app.core.base import sealing
from sessions_app.core.log.journal import restored
from sessions_app.core.records import database_checks, live_workers, options
from sessions_app.core.records.database_checks import RestoreMark
from sessions_app.core.tenancy import audit, audit_chain, definitions
from sessions_app.core.workspaces import places, volume
from sessions_app.management import sealed_values
from sessions_app.models import ApiKey, Turn, TurnState, Workspace

_MOST_BREAKS = 20


@dataclass(frozen=True, slots=True)
class Wish:
    """``keep_turns``: turns that were queued or running go on, as after a crash, instead of ending."""

    actor: str
    address: str
    keep_turns: bool = False


def complete(wish: Wish, report: Report) -> Iterator[Finding]:
    """Do what is left after a restore, and check the result. Can be repeated if it was interrupted.

    Findings that fail are reported, and do not stop it: the database is what was backed up.
    """
    if (schema := database_checks.schema_fault()) is not None:
        raise BackupError(str(schema))
    if faults := database_checks.key_faults():
        raise BackupError(" ".join(map(str, faults)))
    mark = database_checks.restore_mark()
    # A database with the mark is used by none; it may have those of the moment of the backup.
    if mark is None and live_workers.workers_alive():
        raise BackupError("Workers use this database. Stop all processes, wait for the time of a lease, and repeat this.")
    mark = mark or RestoreMark("", _newest_moment().isoformat())
    if not mark.leapt:
        yield _leap(mark)
    yield _end_turns(wish, report)
    if connection.vendor == "postgresql":
        # A restored table has no statistics, and the planner would read all of it.
        with connection.cursor() as cursor:
            cursor.execute("analyze")
    yield from _check_secrets()
    yield from _check_audit()
    yield from _check_workspaces()
    with transaction.atomic():
        database_checks.end_restore()
        target = mark.backup or "a physical backup"
        audit.record(
            actor=wish.actor, address=wish.address, action=audit.Action.DATABASE_RESTORED, target=target, detail=f"of {mark.at}"
        )
    yield ok("restore", f"complete: the database of {mark.at} can be used")


def _newest_moment() -> datetime:
    """The last moment that the database knows of; housekeeping notes one every minute."""
    known = [at for at in (database_checks.housekeeping_at(), restored.newest_event_at()) if at is not None]
    return max(known, default=timezone.now())


def _leap(mark: RestoreMark) -> Finding:
    seconds = (live_workers.database_clock() - mark.made_at).total_seconds()
    try:
        with transaction.atomic():
            count = restored.leap(seconds)
            database_checks.mark_restore(RestoreMark(mark.backup, mark.at, leapt=True))
    except restored.ClockWrong:
        raise BackupError(
            f"The database is of {mark.at}, which does not fit the clock of its server. Correct the clock, and repeat this."
        ) from None
    ago = timedelta(seconds=round(seconds))
    return ok("positions", f"{count} tenants continue beyond what clients can have seen in the {ago} since the backup")


def _end_turns(wish: Wish, report: Report) -> Finding:
    live = Turn.objects.filter(state__in=[TurnState.QUEUED, TurnState.RUNNING])
    waiting = Turn.objects.filter(state=TurnState.WAITING).count()
    if wish.keep_turns:
        return ok("turns", f"{live.count()} turns go on as after a crash, {waiting} wait for their clients")
    ended = 0
    for turn in list(live.order_by("pk").values_list("pk", flat=True)):
        ended += turns.stop(turn, turns.Stop(cause="interrupted", reason="error")) is not None
        if ended and ended % 1000 == 0:
            report(f"{ended} turns ended …")
    return ok("turns", f"{ended} turns that were queued or running have ended as interrupted, {waiting} wait for their clients")


def _check_secrets() -> Iterator[Finding]:
    """Every value's key is in the ring, and of each kind the newest value opens; keys of clients are hashes and need none."""
    ring = set(sealing.key_ids())
    lost = sum(sum(counts.values()) for key, counts in sealed_values.counts_by_key().items() if key not in ring)
    if lost:
        yield warning("secrets", f"{lost} sealed values have keys that are not in the ring.", "Add the keys to its end.")
    if options.newest_opens() and definitions.newest_opens():
        yield ok("secrets", "a sample of the sealed values opens")
    elif not lost:
        yield fail("secrets", "The newest sealed values do not open.", "Restore another copy of the backup.")
    usable = ApiKey.objects.filter(revoked_at=None).exclude(expires_at__lte=Now()).count()
    yield ok("keys", f"{usable} API keys can be used; those revoked after the backup are among them")


def _check_audit() -> Iterator[Finding]:
    count = 0
    for found in audit_chain.verify():
        count += 1
        if count > _MOST_BREAKS:
            break
        yield fail("audit", str(found), "")
    if not count:
        yield ok("audit", "the chains are whole")


def _check_workspaces() -> Iterator[Finding]:
    if not places.are_there():
        return
    if (fault := volume.fault(now=True)) is not None:
        yield fail("workspaces", fault.problem, fault.fix)
        return
    wanted = list(Workspace.objects.filter(removed_at=None).values_list("tenant_id", "public_id"))
    without = workspaces.missing(wanted)
    yield ok("workspaces", f"{len(wanted) - without} of {len(wanted)} have files; the others begin empty, or with their template")
