"""What waits for somebody: turns, agents that fail, quotas near their limit, keys that expire, missing workers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now

from sessions_app.core.figures import reading
from sessions_app.core.records import live_workers, queues
from sessions_app.core.records.queues import Unserved
from sessions_app.core.tenancy import quotas
from sessions_app.models import ApiKey, Tenant, Turn, TurnState

KEYS_WITHIN = timedelta(days=14)
NEAR = 0.8
"""The share of a quota from which it is reported."""
_MOST = 5
_TENANTS_WITH_QUOTAS = 10
"""The usage of the busiest tenants is compared with their quotas; it costs some queries for each."""
_MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class NearLimit:
    tenant: Tenant
    title: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class Attention:
    workers: int
    stuck: int
    """Turns that are queued although they could run."""
    unserved: list[Unserved]
    """Queues without a worker."""
    running: int
    queued: int
    waiting: int
    waiting_longest: list[Turn]
    failing: list[reading.Busy]
    """Agents with errors in the last day."""
    near_limit: list[NearLimit]
    expiring: list[ApiKey]
    now: datetime

    @property
    def nothing(self) -> bool:
        waits = self.stuck or self.unserved or self.waiting
        return self.workers > 0 and not (waits or self.failing or self.near_limit or self.expiring)


def attention(tenants: Collection[int] | None = None) -> Attention:
    """``tenants``: only what is theirs; None: all."""
    live = _of(Turn.objects.all(), tenants)
    waiting = live.filter(state=TurnState.WAITING)
    longest = waiting.select_related("session", "tenant").defer("parts").order_by("queued_at", "pk")
    expiring = _of(ApiKey.objects.all(), tenants).select_related("tenant")
    soon = expiring.filter(revoked_at=None, expires_at__gt=Now(), expires_at__lt=Now() + KEYS_WITHIN)
    return Attention(
        workers=live_workers.workers_alive(),
        stuck=live_workers.turns_stuck() if tenants is None else 0,
        unserved=queues.unserved() if tenants is None else [],
        running=_counted(live.filter(state=TurnState.RUNNING)),
        queued=_counted(live.filter(state=TurnState.QUEUED)),
        waiting=_counted(waiting),
        waiting_longest=list(longest[:_MOST]),
        failing=reading.busiest("day", "agent", _MOST, tenants, failing=True),
        near_limit=_near_limit(tenants),
        expiring=list(soon.order_by("expires_at", "pk")[:_MOST]),
        now=live_workers.database_clock(),
    )


def _of(rows: QuerySet[Any], tenants: Collection[int] | None) -> QuerySet[Any]:
    return rows if tenants is None else rows.filter(tenant_id__in=tenants)


def _counted(rows: QuerySet[Turn]) -> int:
    """Their number, up to a limit: an operator acts on ten thousand waiting turns as on a million."""
    return rows.order_by().values("pk")[:_MOST_COUNTED].count()


def _near_limit(tenants: Collection[int] | None) -> list[NearLimit]:
    busiest = [busy.name for busy in reading.busiest("day", "tenant_id", _TENANTS_WITH_QUOTAS, tenants)]
    found = [
        NearLimit(tenant, use.title, use.used, use.limit)
        for tenant in Tenant.objects.filter(pk__in=busiest)
        for use in quotas.usage(tenant)
        if use.used is not None and use.limit and use.used >= NEAR * use.limit
    ]
    return sorted(found, key=lambda each: -each.used / each.limit)[:_MOST]
