"""Checks workers, beat, waiting turns, the volume of the workspaces, terminal services, and where the audit is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from agenthost.doctor.findings import Finding, fail, ok, warning
from agents_app import installation, queue_names
from sessions_app.core.records import database_checks, live_workers, queues
from sessions_app.core.tenancy import audit_sinks
from sessions_app.core.terminals import availability
from sessions_app.core.workspaces import volume

_LATE = timedelta(minutes=10)


def check() -> Iterator[Finding]:
    if database_checks.schema_fault() is not None:
        return
    yield check_workers()
    yield from check_queues()
    yield check_beat()


def check_workspaces() -> Iterator[Finding]:
    """Changes nothing: a volume that was never used is created by the server."""
    if settings.AGENTHOST_WORKSPACES_DIR is None or database_checks.schema_fault() is not None:
        return
    if not volume.was_used():
        yield ok("workspaces", "the volume has not been used yet")
    elif (fault := volume.fault(now=True)) is not None:
        yield fail("workspaces", fault.problem, fault.fix)
    else:
        yield ok("workspaces", f"the volume at {settings.AGENTHOST_WORKSPACES_DIR} is the one of this database")


def check_terminals() -> Iterator[Finding]:
    if not settings.AGENTHOST_TERMINALS or database_checks.schema_fault() is not None:
        return
    if reason := availability.reason():
        server = installation.role("embedded" if settings.AGENTHOST_MODE == "embedded" else "terminals")
        yield warning("terminals", f"Clients cannot create terminals: {reason}.", f"Its log says more: {server}")
    else:
        yield ok("terminals", "a terminal service is running")


def check_audit_sinks() -> Iterator[Finding]:
    """Whether the systems to which workers send the audit have it. Sends nothing."""
    if database_checks.schema_fault() is not None:
        return
    for sink in audit_sinks.standings():
        if sink.is_well:
            yield ok("audit", f"{sink.name} has the audit" + (f", except {sink.behind} new records" if sink.behind else ""))
            continue
        why = f"{sink.failures} attempts failed, the last one: {sink.error}" if sink.failures else "nothing is sent"
        behind = f"{sink.behind} records, the oldest of {sink.lag.total_seconds() / 60:.0f} minutes ago"
        yield warning("audit", f"The audit does not reach the {sink.name} ({behind}): {why}.", sink.advice)


def check_workers() -> Finding:
    alive, stuck = live_workers.workers_alive(), live_workers.turns_stuck()
    if alive:
        waiting = f"; {stuck} turns have waited for more than {live_workers.STUCK_AFTER_SECONDS} s" if stuck else ""
        return ok("workers", f"{alive} alive{waiting}")
    command = installation.role("embedded" if settings.AGENTHOST_MODE == "embedded" else "worker")
    detail = f"No worker is alive; {stuck} turns wait." if stuck else "No worker is alive."
    return (fail if settings.AGENTHOST_MODE == "production" else warning)("workers", detail, f"Start one: {command}")


def check_queues() -> Iterator[Finding]:
    """The queues besides the default one, which ``check_workers`` covers while no worker is alive at all."""
    found, alive = queues.unserved(), live_workers.workers_alive()
    for queue in found if alive else ():
        detail = f"No live worker serves the queue {queue.name}" + (f"; {queue.stuck} turns wait." if queue.stuck else ".")
        fix = (
            f"Start one: {installation.role(f'worker --queues {queue.name}')}; or correct the agents' queue or AGENTHOST_QUEUES."
        )
        yield (fail if queue.stuck else warning)("queues", detail, fix)
    if alive and not found and (names := queues.named() - {queue_names.DEFAULT}):
        yield ok("queues", f"each has a worker: {', '.join(sorted(names | {queue_names.DEFAULT}))}")


def check_beat() -> Finding:
    """The periodic duties leave no trace, so this checks the housekeeping that is started each minute."""
    last = database_checks.housekeeping_at()
    fix = (
        "A worker starts housekeeping each minute. Look for duty_not_published and housekeeping_failed in the workers' logs."
        if settings.AGENTHOST_MODE == "production"
        else "Housekeeping runs each minute while the server runs."
    )
    if last is None:
        return warning("beat", "Housekeeping has not run yet; it first runs within a minute of the start.", fix)
    ago = timezone.now() - last
    if ago > _LATE:
        return warning("beat", f"The last housekeeping was {ago.total_seconds() / 60:.0f} minutes ago.", fix)
    return ok("beat", f"housekeeping {max(0, ago.total_seconds()):.0f} s ago")
