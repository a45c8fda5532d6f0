"""The queues of an installation: those that its agents name, its workers serve and its turns are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Min, Q
from django.db.models.functions import Now

from agents_app import registry
from sessions_app.core.records import live_workers
from sessions_app.models import DEFAULT_QUEUE, TURN_FORMAT, Turn, TurnState, WorkerPresence


@dataclass(frozen=True, slots=True)
class Unserved:
    """A queue that no live worker serves. ``stuck``: its turns that have waited for STUCK_AFTER_SECONDS."""

    name: str
    stuck: int


def named() -> set[str]:
    """The default queue, and those of this process's agents."""
    return {DEFAULT_QUEUE, *(spec.queue for spec in registry.described().values())}


@dataclass(frozen=True, slots=True)
class Served:
    """How many live workers serve each queue. ``all``: so many serve every one."""

    each: Mapping[str, int]
    all: int

    def workers(self, queue: str) -> int:
        return self.each.get(queue, 0) + self.all


def served() -> Served:
    alive = WorkerPresence.objects.filter(seen_at__gt=Now() - timedelta(seconds=settings.AGENTHOST_LEASE_SECONDS))
    names = Counter(name for queues in alive.values_list("queues", flat=True) for name in queues.split(","))
    everything = names.pop(live_workers.ALL_QUEUES, 0)
    return Served(names, everything)


def unserved() -> list[Unserved]:
    """The queues that no live worker serves, by name, if an agent of this process names them or turns wait in them."""
    workers = served()
    if workers.all:
        return []
    since = Now() - timedelta(seconds=live_workers.STUCK_AFTER_SECONDS)
    waits = Q(state=TurnState.QUEUED, format__lte=TURN_FORMAT, queued_at__lt=since)
    # The runs of workers that are gone wait too: only a worker of their queue takes them over.
    elsewhere = Turn.objects.exclude(queue__in=[name for name, number in workers.each.items() if number])
    stuck = dict(elsewhere.filter(waits | Q(state=TurnState.RUNNING)).values_list("queue").annotate(Count("pk")).order_by())
    return [Unserved(name, stuck.get(name, 0)) for name in sorted(named() | stuck.keys()) if not workers.workers(name)]


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """``oldest``: seconds that the oldest queued turn has waited."""

    name: str
    queued: int = 0
    running: int = 0
    oldest: float = 0.0
    workers: int = 0


def figures(now: datetime) -> list[QueueFigures]:
    """Each queue that an agent of this process names, a live worker serves or a turn is in, by name."""
    workers = served()
    working = Turn.objects.filter(state__in=[TurnState.QUEUED, TurnState.RUNNING]).values("queue", "state")
    found = {(row["queue"], row["state"]): row for row in working.annotate(number=Count("pk"), oldest=Min("queued_at"))}
    names = named() | workers.each.keys() | {queue for queue, _ in found}

    def number(name: str, state: TurnState) -> int:
        return int(found[name, state]["number"]) if (name, state) in found else 0

    def oldest(name: str) -> float:
        row = found.get((name, TurnState.QUEUED))
        return 0.0 if row is None else max(0.0, (now - row["oldest"]).total_seconds())

    return [
        QueueFigures(name, number(name, TurnState.QUEUED), number(name, TurnState.RUNNING), oldest(name), workers.workers(name))
        for name in sorted(names)
    ]
