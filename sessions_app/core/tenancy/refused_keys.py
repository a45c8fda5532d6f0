"""Audit records of uses of keys that are not valid any more: revoked, expired, or of a suspended tenant.

At most one per key, network and hour, and about ``MOST`` an hour for each key. A key that never existed is no record: whoever
guesses keys must not write rows.
"""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import InternalError, OperationalError, transaction
from django.utils import timezone

from sessions_app.core.base import client_address
from sessions_app.core.base.client_networks import group_of
from sessions_app.core.tenancy import audit
from sessions_app.models import ApiKey, AuditRecord

log = logging.getLogger(__name__)

_Fact = tuple[int, str, int]
"""A key, a network and an hour."""
_NAMESPACE = uuid.UUID("5b0c5f0e-6a0d-4c0b-8f5d-2d6c0a4f3c11")
MOST = 32
"""Records of a key in an hour; some more if requests come at the same moment."""
_MOST_KNOWN = 10_000
_known: set[_Fact] = set()


def note(digest: str) -> None:
    """Record that a key with this digest was refused, if there is one."""
    row = ApiKey.objects.filter(digest=digest).select_related("tenant").first()
    if row is None:
        return
    address = client_address.current.get()
    now = timezone.now()
    fact = (row.pk, group_of(address), int(now.timestamp() // 3600))
    if fact in _known:
        return
    actor = f"key:{row.prefix}"
    try:
        with transaction.atomic():
            written = AuditRecord.objects.filter(actor=actor, action=audit.Action.KEY_REFUSED, at__gt=now - timedelta(hours=1))
            if written[MOST - 1 : MOST].exists():
                return
            last = "" if len(written[: MOST - 1]) < MOST - 1 else f"; the last of {MOST} within an hour"
            audit.record_once(
                uuid.uuid5(_NAMESPACE, " ".join(map(str, fact))),
                actor=actor,
                action=audit.Action.KEY_REFUSED,
                target=f"key {row.prefix}…",
                tenant_id=row.tenant_id,
                address=address,
                detail=f"{_reason(row)}; further uses from there within the hour are not recorded{last}",
            )
            transaction.on_commit(lambda: _remember(fact))
    except (OperationalError, InternalError) as error:
        # It is refused all the same.
        log.error("audit_refusal_not_recorded key=%s: %s", row.prefix, type(error).__name__)


def _remember(fact: _Fact) -> None:
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known.add(fact)


def _reason(row: ApiKey) -> str:
    if row.revoked_at is not None:
        return f"it was revoked at {_time(row.revoked_at)}"
    if row.tenant.suspended_at is not None:
        return "its tenant is suspended"
    return f"it expired at {_time(row.expires_at)}"


def _time(value: Any) -> str:
    assert isinstance(value, datetime)
    return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def forget_known() -> None:
    """For tests: clear the cache, as in a new process."""
    _known.clear()
