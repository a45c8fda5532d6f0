"""Limits on failed sign-ins, and the audit records of sign-ins.

Failures are counted per account and address, per address, and per account from all addresses. When a limit is reached, the
sign-ins that it covers are refused for the cool-off time, even with the right password. The limit per account from all
addresses does not cover addresses from which the account has signed in recently: otherwise anybody could lock an operator
out by failing on purpose.

An attempt is counted before its password is checked, and removed when it succeeds, so that parallel attempts cannot exceed a
limit. Times are the database's.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from axes.models import AccessAttempt
from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from sessions_app.core.base.client_networks import group_of
from sessions_app.core.tenancy import audit
from sessions_app.core.tenancy.audit import Action
from sessions_app.models import AuditRecord

log = logging.getLogger(__name__)

ANYBODY = "anonymous"
"""The actor of a failed sign-in: its client is not authenticated."""

_KNOWN_FOR = timedelta(days=30)
_KNOWN_ADDRESSES = 100
_EXPIRED_A_ROUND = 500
_NO_ADDRESS = "::"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to sign in to ``account`` from ``address``."""

    account: str
    address: str

    @property
    def counted_address(self) -> str:
        """The address that failures are stored under: of a network, its first address."""
        name = group_of(self.address).partition("/")[0]
        try:
            return str(ipaddress.ip_address(name))
        except ValueError:
            return _NO_ADDRESS


def begin(attempt: Attempt) -> timedelta | None:
    """Count an attempt; call this before the password is checked. Returns how long to wait if it is refused."""
    wait = _wait(attempt)
    if wait is None:
        _count(attempt)
        # This attempt itself may use up a limit, but not exceed it.
        wait = _wait(attempt, allowed=1)
    return wait


def fail(attempt: Attempt, reason: str = "") -> timedelta | None:
    """Record that an attempt failed. Returns how long to wait if it was the last one allowed."""
    audit.record(
        actor=ANYBODY,
        action=Action.SIGN_IN_FAILED,
        target=_target(attempt.account),
        address=attempt.address,
        detail=reason,
    )
    log.warning("sign_in_failed account=%r address=%s", attempt.account, attempt.address)
    wait = _wait(attempt)
    if wait is not None:
        audit.record(
            actor=ANYBODY,
            action=Action.SIGN_IN_LOCKED,
            target=_target(attempt.account),
            address=attempt.address,
            detail=f"refused for {round(wait.total_seconds())} s",
        )
        log.warning(
            "sign_in_locked account=%r address=%s seconds=%d", attempt.account, attempt.address, round(wait.total_seconds())
        )
    return wait


def succeed(attempt: Attempt, *, is_staff: bool = True, detail: str = "") -> None:
    """Record a sign-in. Failures of the same account from the same address are deleted, all others stay."""
    _counted().filter(username=attempt.account, ip_address=attempt.counted_address).delete()
    audit.record(
        actor=audit.actor_of(attempt.account, is_staff=is_staff),
        action=Action.SIGNED_IN,
        target=_target(attempt.account),
        address=attempt.address,
        detail=detail,
    )
    log.info("signed_in account=%r address=%s", attempt.account, attempt.address)


def confirmed(attempt: Attempt) -> None:
    """Delete the counted failures of a signed-in account that repeated its password or code."""
    _counted().filter(username=attempt.account, ip_address=attempt.counted_address).delete()


def ended(account: str, number: int, *, actor: str, address: str) -> None:
    """Record that an account signed out other browsers."""
    audit.record(actor=actor, action=Action.SESSIONS_ENDED, target=_target(account), address=address, detail=f"{number} sessions")


def unlock(account: str | None = None, address: str | None = None) -> int:
    """Delete counted failures, all of them or those of one account or address. Returns the number of rows."""
    rows = _counted()
    if account is not None:
        rows = rows.filter(username=account)
    if address is not None:
        rows = rows.filter(ip_address=Attempt("", address).counted_address)
    with transaction.atomic():
        count, _ = rows.delete()
        actor, origin = audit.acting_now()
        target = " ".join(filter(None, (account and _target(account), address and f"address {address}"))) or "all accounts"
        audit.record(actor=actor, action=Action.SIGN_IN_UNLOCKED, target=target, address=origin)
    return int(count)


def _target(account: str) -> str:
    return f"account {account}"


def _counted() -> QuerySet[Any]:
    found: QuerySet[Any] = AccessAttempt.objects.all()
    return found


def _cool_off() -> timedelta:
    return timedelta(seconds=settings.AGENTHOST_SIGN_IN_COOL_OFF_SECONDS)


def _count(attempt: Attempt) -> None:
    expired = _counted().filter(attempt_time__lte=Now() - _cool_off()).values_list("pk", flat=True)[:_EXPIRED_A_ROUND]
    _counted().filter(pk__in=list(expired)).delete()
    key = {"username": attempt.account, "ip_address": attempt.counted_address, "user_agent": ""}
    more = {"failures_since_start": F("failures_since_start") + 1, "attempt_time": Now()}
    if not _counted().filter(**key).update(**more):
        # A parallel attempt may create the row at the same moment.
        AccessAttempt.objects.bulk_create([AccessAttempt(**key, failures_since_start=0)], ignore_conflicts=True)
        _counted().filter(**key).update(**more)


def _wait(attempt: Attempt, *, allowed: int = 0) -> timedelta | None:
    """The time until no limit covers the attempt; None if none does. ``allowed``: by how much limits may be exceeded."""
    rows = _counted().filter(attempt_time__gt=Now() - _cool_off())
    of_address = rows.filter(ip_address=attempt.counted_address)
    waits = [
        _over(of_address.filter(username=attempt.account), settings.AGENTHOST_SIGN_IN_FAILURES + allowed),
        _over(of_address, settings.AGENTHOST_SIGN_IN_FAILURES_OF_ADDRESS + allowed),
    ]
    everywhere = _over(rows.filter(username=attempt.account), settings.AGENTHOST_SIGN_IN_FAILURES_OF_ACCOUNT + allowed)
    if everywhere is not None and not _is_known(attempt):
        waits.append(everywhere)
    return max((wait for wait in waits if wait is not None), default=None)


def _over(rows: QuerySet[Any], limit: int) -> timedelta | None:
    """The time until the rows have fewer failures than the limit; None if they have fewer now."""
    count = 0
    # Each row counts at least one failure.
    latest_first: QuerySet[Any, tuple[int, datetime, datetime]]
    latest_first = rows.order_by("-attempt_time").values_list("failures_since_start", "attempt_time", Now())
    for failures, at, now in latest_first[:limit]:
        count += failures
        if count >= limit:
            return max(at + _cool_off() - now, timedelta(seconds=1))
    return None


def _is_known(attempt: Attempt) -> bool:
    """Whether the account has signed in from this address recently."""
    signed_in = AuditRecord.objects.filter(
        actor__in=[audit.operator(attempt.account)[:200], audit.member(attempt.account)[:200]],
        action=Action.SIGNED_IN,
        at__gt=Now() - _KNOWN_FOR,
    )
    addresses = signed_in.order_by().values_list("address", flat=True).distinct()[:_KNOWN_ADDRESSES]
    return any(Attempt(attempt.account, address).counted_address == attempt.counted_address for address in addresses)
