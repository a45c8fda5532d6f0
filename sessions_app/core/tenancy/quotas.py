"""Quotas: the limits of tenants and keys, and the checks of requests against them.

Usage that must be exact is counted in the transaction of the change: sessions, bytes and tokens in entries
(usage_entries.py), concurrent turns from the turn rows. A request under a limit first writes, then takes the tenant's quota
lock (the last lock before the journal's), then counts, itself included: of two parallel requests the second waits for the
COMMIT of the first and sees it. Without a limit there is no lock. Rates are counted in rates.py. See docs/decisions/0008.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Q, QuerySet
from django.utils import timezone

from sessions_app.core.base import loop_calls, metrics, raw_sql
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.base.errors import Fault, InvalidInput, QuotaExceeded
from sessions_app.core.base.loop_calls import Repeat
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import rates, usage_entries
from sessions_app.models import ApiKey, Measure, Tenant, Turn, TurnState

log = logging.getLogger(__name__)

MOST = 2**63 - 1


class Quota(StrEnum):
    TURNS_AT_ONCE = "turns-at-once"
    TURNS_PER_MINUTE = "turns-per-minute"
    TOKENS_PER_DAY = "tokens-per-day"
    SESSIONS = "sessions"
    STORED_BYTES = "stored-bytes"
    STREAMS_AT_ONCE = "streams-at-once"
    CONNECTIONS_AT_ONCE = "connections-at-once"


_DAY_SECONDS = 86_400
_RETRY_TURN_SECONDS = 2
"""When to retry a turn over the limit of concurrent turns: turns are short."""
_RETRY_ROOM_SECONDS = 60
"""When to retry a request that needs something to be deleted first."""


# --- limits --------------------------------------------------------------------------------------

NAMES = tuple(field.name for field in fields(Limits))


def column(name: str) -> str:
    """The column of tenants and keys that holds this limit."""
    return f"max_{name}"


COLUMNS = tuple(column(name) for name in NAMES)


def with_defaults(own: Sequence[int | None]) -> Limits:
    """A tenant's limits from the values of its columns; the server's defaults where it has none."""
    defaults: Mapping[str, int | None] = settings.AGENTHOST_QUOTAS
    return Limits(*[defaults.get(name) if value is None else value for name, value in zip(NAMES, own, strict=True)])


def limits_of_tenant(tenant: Tenant) -> Limits:
    """The tenant's limits; the server's defaults where it has none."""
    return with_defaults([getattr(tenant, each) for each in COLUMNS])


def own_limits(row: Tenant | ApiKey) -> Limits:
    """The limits that are set on this row, without defaults."""
    return Limits(**{name: getattr(row, column(name)) for name in NAMES})


def columns(limits: Limits) -> dict[str, int | None]:
    """The limits by column name, validated; the path of InvalidInput is the column."""
    values = {column(name): getattr(limits, name) for name in NAMES}
    faults = [
        Fault((name,), "a limit is a whole number of at least 0, or empty")
        for name, value in values.items()
        if value is not None and not 0 <= value <= MOST
    ]
    if faults:
        raise InvalidInput(faults)
    return values


def differences(before: Limits, after: Limits) -> list[str]:
    """The changed limits as texts for the audit."""
    return [
        f"{name} {_or_none(getattr(before, name))} -> {_or_none(getattr(after, name))}"
        for name in NAMES
        if getattr(before, name) != getattr(after, name)
    ]


def _or_none(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def largest_request(caller: Caller) -> int | None:
    """The largest request body that this caller may send, in bytes."""
    both = [limits.request_bytes for limits in (caller.tenant_limits, caller.key_limits) if limits.request_bytes is not None]
    return min(both, default=None)


# --- checking a request --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RateStatus:
    """The state of a rate limit after a request, for response headers. ``seconds``: until a slot is free."""

    quota: Quota
    of_key: bool
    limit: int
    left: int
    seconds: int
    window: int


Read = Callable[[Sequence[Statement]], list[Rows]]
"""Runs queries in order, and returns the rows of each."""


@dataclass(frozen=True, slots=True)
class _Count:
    """A limit, and the query that counts what it limits, this request included."""

    quota: Quota
    limit: int
    of_key: bool
    retry_after: int
    query: Statement


_LOCK = "select pg_advisory_xact_lock(%s)"
_LIVE = """select count(*) from (
 select 1 from sessions_app_turn where tenant_id = %s and state in ('queued', 'running') limit %s) as live"""
_LIVE_OF_KEY = _LIVE.replace(" limit", " and api_key_id in (select id from sessions_app_apikey where id = %s or line = %s) limit")


class QuotaCheck:
    """Checks the quotas of one request within its transaction. Use it through ``check``."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._taken: rates.Taken | None = None
        self.rate_statuses: tuple[RateStatus, ...] = ()

    def turn_queries(self) -> list[Statement]:
        """The queries of ``take_turn``, for a caller that sends others with them."""
        limited = self._limited("tokens_per_day")
        return [usage_entries.used_query(self._caller.tenant, Measure.TOKENS, self._key(of_key)) for of_key, _ in limited]

    def take_turn(self, found: Sequence[Rows] | None = None) -> None:
        """Check the turn rate and the day's tokens. Call it before anything is written, and not for a repeated request.

        ``found``: the rows of ``turn_queries``, if they were sent already.
        """
        self.take_rate()
        if found is None:
            queries = self.turn_queries()
            found = raw_sql.rows_of_each(queries) if queries else []
        for (of_key, limit), rows in zip(self._limited("tokens_per_day"), found, strict=True):
            if int(rows[0][0]) >= limit:
                raise QuotaExceeded(Quota.TOKENS_PER_DAY, limit, seconds_to_midnight(), of_key=of_key, window=_DAY_SECONDS)

    def admit_turn(self, read: Read = raw_sql.rows_of_each) -> None:
        """Check concurrent turns and stored bytes, this request's included.

        Call it after everything is written and before the journal's locks. ``read`` runs the queries; if writes were
        postponed, it performs them before.
        """
        self._admit(read, [*self._turns_at_once(), *self._stored_bytes()])

    def admit_session(self, read: Read = raw_sql.rows_of_each) -> None:
        """Check the number of sessions and stored bytes, this request's included; called like ``admit_turn``."""
        counted = self._counted("sessions", Quota.SESSIONS, Measure.SESSIONS)
        self._admit(read, [*counted, *self._stored_bytes()])

    def admit_bytes(self, grown: int) -> None:
        """Check stored bytes after a change of ``grown`` bytes; called like ``admit_turn``. A decrease is never refused."""
        if grown > 0:
            self._admit(raw_sql.rows_of_each, self._stored_bytes())

    def _admit(self, read: Read, counts: Sequence[_Count]) -> None:
        """Take the tenant's quota lock until COMMIT, which follows soon, and then count."""
        if not counts:
            return
        # Each statement sees everything that was committed before it began, so the counts see all that the lock waited for.
        lock = [Statement(_LOCK, (_GATE | self._caller.tenant,))] if connection.vendor == "postgresql" else []
        found = read([*lock, *(count.query for count in counts)])[len(lock) :]
        for count, rows in zip(counts, found, strict=True):
            if int(rows[0][0]) > count.limit:
                raise QuotaExceeded(count.quota, count.limit, count.retry_after, of_key=count.of_key)

    def _turns_at_once(self) -> list[_Count]:
        tenant, line = self._caller.tenant, self._caller.line
        return [
            _Count(
                Quota.TURNS_AT_ONCE,
                limit,
                of_key,
                _RETRY_TURN_SECONDS,
                Statement(_LIVE_OF_KEY, (tenant, line, line, limit + 1)) if of_key else Statement(_LIVE, (tenant, limit + 1)),
            )
            for of_key, limit in self._limited("turns_at_once")
        ]

    def _stored_bytes(self) -> list[_Count]:
        return self._counted("stored_bytes", Quota.STORED_BYTES, Measure.BYTES)

    def _counted(self, name: str, quota: Quota, measure: Measure) -> list[_Count]:
        return [
            _Count(
                quota,
                limit,
                of_key,
                _RETRY_ROOM_SECONDS,
                usage_entries.used_query(self._caller.tenant, measure, self._key(of_key)),
            )
            for of_key, limit in self._limited(name)
        ]

    def _limited(self, name: str) -> list[tuple[bool, int]]:
        """The limits of this name that are set: whether each is the key's, and the limit."""
        both = ((False, self._caller.tenant_limits), (True, self._caller.key_limits))
        return [(of_key, limit) for of_key, limits in both if (limit := getattr(limits, name)) is not None]

    def _key(self, of_key: bool) -> int | None:
        return self._caller.line if of_key else None

    def take_rate(self) -> None:
        """Take a slot in the turn rate, unless that was done."""
        limited = self._limited("turns_per_minute")
        if not limited or self._taken is not None:
            return
        tenant = self._caller.tenant
        bounds = [
            rates.Bound(f"{{{tenant}}}:turns:{f'key:{self._caller.line}' if of_key else 'tenant'}", limit)
            for of_key, limit in limited
        ]
        self._taken = rates.take(bounds)
        self.rate_statuses = tuple(
            RateStatus(
                Quota.TURNS_PER_MINUTE, of_key, level.limit, level.left, max(1, math.ceil(level.seconds)), rates.WINDOW_SECONDS
            )
            for (of_key, _), level in zip(limited, self._taken.levels, strict=True)
        )
        if not self._taken.allowed:
            worst = max((each for each in self.rate_statuses if each.left == 0), key=lambda each: each.seconds)
            raise QuotaExceeded(worst.quota, worst.limit, worst.seconds, of_key=worst.of_key, window=worst.window)

    def give_back(self) -> None:
        if self._taken is not None:
            rates.give_back(self._taken)


_GATE = 0x51 << 55
"""Above every tenant's id, so that no other advisory lock has this number."""


COUNTED_WITH_TURNS = ("turns_at_once", "stored_bytes")
COUNTED_WITH_SESSIONS = ("sessions", "stored_bytes")


@contextmanager
def check(caller: Caller, alone_with: Sequence[str] = (), *, starts_turn: bool = False) -> Iterator[QuotaCheck]:
    """Wraps the transaction of a request: if it fails, its slot in the rate limit is returned (A7).

    ``alone_with``: limits with which the transaction is no part of a batch, because it counts behind the tenant's lock.
    ``starts_turn``: in a batch, which cannot wait for Redis, the slot is taken before; a repeated request leaves the batch.
    """
    quota_check = QuotaCheck(caller)
    try:
        if any(getattr(limits, name) is not None for limits in (caller.tenant_limits, caller.key_limits) for name in alone_with):
            _run_alone()
        elif starts_turn and loop_calls.is_optimistic():
            quota_check.take_rate()
        yield quota_check
    except BaseException as error:
        if isinstance(error, QuotaExceeded):
            metrics.REFUSALS.labels(error.quota).inc()
        quota_check.give_back()
        raise


def _run_alone() -> None:
    if assumptions := loop_calls.run_alone():
        try:
            raw_sql.execute(assumptions)
        except DatabaseError as error:
            raise Repeat from error


# --- tokens during a turn ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The token limits that a run checks before each model call."""

    tenant: int
    of_tenant: int | None
    key: int
    of_key: int | None

    def overdrawn(self) -> str | None:
        """A description of the exceeded limit for the log; None if tokens are left."""
        for owner, key, limit in (("tenant", None, self.of_tenant), ("key", self.key, self.of_key)):
            if limit is not None and (tokens_used := usage_entries.used(self.tenant, Measure.TOKENS, key)) >= limit:
                return f"the {owner} has used {tokens_used} of its {limit} tokens of today"
        return None


def token_budget(tenant: int, of_tenant: int | None, key: int | None, of_key: int | None) -> TokenBudget | None:
    """The budget of a run that this key requested, from the own limits of tenant and key; None without a limit."""
    defaults: Mapping[str, int | None] = settings.AGENTHOST_QUOTAS
    if of_tenant is None:
        of_tenant = defaults.get("tokens_per_day")
    if of_tenant is None and of_key is None:
        return None
    return TokenBudget(tenant, of_tenant, key or 0, of_key)


def seconds_to_midnight() -> int:
    """The seconds until the next day in UTC, when token counts are reset."""
    now = timezone.now().astimezone(UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return max(1, math.ceil((midnight - now).total_seconds()))


# --- usage for display ---------------------------------------------------------------------------


def _line_of(first: int) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(Q(pk=first) | Q(line=first))


@dataclass(frozen=True, slots=True)
class Use:
    """A limit and its usage. ``used`` None: usage is not accumulated (request size, rate)."""

    name: str
    title: str
    used: int | None
    limit: int | None


TITLES: Mapping[str, str] = {
    "turns_at_once": "concurrent turns",
    "turns_per_minute": "turns per minute",
    "tokens_per_day": "tokens today (UTC)",
    "sessions": "sessions",
    "stored_bytes": "stored bytes",
    "request_bytes": "bytes per request",
}


def usage(tenant: Tenant, key: ApiKey | None = None) -> list[Use]:
    """Every limit of a tenant or key with its current usage, for display."""
    live = Turn.objects.filter(tenant=tenant, state__in=[TurnState.QUEUED, TurnState.RUNNING])
    if key is not None:
        live = live.filter(api_key__in=_line_of(key.line or key.pk))
    number = None if key is None else key.pk
    now: Mapping[str, int] = {
        "turns_at_once": live.count(),
        "tokens_per_day": usage_entries.used(tenant.pk, Measure.TOKENS, number),
        "sessions": usage_entries.used(tenant.pk, Measure.SESSIONS, number),
        "stored_bytes": usage_entries.used(tenant.pk, Measure.BYTES, number),
    }
    limits = limits_of_tenant(tenant) if key is None else own_limits(key)
    return [Use(name, TITLES[name], now.get(name), getattr(limits, name)) for name in NAMES]
