"""Webhooks of a tenant: making, changing, rotating secrets, listing deliveries and repeating them.

Signatures follow Standard Webhooks (standardwebhooks.com), so that libraries of many languages check them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json
from agents_app.outbound import guard, target
from agents_app.outbound.target import AddressRefused
from sessions_app.core.base import maintenance, sealing
from sessions_app.core.base.caller import WEBHOOKS, Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible, WebhookNotFound
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import journal
from sessions_app.core.tenancy import audit
from sessions_app.models import DeliveryState, Tenant, Webhook, WebhookDelivery, WebhookSecret

TURN_ENDED, TURN_WAITING, QUOTA_REACHED, KEY_EXPIRING = "turn.ended", "turn.waiting", "quota.reached", "key.expiring"
TEST = "test"
TYPES = (TURN_ENDED, TURN_WAITING, QUOTA_REACHED, KEY_EXPIRING)
"""What a webhook can be sent. A test is sent to any."""
SECRET_PREFIX = "whsec_"  # noqa: S105 - not a secret
OVERLAP = timedelta(days=1)
"""How long the secret before signs as well after a rotation."""
TRIED_FOR = timedelta(days=1)
DISABLED_AFTER = timedelta(days=3)
"""A webhook that has failed for this long is disabled."""
PENDING_MOST = 10_000
"""Pending deliveries of one webhook. With more, new events are not recorded, and the webhook is disabled."""
TESTS_MOST = 100
"""Tests of one webhook that are not delivered yet."""
_KEPT = timedelta(days=14)
_LONGEST_URL = 2000


@dataclass(frozen=True, slots=True)
class Made:
    """A webhook with its secret, which is returned only when it is made or rotated."""

    webhook: Webhook
    secret: str = field(repr=False)


# --- managing --------------------------------------------------------------------------------------


def require(caller: Caller) -> None:
    """ScopeMissing or TokenLimited for callers that may not manage webhooks: these report about the whole tenant."""
    caller.require(WEBHOOKS)
    if caller.token or not caller.sight.is_whole:
        raise NotPossible(
            "webhooks report about the whole tenant, so a token or a key that is limited to agents cannot manage them"
        )


def create(tenant: int, *, url: str, types: Sequence[str], description: str, actor: str, address: str = "") -> Made:
    """Make a webhook; it gets what happens from now on. The paths of InvalidInput are ``url``, ``types``, ``description``."""
    _check(url, types, description)
    most = settings.AGENTHOST_TENANT_WEBHOOKS
    with transaction.atomic():
        owner = Tenant.objects.select_for_update(no_key=True).get(pk=tenant)
        if Webhook.objects.filter(tenant_id=tenant).count() >= most:
            raise NotPossible(f"this tenant has {most} webhooks, which is the limit (AGENTHOST_TENANT_WEBHOOKS); delete one")
        row = Webhook.objects.create(
            tenant_id=tenant,
            public_id=new_id("wh"),
            url=url,
            types=_in_order(types),
            description=description,
            position=journal.counter_and_sessions(tenant)[0],
            created_by=actor[:200],
        )
        secret = _add_secret(row)
        _record(audit.Action.WEBHOOK_CREATED, owner, row, actor, address)
    return Made(row, secret)


def change(
    row: Webhook, *, url: str, types: Sequence[str], description: str, enabled: bool, actor: str, address: str = ""
) -> Webhook:
    """Set all of these. Enabling a disabled webhook begins with what happens from now on."""
    _check(url, types, description)
    with transaction.atomic():
        locked = _locked(row)
        values: dict[str, object] = {"url": url, "types": _in_order(types), "description": description}
        if enabled and locked.disabled_at is not None:
            position = journal.counter_and_sessions(locked.tenant_id)[0]
            values |= {"disabled_at": None, "disabled_reason": "", "failing_since": None, "position": position}
        elif not enabled and locked.disabled_at is None:
            values |= {"disabled_at": Now(), "disabled_reason": "disabled by its owner"}
        Webhook.objects.filter(pk=row.pk).update(**values)
        _record(audit.Action.WEBHOOK_CHANGED, locked.tenant, locked, actor, address, f"{', '.join(sorted(values))}")
        return Webhook.objects.get(pk=row.pk)


def rotate(row: Webhook, *, actor: str, address: str = "") -> Made:
    """Give it a new secret. For a day the one before signs as well; older ones do not any more."""
    with transaction.atomic():
        locked = _locked(row)
        WebhookSecret.objects.filter(webhook=locked, expires_at__isnull=False).delete()
        WebhookSecret.objects.filter(webhook=locked).update(expires_at=Now() + OVERLAP)
        secret = _add_secret(locked)
        _record(audit.Action.WEBHOOK_CHANGED, locked.tenant, locked, actor, address, "a new secret")
    return Made(locked, secret)


def delete(row: Webhook, *, actor: str, address: str = "") -> None:
    with transaction.atomic():
        locked = _locked(row)
        _record(audit.Action.WEBHOOK_DELETED, locked.tenant, locked, actor, address)
        locked.delete()


def _locked(row: Webhook) -> Webhook:
    """The webhook, which nobody else changes in this transaction. WebhookNotFound if it has been deleted in the meantime."""
    found = Webhook.objects.select_for_update(of=("self",), no_key=True).select_related("tenant").filter(pk=row.pk).first()
    if found is None:
        raise WebhookNotFound
    return found


def of_tenant(tenant: int) -> list[Webhook]:
    return list(Webhook.objects.filter(tenant_id=tenant).order_by("-pk"))


def find(tenant: int, public_id: str) -> Webhook:
    """WebhookNotFound if the tenant has none with this id."""
    found = None if "\0" in public_id else Webhook.objects.filter(tenant_id=tenant, public_id=public_id).first()
    if found is None:
        raise WebhookNotFound
    return found


def _check(url: str, types: Sequence[str], description: str) -> None:
    faults = [
        Fault(("types",), f"there is no type {name!r}; the types are {', '.join(TYPES)}") for name in types if name not in TYPES
    ]
    if not types:
        faults.append(Fault(("types",), "name at least one type"))
    if len(description) > 200 or "\0" in description:
        faults.append(Fault(("description",), "has at most 200 characters, without U+0000"))
    if (wrong := url_fault(url)) is not None:
        faults.append(Fault(("url",), wrong))
    if faults:
        raise InvalidInput(faults)


def url_fault(url: str) -> str | None:
    """Why nothing can be sent to this address, as far as that is known without a look-up; None if it can be tried."""
    if len(url) > _LONGEST_URL:
        return f"has more than {_LONGEST_URL} characters"
    try:
        found = target.read(url)
    except AddressRefused as error:
        return error.reason
    policy = guard.current().policy
    if found.address is not None and not policy.opens(found.name, found.address):
        return "the address's host is not a public one"
    if found.address is None and not policy.may_ask_for(found.name):
        return "the address's host is unknown, or not a public one"
    if not found.secure and not any(entry.network is not None or entry.names(found.name) for entry in policy.allowances):
        return "must begin with https://"
    if not policy.may_use_port(found.port):
        return f"the port {found.port} is not one of those that may be used"
    return None


def _in_order(types: Sequence[str]) -> list[str]:
    return [name for name in TYPES if name in types]


def _record(action: audit.Action, tenant: Tenant, row: Webhook, actor: str, address: str, detail: str = "") -> None:
    target_name = f"webhook {row.public_id}"
    audit.record(actor=actor, address=address, action=action, target=target_name, tenant=tenant, detail=detail or row.url[:300])


# --- secrets and signatures ------------------------------------------------------------------------


def _add_secret(row: Webhook) -> str:
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    WebhookSecret.objects.create(tenant_id=row.tenant_id, webhook=row, sealed=sealing.seal(secret, _place(row.pk)))
    return secret


def _place(webhook: int) -> list[str | int]:
    return ["webhook", webhook]


def secrets_of(webhook: int) -> list[str]:
    """The secrets that sign now, the newest first."""
    valid = WebhookSecret.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), webhook_id=webhook)
    return [sealing.unseal(bytes(row.sealed), _place(webhook)) for row in valid.order_by("-pk")]


def expiries(row: Webhook) -> list[datetime | None]:
    """Until when each secret that signs now does so, the newest first; None: for ever."""
    valid = WebhookSecret.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), webhook=row)
    return list(valid.order_by("-pk").values_list("expires_at", flat=True))


def signatures(with_secrets: Sequence[str], event: str, timestamp: int, body: bytes) -> str:
    """The value of the header ``webhook-signature``: one signature for each secret."""
    signed = f"{event}.{timestamp}.".encode() + body
    keys = (base64.b64decode(secret.removeprefix(SECRET_PREFIX)) for secret in with_secrets)
    return " ".join("v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)


def reseal() -> Iterator[tuple[int, int]]:
    """As ``sealing.reseal``."""
    return sealing.reseal(WebhookSecret, lambda row: _place(row.webhook_id))


# --- deliveries ------------------------------------------------------------------------------------


def deliveries(row: Webhook, *, before: int | None = None, most: int = 50) -> list[WebhookDelivery]:
    """The newest first; ``before``: only those with a smaller row number."""
    rows = WebhookDelivery.objects.filter(webhook=row).order_by("-pk")
    return list((rows if before is None else rows.filter(pk__lt=before))[:most])


def repeat(row: Webhook, public_id: str) -> WebhookDelivery:
    """Send a delivery again now, and try for another day. WebhookNotFound if the webhook has none with this id."""
    rows = WebhookDelivery.objects.filter(webhook=row, public_id=public_id)
    values = {"state": DeliveryState.PENDING, "next_at": Now(), "until": Now() + TRIED_FOR, "claimed_until": None, "attempts": 0}
    with transaction.atomic():
        _require_enabled(_locked(row))
        if "\0" in public_id or not rows.update(**values):
            raise WebhookNotFound
        return rows.get()


def send_test(row: Webhook) -> WebhookDelivery:
    """Record an event of the type ``test`` for this webhook. NotPossible while too many of its tests are not delivered."""
    event = new_id("evt")
    with transaction.atomic():
        locked = _locked(row)
        _require_enabled(locked)
        waiting = WebhookDelivery.objects.filter(webhook=locked, type=TEST, state=DeliveryState.PENDING).values("pk")
        if waiting[TESTS_MOST - 1 : TESTS_MOST].exists():
            raise NotPossible(f"{TESTS_MOST} tests of this webhook are not delivered yet, which is the limit; wait for them")
        return WebhookDelivery.objects.create(
            tenant_id=locked.tenant_id,
            webhook=locked,
            public_id=new_id("dlv"),
            event=event,
            type=TEST,
            body=body_of(event, TEST, timezone.now(), {"webhook": locked.public_id}),
            until=Now() + TRIED_FOR,
        )


def _require_enabled(row: Webhook) -> None:
    if row.disabled_at is not None:
        raise NotPossible("the webhook is disabled; enable it first")


def body_of(event: str, kind: str, at: datetime, data: Mapping[str, object]) -> str:
    """``at`` without a zone is in UTC, as SQLite returns it for hand-written SQL."""
    moment = (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).isoformat().replace("+00:00", "Z")
    return exact_json.dumps({"id": event, "type": kind, "createdAt": moment, "data": dict(data)})


def delete_old() -> int:
    """Delete deliveries that ended two weeks ago, and secrets that sign no longer; returns the number of deliveries."""
    WebhookSecret.objects.filter(expires_at__lt=Now()).delete()
    return maintenance.delete_in_batches(
        WebhookDelivery.objects.exclude(state=DeliveryState.PENDING).filter(last_at__lt=Now() - _KEPT)
    )
