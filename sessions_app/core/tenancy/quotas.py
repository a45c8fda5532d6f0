"""Quotas: the limits of tenants and keys, and the counting of their usage.

Usage that must be exact is counted in the transaction of the change. Concurrent turns are counted from the turn rows.
Sessions, bytes and tokens are counted in entries: each change inserts one, so no change waits for another; a periodic task
adds entries up into totals ("folding"). A request under a limit first writes, then takes the tenant's quota lock (the last
lock before the journal's), then counts, itself included: of two parallel requests the second waits for the COMMIT of the
first and sees it. Without a limit there is no lock. Rates are counted in rates.py. See docs/decisions/0008.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from sessions_app.core.base import database, lock_timeouts, loop_calls, maintenance, raw_sql
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.base.errors import Fault, InvalidInput, QuotaExceeded, SessionFull
from sessions_app.core.base.lock_timeouts import RowLocked
from sessions_app.core.base.loop_calls import Repeat
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.tenancy import rates
from sessions_app.models import STANDING, ApiKey, Measure, Message, Session, Tenant, Turn, TurnState, UsageEntry, UsageTotal

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
        return [used_query(self._caller.tenant, Measure.TOKENS, self._key(of_key)) for of_key, _ in limited]

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
            _Count(quota, limit, of_key, _RETRY_ROOM_SECONDS, used_query(self._caller.tenant, measure, self._key(of_key)))
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
    except BaseException:
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
            if limit is not None and (tokens_used := used(self.tenant, Measure.TOKENS, key)) >= limit:
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


def today() -> date:
    return timezone.now().astimezone(UTC).date()


# --- entries -------------------------------------------------------------------------------------

_ENTRY = "insert into sessions_app_usageentry (tenant_id, key_id, measure, day, amount) values"


def bytes_stored(tenant: int, session: int, amount: int) -> Statement:
    """The statement that counts a change of a session's bytes, for the key that created it and for the session itself."""
    day = STANDING.isoformat()
    return Statement(
        f"{_ENTRY} (%s, coalesce((select created_by_id from sessions_app_session where id = %s), 0), 'bytes', %s, %s),"
        " (%s, %s, 'session', %s, %s)",
        (tenant, session, day, amount, tenant, session, day, amount),
    )


def tokens_used(tenant: int, turn: int, tokens: int) -> Statement:
    """The statement that counts the tokens of a model call, for the key that requested the run."""
    return Statement(
        f"{_ENTRY} (%s, coalesce((select api_key_id from sessions_app_turn where id = %s), 0), 'tokens', %s, %s)",
        (tenant, turn, today().isoformat(), tokens),
    )


def size(*texts: str | None) -> int:
    """The length of the texts in UTF-8 bytes."""
    return sum(len(text.encode()) for text in texts if text is not None)


def record(session: Session, measure: Measure, amount: int) -> None:
    """Count a change for the key that created the session, in the open transaction; bytes also for the session itself."""
    if not amount:
        return
    of_key = (session.tenant_id, session.created_by_id or 0, measure.value, STANDING.isoformat(), amount)
    if measure is not Measure.BYTES:
        raw_sql.execute([Statement(f"{_ENTRY} (%s, %s, %s, %s, %s)", of_key)])
        return
    of_session = (session.tenant_id, session.pk, Measure.OF_SESSION.value, STANDING.isoformat(), amount)
    raw_sql.execute([Statement(f"{_ENTRY} (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)", (*of_key, *of_session))])


_OF_SESSION = "tenant_id = %s and measure = 'session' and day = '1970-01-01' and key_id = %s"
SESSION_BYTES = (
    f"(select coalesce(sum(amount), 0) from sessions_app_usagetotal where {_OF_SESSION})"
    f" + (select coalesce(sum(amount), 0) from sessions_app_usageentry where {_OF_SESSION})"
)
"""SQL expression for a session's bytes; parameters: tenant, session, tenant, session. One statement, as in ``used``."""


def bytes_of_session(session: Session) -> int:
    """The stored bytes of a session: messages, tools, options, pending messages and client entries."""
    row = raw_sql.row(f"select {SESSION_BYTES}", (session.tenant_id, session.pk) * 2)
    return 0 if row is None else int(row[0])


_OF_SESSIONS = "tenant_id {among} and measure = 'session' and day = '1970-01-01' and key_id {among}"
_BYTES_OF_SESSIONS = f"""
select key_id, sum(amount) from (select key_id, amount from sessions_app_usagetotal where {_OF_SESSIONS}
 union all select key_id, amount from sessions_app_usageentry where {_OF_SESSIONS}) as of_sessions group by key_id
"""


def bytes_of_sessions(tenants: Mapping[int, int]) -> dict[int, int]:
    """The stored bytes of each of these sessions; ``tenants``: their tenants by session."""
    params = (sorted(set(tenants.values())), list(tenants))
    return {session: int(amount) for session, amount in raw_sql.rows(_BYTES_OF_SESSIONS, params * 2)}


def check_session_size(bytes_stored: int) -> None:
    """Raise SessionFull if a session with this many bytes has reached the limit."""
    if bytes_stored >= settings.AGENTHOST_SESSION_BYTES:
        raise SessionFull(settings.AGENTHOST_SESSION_BYTES)


def bytes_of_settings(session: Session) -> int:
    """The bytes of a session's tools and options."""
    rows = session.option_values.values_list("value", "sealed")
    return size(session.client_tools, session.tool_refs) + sum(
        size(value) + (0 if sealed is None else len(sealed)) for value, sealed in rows
    )


def bytes_of_history(session: Session, after: int = 0) -> int:
    """The bytes of a session's messages after a position."""
    content, provider_data = _length().format("content"), _length().format("provider_data")
    with connection.cursor() as cursor:
        cursor.execute(
            f"select coalesce(sum({content} + coalesce({provider_data}, 0)), 0) from sessions_app_message"
            " where session_id = %s and position > %s",
            [session.pk, after],
        )
        return int(cursor.fetchone()[0])


def bytes_of_run(turn: int, run: int) -> int:
    """The bytes of the messages of one run of a turn."""
    content = _length().format("content")
    sql = f"select coalesce(sum({content}), 0) from sessions_app_message where turn_id = %s and run = %s"
    row = raw_sql.row(sql, (turn, run))
    return 0 if row is None else int(row[0])


_OF_CLIENTS = """select
 (select coalesce(sum({message}), 0) from sessions_app_pendingmessage where session_id = %s)
 + (select coalesce(sum({tools} + coalesce({name}, 0) + coalesce({brought}, 0)), 0) from sessions_app_sessionclient
  where session_id = %s)
 + (select coalesce({brought}, 0) from sessions_app_session where id = %s)"""


def bytes_of_clients(session: Session) -> int:
    """The bytes that clients have stored in a session: pending messages, client entries, customizations."""
    columns = {"message": "message", "tools": "tools", "name": "name", "brought": "customizations"}
    sql = _OF_CLIENTS.format(**{place: _length().format(column) for place, column in columns.items()})
    row = raw_sql.row(sql, [session.pk] * 3)
    return 0 if row is None else int(row[0])


def _length() -> str:
    return "octet_length({})" if connection.vendor == "postgresql" else "length(cast({} as blob))"


@dataclass(slots=True)
class Growth:
    bytes: int = 0


@contextmanager
def counting_client_bytes(session: Session) -> Iterator[Growth]:
    """Count the change of the clients' bytes within the block; the session is locked. SessionFull if there is no room."""
    growth, before = Growth(), bytes_of_clients(session)
    yield growth
    growth.bytes = bytes_of_clients(session) - before
    if growth.bytes > 0:
        check_session_size(bytes_of_session(session))
    record(session, Measure.BYTES, growth.bytes)


def session_created(session: Session, *, bare: bool) -> Statement:
    """The statement that counts a new session and its bytes. Run it in the session's transaction after its other rows.

    ``bare``: the session has neither options nor a history to be counted.
    """
    used = size(session.client_tools, session.tool_refs) if bare else bytes_of_settings(session) + bytes_of_history(session)
    of_key = (session.tenant_id, session.created_by_id or 0, STANDING.isoformat())
    of_session = (session.tenant_id, session.pk, STANDING.isoformat())
    return Statement(
        f"{_ENTRY} (%s, %s, 'sessions', %s, 1), (%s, %s, 'bytes', %s, %s), (%s, %s, 'session', %s, %s)",
        (*of_key, *of_key, used, *of_session, used),
    )


def session_deleted(session: Session) -> int:
    """Subtract a session, in the transaction that deletes it, before its rows are cleared and with its live turn locked.

    Returns the position up to which its history was subtracted; ``late_history_deleted`` subtracts later messages.
    """
    upto = Message.objects.filter(session=session).aggregate(last=Max("position"))["last"] or 0
    record(session, Measure.SESSIONS, -1)
    record(session, Measure.BYTES, -(bytes_of_settings(session) + bytes_of_history(session) + bytes_of_clients(session)))
    return upto


def late_history_deleted(session: Session, after: int) -> None:
    """Subtract the messages that stopping the turn wrote. They are few, because the tenant's counter is locked by now."""
    record(session, Measure.BYTES, -bytes_of_history(session, after))


# --- usage ---------------------------------------------------------------------------------------


_LINE = """(select k.id from sessions_app_apikey k, sessions_app_apikey own
 where own.id = %s and coalesce(k.line, k.id) = coalesce(own.line, own.id) and k.tenant_id = own.tenant_id)"""
"""A key and all keys it was rotated from or into: their usage is counted together."""


def _line_of(first: int) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(Q(pk=first) | Q(line=first))


def used(tenant: int, measure: Measure, key: int | None = None, day: date | None = None) -> int:
    """The usage of a tenant, or of a key with its rotations; tokens are those of ``day`` (default: today)."""
    query = used_query(tenant, measure, key, day)
    row = raw_sql.row(query.sql, query.params)
    return 0 if row is None else int(row[0])


def used_query(tenant: int, measure: Measure, key: int | None = None, day: date | None = None) -> Statement:
    """The query of ``used``."""
    if day is None:
        day = today() if measure is Measure.TOKENS else STANDING
    # One statement, so that an entry that is being folded is counted exactly once.
    parameters: list[Any]
    where, parameters = "tenant_id = %s and measure = %s and day = %s", [tenant, measure.value, day.isoformat()]
    if key is not None:
        where, parameters = f"{where} and key_id in {_LINE}", [*parameters, key]
    sum_of = "(select coalesce(sum(amount), 0) from sessions_app_{table} where " + where + ")"
    sql = f"select {sum_of.format(table='usagetotal')} + {sum_of.format(table='usageentry')}"
    return Statement(sql, (*parameters, *parameters))


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
        "tokens_per_day": used(tenant.pk, Measure.TOKENS, number),
        "sessions": used(tenant.pk, Measure.SESSIONS, number),
        "stored_bytes": used(tenant.pk, Measure.BYTES, number),
    }
    limits = limits_of_tenant(tenant) if key is None else own_limits(key)
    return [Use(name, TITLES[name], now.get(name), getattr(limits, name)) for name in NAMES]


FOLDED_AT_ONCE = 5000

# --- folding -------------------------------------------------------------------------------------

_ADD = " on conflict (tenant_id, measure, day, key_id) do update set amount = sessions_app_usagetotal.amount + excluded.amount"
# Materialized: a plan that repeats the inner query would take the limit's number of entries each time.
_FOLD = f"""
with oldest as materialized (select id from sessions_app_usageentry where {{of}} order by id limit %s for update skip locked),
gone as (delete from sessions_app_usageentry where id in (select id from oldest)
  returning tenant_id, key_id, measure, day, amount)
insert into sessions_app_usagetotal (tenant_id, key_id, measure, day, amount)
select tenant_id, key_id, measure, day, sum(amount)::bigint from gone
group by tenant_id, measure, day, key_id order by tenant_id, measure, day, key_id
{_ADD}
"""
_OLDEST = "select id from sessions_app_usageentry where {of} order by id limit %s"
_SUM = f"""
insert into sessions_app_usagetotal (tenant_id, key_id, measure, day, amount)
select tenant_id, key_id, measure, day, sum(amount) from sessions_app_usageentry where id in ({_OLDEST})
group by tenant_id, measure, day, key_id
{_ADD}
"""


_TENANTS_A_FOLD = 1000


def fold(batch: int) -> int:
    """Add the oldest entries to the totals; returns the number of changed totals, 0 when no entries are left.

    Parallel calls take different entries. Reading and writing usage never waits for this, and it never waits for locks: if a
    total is locked, or some entries cannot be added up, the entries are folded tenant by tenant.
    """
    if not UsageEntry.objects.exists():
        return 0
    try:
        return _fold(batch, None)
    except (RowLocked, DatabaseError) as error:
        if database.is_away(error):
            raise
        tenants = UsageEntry.objects.order_by("tenant_id").values_list("tenant_id", flat=True).distinct()
        return maintenance.for_each(list(tenants[:_TENANTS_A_FOLD]), partial(_fold, batch))


def fold_backlog(batch: int, seconds: float) -> None:
    """Fold until no entries are left, for at most this time, so that more entries than one batch do not pile up."""
    until = time.monotonic() + seconds
    while fold(batch) and time.monotonic() < until:
        pass


def _fold(batch: int, tenant: int | None) -> int:
    of = "true" if tenant is None else f"tenant_id = {int(tenant)}"
    with lock_timeouts.short(transaction.atomic()), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # If a crash undoes this, the entries are folded again.
            cursor.execute("set local synchronous_commit to off")
            cursor.execute(_FOLD.format(of=of), [batch])
            return max(0, int(cursor.rowcount))
        cursor.execute(_SUM.format(of=of), [batch])
        changed = max(0, int(cursor.rowcount))
        cursor.execute(f"delete from sessions_app_usageentry where id in ({_OLDEST.format(of=of)})", [batch])
        return changed


def delete_days(before: date) -> int:
    """Delete the token totals of days before this one; returns their number."""
    return maintenance.delete_in_batches(UsageTotal.objects.filter(measure=Measure.TOKENS, day__lt=before))
