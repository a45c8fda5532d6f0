"""Finds what webhooks are to be sent, and records it as deliveries.

The journal is the outbox: an event of a turn is written in the transaction of what it reports, whether the tenant has webhooks or
not, so no request or run writes anything for them. A worker reads the events behind a webhook's position, and stores deliveries
and the new position in one transaction. Quotas and keys that expire are looked at once a minute.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json
from sessions_app.core.base import lock_timeouts, raw_sql
from sessions_app.core.base.events import Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.tenancy import quotas, usage_entries, webhooks
from sessions_app.models import ApiKey, DeliveryState, Session, Tenant, Webhook, WebhookDelivery

_WEBHOOKS = 100
_EVENTS = 200
"""Events of one webhook that are recorded at once."""
_NUMBERS = 20_000
"""Event numbers of a tenant that are looked through at once, streamed text included."""
_EXPIRING = (timedelta(days=1), timedelta(days=7))
_COUNTED_QUOTAS = ("tokens_per_day", "sessions", "stored_bytes")

_BEHIND = """
select w.id, c.seq from sessions_app_webhook w join tenant_counter c on c.tenant_id = w.tenant_id
where w.disabled_at is null and c.seq > w.position order by w.id limit %s
"""
_FIRST = "select min(seq) from event where partition = 0 and tenant_id = %s and seq > %s"
_NEW = """
select seq, session_id, kind, data, at from event
where partition = 0 and tenant_id = %s and seq > %s and seq <= %s and kind in (%s, %s, %s, %s) order by seq limit %s
"""
_KINDS = (Kind.TURN_ENDED, Kind.TURN_FAILED, Kind.TURN_CANCELLED, Kind.RUN_PAUSED)


@dataclass(frozen=True, slots=True)
class _Event:
    id: str
    type: str
    body: str


def record_new() -> int:
    """Record what has happened in tenants with webhooks; returns the number of deliveries. One statement if nothing has."""
    return sum(_record_of(webhook, upto) for webhook, upto in raw_sql.rows(_BEHIND, (_WEBHOOKS,)))


def _record_of(webhook: int, upto: int) -> int:
    with transaction.atomic():
        row = (
            Webhook.objects.select_for_update(skip_locked=lock_timeouts.skip_locked(), of=("self",), no_key=True)
            .select_related("tenant")
            .filter(pk=webhook, disabled_at=None)
            .first()
        )
        if row is None or row.position >= upto:
            return 0
        # After a crash or a restore, there are numbers without events: after a restore, billions.
        ((first,),) = raw_sql.rows(_FIRST, (row.tenant_id, row.position))
        upto = upto if first is None else min(upto, first - 1 + _NUMBERS)
        found = raw_sql.rows(_NEW, (row.tenant_id, row.position, upto, *(kind.value for kind in _KINDS), _EVENTS))
        if len(found) == _EVENTS:
            upto = found[-1][0]
        recorded = _store(row, _of_turns(row, found))
        Webhook.objects.filter(pk=webhook).update(position=upto)
    return recorded


def _of_turns(row: Webhook, found: Sequence[tuple[Any, ...]]) -> list[_Event]:
    wanted = [each for each in found if _type_of(each[2]) in row.types]
    sessions = {
        pk: (public_id, agent)
        for pk, public_id, agent in Session.with_deleted.filter(pk__in={each[1] for each in wanted}).values_list(
            "pk", "public_id", "agent_name"
        )
    }
    events = []
    for seq, session, kind, text, at in wanted:
        if session not in sessions:
            # Removed meanwhile: nobody could ask for it.
            continue
        payload = exact_json.loads(text)
        public_id, agent = sessions[session]
        data = {"session": public_id, "agent": agent, "turn": payload["turn"], **_outcome(kind, payload)}
        events.append(
            _event(
                row.tenant,
                ("event", row.tenant_id, seq),
                _type_of(kind),
                at if isinstance(at, datetime) else datetime.fromisoformat(at),
                data,
            )
        )
    return events


def _type_of(kind: str) -> str:
    return webhooks.TURN_WAITING if kind == Kind.RUN_PAUSED else webhooks.TURN_ENDED


def _outcome(kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    match kind:
        case Kind.RUN_PAUSED:
            return {"status": "waiting"}
        case Kind.TURN_FAILED:
            return {"status": "error", "error": payload["error"], "resumable": bool(payload.get("resumable"))}
        case Kind.TURN_CANCELLED:
            return {"status": "cancelled"}
        case _:
            return {"status": "done", "stopReason": payload["reason"]}


def record_states() -> int:
    """Record reached quotas and keys about to expire, each once; returns the number of deliveries."""
    rows = Webhook.objects.filter(disabled_at=None, tenant__suspended_at=None).select_related("tenant")
    recorded = 0
    found: dict[tuple[int, str], list[_Event]] = {}
    for row in rows.order_by("pk").iterator(chunk_size=500):
        for kind, look in ((webhooks.QUOTA_REACHED, _reached), (webhooks.KEY_EXPIRING, _expiring)):
            if kind not in row.types:
                continue
            place = (row.tenant_id, kind)
            if place not in found:
                found[place] = list(look(row.tenant))
            if found[place]:
                with transaction.atomic():
                    recorded += _store(row, found[place])
    return recorded


def _reached(tenant: Tenant) -> Iterable[_Event]:
    for use in quotas.usage(tenant):
        if use.name in _COUNTED_QUOTAS and use.used is not None and use.limit is not None and use.used >= use.limit:
            # Once a day: more would be noise, and a limit that is reached again tomorrow is news.
            place = ("quota", tenant.pk, use.name, use.limit, usage_entries.today().isoformat())
            data = {"quota": use.name, "limit": use.limit, "used": use.used}
            yield _event(tenant, place, webhooks.QUOTA_REACHED, timezone.now(), data)


def _expiring(tenant: Tenant) -> Iterable[_Event]:
    now = timezone.now()
    keys = ApiKey.objects.filter(
        tenant=tenant, revoked_at=None, member=None, expires_at__gt=now, expires_at__lt=now + _EXPIRING[-1]
    )
    for key in keys.order_by("expires_at")[:100]:
        assert key.expires_at is not None
        left = next(each for each in _EXPIRING if key.expires_at < now + each)
        if left >= key.expires_at - key.created_at:
            # It was issued for less time than that.
            continue
        place = ("key", key.pk, key.expires_at.isoformat(), left.days)
        data = {"key": key.prefix, "name": key.name, "expiresAt": key.expires_at.isoformat()}
        yield _event(tenant, place, webhooks.KEY_EXPIRING, now, data)


def _event(tenant: Tenant, place: Sequence[object], kind: str, at: datetime, data: Mapping[str, Any]) -> _Event:
    """``place``: what it reports; the same gives the same id, so it is recorded once for each webhook."""
    secret = settings.SECRET_KEY.encode()
    event = "evt_" + hmac.digest(secret, ("webhook event\0" + repr(tuple(place))).encode(), hashlib.sha256).hex()[:32]
    return _Event(event, kind, webhooks.body_of(event, kind, at, {"tenant": tenant.slug, **data}))


def _store(row: Webhook, events: Sequence[_Event]) -> int:
    if not events:
        return 0
    pending = WebhookDelivery.objects.filter(webhook=row, state=DeliveryState.PENDING)
    if pending[webhooks.PENDING_MOST - 1 : webhooks.PENDING_MOST].exists():
        reason = f"{webhooks.PENDING_MOST:,} deliveries were waiting"
        Webhook.objects.filter(pk=row.pk).update(disabled_at=Now(), disabled_reason=reason)
        return 0
    made = [
        WebhookDelivery(
            tenant_id=row.tenant_id,
            webhook=row,
            public_id=new_id("dlv"),
            event=event.id,
            type=event.type,
            body=event.body,
            until=timezone.now() + webhooks.TRIED_FOR,
        )
        for event in events
    ]
    WebhookDelivery.objects.bulk_create(made, ignore_conflicts=True)
    return len(made)
