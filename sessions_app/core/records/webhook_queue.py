"""The queue of deliveries: claiming them in fair shares, and storing how an attempt ended."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import Now, RowNumber
from django.utils import timezone

from sessions_app.core.base import lock_timeouts
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.tenancy import webhooks
from sessions_app.models import DeliveryState, Webhook, WebhookDelivery

_CLAIMED_FOR = timedelta(seconds=60)
"""Longer than an attempt takes. After this time its worker is dead."""
PAUSES = (5.0, 30.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
"""Seconds until the next attempt; the last one is repeated."""
_GONE = 410


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that this worker sends now."""

    pk: int
    tenant: int
    webhook: int
    url: str
    event: str
    body: str = field(repr=False)
    secrets: list[str] = field(repr=False, default_factory=list)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt ended. ``status`` None: there was no answer, and ``answer`` has the reason."""

    status: int | None
    answer: str
    took_ms: int

    @property
    def succeeded(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def claim(most: int, per_tenant: int, full: Collection[int] = ()) -> list[Claimed]:
    """Claim due deliveries, at most ``per_tenant`` of each tenant, none of ``full``; the tenants come in turn."""
    with transaction.atomic():
        nth = Window(RowNumber(), partition_by=[F("tenant_id")], order_by=[F("next_at"), F("pk")])
        ranked = _due().exclude(tenant_id__in=list(full)).annotate(nth=nth).filter(nth__lte=per_tenant).order_by("nth", "next_at")
        wanted = list(ranked.values_list("pk", flat=True)[:most])
        if not wanted:
            return []
        rows = _due().filter(pk__in=wanted).select_related("webhook")
        locked = list(rows.select_for_update(skip_locked=lock_timeouts.skip_locked(), of=("self",), no_key=True))
        chosen = WebhookDelivery.objects.filter(pk__in=[row.pk for row in locked])
        chosen.update(claimed_until=Now() + _CLAIMED_FOR, attempts=F("attempts") + 1)
    secrets = {webhook: webhooks.secrets_of(webhook) for webhook in {row.webhook_id for row in locked}}
    return [
        Claimed(row.pk, row.tenant_id, row.webhook_id, row.webhook.url, row.event, row.body, secrets[row.webhook_id])
        for row in locked
    ]


def _due() -> QuerySet[WebhookDelivery]:
    free = Q(claimed_until=None) | Q(claimed_until__lt=Now())
    rows = WebhookDelivery.objects.filter(free, state=DeliveryState.PENDING, next_at__lte=Now())
    return rows.filter(webhook__disabled_at=None, tenant__suspended_at=None)


def store(claimed: Claimed, attempt: Attempt) -> None:
    """Store an attempt, and when the next one is due."""
    with transaction.atomic():
        webhook = Webhook.objects.select_for_update(no_key=True).filter(pk=claimed.webhook).first()
        row = WebhookDelivery.objects.select_for_update(no_key=True).filter(pk=claimed.pk).first()
        if webhook is None or row is None:
            return
        row.status, row.took_ms, row.last_at, row.claimed_until = attempt.status, attempt.took_ms, timezone.now(), None
        row.answer = UNSTORABLE.sub("\ufffd", attempt.answer)
        if attempt.succeeded:
            row.state = DeliveryState.DELIVERED
        else:
            row.next_at = timezone.now() + _pause(row.attempts)
            if row.next_at > row.until:
                row.state = DeliveryState.FAILED
        row.save()
        _judge(webhook, attempt)


def _pause(attempts: int) -> timedelta:
    """Some percent longer or shorter, so that deliveries that failed together do not come together again."""
    seconds = PAUSES[min(max(attempts, 1), len(PAUSES)) - 1]
    return timedelta(seconds=seconds * random.uniform(0.9, 1.1))  # noqa: S311 - not secret


def _judge(webhook: Webhook, attempt: Attempt) -> None:
    """Remember since when the webhook has failed; disable one that has failed for days, or says that it is gone."""
    if webhook.disabled_at is not None:
        return
    rows = Webhook.objects.filter(pk=webhook.pk)
    if attempt.succeeded:
        if webhook.failing_since is not None:
            rows.update(failing_since=None)
        return
    since = webhook.failing_since or timezone.now()
    reason = ""
    if attempt.status == _GONE:
        reason = "it answered 410 Gone"
    elif timezone.now() - since >= webhooks.DISABLED_AFTER:
        reason = f"every attempt has failed since {since:%Y-%m-%d %H:%M} UTC; the last one: {attempt.status or attempt.answer}"
    if reason:
        rows.update(failing_since=since, disabled_at=Now(), disabled_reason=reason[:300])
    elif webhook.failing_since is None:
        rows.update(failing_since=since)
