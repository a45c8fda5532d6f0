"""Quotas: how much tenants and keys may use, and how much they have.

What must be right is counted in the transaction it belongs to. Turns at once are counted over the live
turns themselves. Sessions, bytes and tokens are counted in entries: each change inserts one, and nobody
ever waits for another's; the sweeps fold them into totals. Whoever needs a place under a limit takes the
tenant's gate as the last lock before the journal's, writes first and counts then, itself included: of two
at once the second waits for the first's COMMIT and sees it. Without a limit there is no gate. Only rates
are counted elsewhere (rates.py). docs/decisions/0008 says what was rejected.
"""

from __future__ import annotations

import logging
import math
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

from sessions_app.core.base import database, lock_timeouts, maintenance, raw_sql
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.base.errors import Fault, InvalidInput, QuotaExceeded, SessionFull
from sessions_app.core.base.lock_timeouts import RowLocked
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
_SOON = 2
"""When to ask again for a place among the turns: nobody knows when one ends, but turns are short."""
_LATER = 60
"""When to ask again for room that only deleting makes."""


# --- limits --------------------------------------------------------------------------------------

NAMES = tuple(field.name for field in fields(Limits))


def column(name: str) -> str:
    """The column of tenants and keys that holds this limit."""
    return f"max_{name}"


COLUMNS = tuple(column(name) for name in NAMES)


def with_defaults(own: Sequence[int | None]) -> Limits:
    """A tenant's limits out of its columns, and the server's where it has none."""
    defaults: Mapping[str, int | None] = settings.AGENTHOST_QUOTAS
    return Limits(*[defaults.get(name) if value is None else value for name, value in zip(NAMES, own, strict=True)])


def limits_of_tenant(tenant: Tenant) -> Limits:
    """The tenant's own, and the server's where it has none."""
    return with_defaults([getattr(tenant, each) for each in COLUMNS])


def limits_of_key(key: ApiKey) -> Limits:
    return Limits(**{name: getattr(key, column(name)) for name in NAMES})


def own_limits(row: Tenant | ApiKey) -> Limits:
    """What was set on this row itself."""
    return Limits(**{name: getattr(row, column(name)) for name in NAMES})


def columns(limits: Limits) -> dict[str, int | None]:
    """The limits by column, checked; InvalidInput names the column."""
    given = {column(name): getattr(limits, name) for name in NAMES}
    faults = [
        Fault((name,), "a limit is a whole number of at least 0, or empty")
        for name, value in given.items()
        if value is not None and not 0 <= value <= MOST
    ]
    if faults:
        raise InvalidInput(faults)
    return given


def differences(before: Limits, after: Limits) -> list[str]:
    """The differences in words, for the audit."""
    return [
        f"{name} {_or_none(getattr(before, name))} -> {_or_none(getattr(after, name))}"
        for name in NAMES
        if getattr(before, name) != getattr(after, name)
    ]


def _or_none(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def largest_request(caller: Caller) -> int | None:
    """The largest body that this caller may send, in bytes."""
    both = [limits.request_bytes for limits in (caller.tenant_limits, caller.key_limits) if limits.request_bytes is not None]
    return min(both, default=None)


# --- asking for something under a limit ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RateStatus:
    """Where a caller stands with a rate, for whoever wants to see it before it bites."""

    quota: Quota
    of_key: bool
    limit: int
    left: int
    seconds: int
    window: int


class QuotaCheck:
    """A request for a turn or a session, on its way through its transaction."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._taken: rates.Taken | None = None
        self.standings: tuple[RateStatus, ...] = ()

    def take_turn(self) -> None:
        """Once it is known that this is no repetition, before anything is written: rate and tokens."""
        self._take_rate()
        for of_key, limits in self._both():
            limit = limits.tokens_per_day
            if limit is not None and used(self._caller.tenant, Measure.TOKENS, self._key(of_key)) >= limit:
                raise QuotaExceeded(Quota.TOKENS_PER_DAY, limit, seconds_to_midnight(), of_key=of_key, window=_DAY_SECONDS)

    def admit_turn(self, write: Callable[[], object] = lambda: None) -> None:
        """After everything is written, before the journal's locks: turns at once and bytes, this one's included.

        ``write`` writes what has been put off.
        """
        both = self._both()
        if all(limits.turns_at_once is None and limits.stored_bytes is None for _, limits in both):
            return
        write()
        self._gate()
        for of_key, limits in both:
            if limits.turns_at_once is not None:
                live = Turn.objects.filter(tenant_id=self._caller.tenant, state__in=[TurnState.QUEUED, TurnState.RUNNING])
                if of_key:
                    live = live.filter(api_key__in=_line_of(self._caller.line))
                if live.values("pk")[: limits.turns_at_once + 1].count() > limits.turns_at_once:
                    raise QuotaExceeded(Quota.TURNS_AT_ONCE, limits.turns_at_once, _SOON, of_key=of_key)
        self._check_bytes()

    def admit_session(self, write: Callable[[], object] = lambda: None) -> None:
        """After everything is written, before the journal's locks: sessions and bytes, this one's included.

        ``write`` writes what has been put off.
        """
        both = self._both()
        if all(limits.sessions is None and limits.stored_bytes is None for _, limits in both):
            return
        write()
        self._gate()
        for of_key, limits in both:
            if limits.sessions is not None and self._used(Measure.SESSIONS, of_key) > limits.sessions:
                raise QuotaExceeded(Quota.SESSIONS, limits.sessions, _LATER, of_key=of_key)
        self._check_bytes()

    def admit_bytes(self, grown: int) -> None:
        """After everything is written, before the journal's locks. Who makes something smaller is never refused."""
        if grown <= 0 or all(limits.stored_bytes is None for _, limits in self._both()):
            return
        self._gate()
        self._check_bytes()

    def _check_bytes(self) -> None:
        for of_key, limits in self._both():
            if limits.stored_bytes is not None and self._used(Measure.BYTES, of_key) > limits.stored_bytes:
                raise QuotaExceeded(Quota.STORED_BYTES, limits.stored_bytes, _LATER, of_key=of_key)

    def _used(self, measure: Measure, of_key: bool) -> int:
        return used(self._caller.tenant, measure, self._key(of_key))

    def _key(self, of_key: bool) -> int | None:
        return self._caller.line if of_key else None

    def _both(self) -> tuple[tuple[bool, Limits], tuple[bool, Limits]]:
        return (False, self._caller.tenant_limits), (True, self._caller.key_limits)

    def _gate(self) -> None:
        """One at a time may ask for what is left to this tenant. Held until COMMIT, which follows soon."""
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("select pg_advisory_xact_lock(%s)", [_GATE | self._caller.tenant])

    def _take_rate(self) -> None:
        places = [(of_key, limits.turns_per_minute) for of_key, limits in self._both() if limits.turns_per_minute is not None]
        if not places:
            return
        tenant = self._caller.tenant
        bounds = [
            rates.Bound(f"{{{tenant}}}:turns:{f'key:{self._caller.line}' if of_key else 'tenant'}", limit)
            for of_key, limit in places
        ]
        self._taken = rates.take(bounds)
        self.standings = tuple(
            RateStatus(
                Quota.TURNS_PER_MINUTE, of_key, level.limit, level.left, max(1, math.ceil(level.seconds)), rates.WINDOW_SECONDS
            )
            for (of_key, _), level in zip(places, self._taken.levels, strict=True)
        )
        if not self._taken.allowed:
            worst = max((each for each in self.standings if each.left == 0), key=lambda each: each.seconds)
            raise QuotaExceeded(worst.quota, worst.limit, worst.seconds, of_key=worst.of_key, window=worst.window)

    def give_back(self) -> None:
        if self._taken is not None:
            rates.give_back(self._taken)


_GATE = 0x51 << 55
"""Above every tenant's id, so that the lock's number is ours alone."""


@contextmanager
def check(caller: Caller) -> Iterator[QuotaCheck]:
    """Stands around the transaction: what was taken of a rate is given back if that fails (A7)."""
    request = QuotaCheck(caller)
    try:
        yield request
    except BaseException:
        request.give_back()
        raise


# --- tokens in the middle of a turn --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """What a run has to look at before each model call."""

    tenant: int
    of_tenant: int | None
    key: int
    of_key: int | None

    def overdrawn(self) -> str | None:
        """Whose tokens of this day are used up, in words for the log; None: there are some left."""
        for words, key, limit in (("tenant", None, self.of_tenant), ("key", self.key, self.of_key)):
            if limit is not None and (tokens_used := used(self.tenant, Measure.TOKENS, key)) >= limit:
                return f"the {words} has used {spent} of its {limit} tokens of this day"
        return None


def token_budget(tenant: int, of_tenant: int | None, key: int | None, of_key: int | None) -> TokenBudget | None:
    """For a run that this key asked for, by their own limits. None: there is no limit to look at."""
    defaults: Mapping[str, int | None] = settings.AGENTHOST_QUOTAS
    if of_tenant is None:
        of_tenant = defaults.get("tokens_per_day")
    if of_tenant is None and of_key is None:
        return None
    return TokenBudget(tenant, of_tenant, key or 0, of_key)


def seconds_to_midnight() -> int:
    """Until the next day begins in UTC, where a day's tokens start anew."""
    now = timezone.now().astimezone(UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    return max(1, math.ceil((midnight - now).total_seconds()))


def today() -> date:
    return timezone.now().astimezone(UTC).date()


# --- entries, written where the change is written ------------------------------------------------

_ENTRY = "insert into sessions_app_usageentry (tenant_id, key_id, measure, day, amount) values"


def bytes_stored(tenant: int, session: int, amount: int) -> Statement:
    """Bytes that a session has more of (or less). They are its creator's, and count for the session itself."""
    day = STANDING.isoformat()
    return Statement(
        f"{_ENTRY} (%s, coalesce((select created_by_id from sessions_app_session where id = %s), 0), 'bytes', %s, %s),"
        " (%s, %s, 'session', %s, %s)",
        (tenant, session, day, amount, tenant, session, day, amount),
    )


def tokens_used(tenant: int, turn: int, tokens: int) -> Statement:
    """Tokens of a model call. They are the key's that asked for the run."""
    return Statement(
        f"{_ENTRY} (%s, coalesce((select api_key_id from sessions_app_turn where id = %s), 0), 'tokens', %s, %s)",
        (tenant, turn, today().isoformat(), tokens),
    )


def size(*texts: str | None) -> int:
    """Bytes as the database stores them."""
    return sum(len(text.encode()) for text in texts if text is not None)


def record(session: Session, measure: Measure, amount: int) -> None:
    """An entry of a session's creator, in the open transaction; bytes are the session's own too."""
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
    """The bytes a session has stored: messages, tools, options, waiting messages and client entries."""
    row = raw_sql.row(f"select {SESSION_BYTES}", (session.tenant_id, session.pk) * 2)
    return 0 if row is None else int(row[0])


_OF_SESSIONS = "tenant_id {among} and measure = 'session' and day = '1970-01-01' and key_id {among}"
_BYTES_OF_SESSIONS = f"""
select key_id, sum(amount) from (select key_id, amount from sessions_app_usagetotal where {_OF_SESSIONS}
 union all select key_id, amount from sessions_app_usageentry where {_OF_SESSIONS}) as of_sessions group by key_id
"""


def bytes_of_sessions(tenants: Mapping[int, int]) -> dict[int, int]:
    """The bytes that each of these sessions has stored; ``tenants``: whose they are, by session."""
    of = (sorted(set(tenants.values())), list(tenants))
    return {session: int(amount) for session, amount in raw_sql.rows(_BYTES_OF_SESSIONS, of * 2)}


def check_session_size(bytes_stored: int) -> None:
    """``SessionFull`` if a session with this many bytes has reached its limit."""
    if bytes_stored >= settings.AGENTHOST_SESSION_BYTES:
        raise SessionFull(settings.AGENTHOST_SESSION_BYTES)


def bytes_of_settings(session: Session) -> int:
    """What a session's tools and options take now."""
    rows = session.option_values.values_list("value", "sealed")
    return size(session.client_tools, session.tool_refs) + sum(
        size(value) + (0 if sealed is None else len(sealed)) for value, sealed in rows
    )


def bytes_of_history(session: Session, after: int = 0) -> int:
    """What a session's messages take now, those beyond a position alone."""
    content, provider_data = _length().format("content"), _length().format("provider_data")
    with connection.cursor() as cursor:
        cursor.execute(
            f"select coalesce(sum({content} + coalesce({provider_data}, 0)), 0) from sessions_app_message"
            " where session_id = %s and position > %s",
            [session.pk, after],
        )
        return int(cursor.fetchone()[0])


def bytes_of_run(turn: int, run: int) -> int:
    """What the messages of one run of a turn take."""
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
    """What a session's clients have left in it: messages that wait, their entries, what they have brought."""
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
    """Enter what clients leave in the session, or take out of it, within the block; the session is locked.

    ``SessionFull`` if there is no room for what they leave.
    """
    growth, before = Growth(), bytes_of_clients(session)
    yield growth
    growth.bytes = bytes_of_clients(session) - before
    if growth.bytes > 0:
        check_session_size(bytes_of_session(session))
    record(session, Measure.BYTES, growth.bytes)


def session_created(session: Session, *, bare: bool) -> Statement:
    """After everything of it is written, in its transaction. ``bare``: it has no options and no history to be counted."""
    taken = size(session.client_tools, session.tool_refs) if bare else bytes_of_settings(session) + bytes_of_history(session)
    one = (session.tenant_id, session.created_by_id or 0, STANDING.isoformat())
    own = (session.tenant_id, session.pk, STANDING.isoformat(), taken)
    return Statement(
        f"{_ENTRY} (%s, %s, 'sessions', %s, 1), (%s, %s, 'bytes', %s, %s), (%s, %s, 'session', %s, %s)", (*one, *one, taken, *own)
    )


def session_deleted(session: Session) -> int:
    """Before anything of it is cleared, in the transaction that deletes it, its live turn locked.

    Answers the position up to which its history was subtracted; ``rest_gone`` is for what is written after.
    """
    upto = Message.objects.filter(session=session).aggregate(last=Max("position"))["last"] or 0
    record(session, Measure.SESSIONS, -1)
    record(session, Measure.BYTES, -(bytes_of_settings(session) + bytes_of_history(session) + bytes_of_clients(session)))
    return upto


def late_history_deleted(session: Session, after: int) -> None:
    """What stopping its turn wrote: little, because the tenant's counter is held by now."""
    record(session, Measure.BYTES, -bytes_of_history(session, after))


# --- usage ---------------------------------------------------------------------------------------


_LINE = """(select k.id from sessions_app_apikey k, sessions_app_apikey own
 where own.id = %s and coalesce(k.line, k.id) = coalesce(own.line, own.id) and k.tenant_id = own.tenant_id)"""
"""A key, and all that it was rotated from or into: they have one account."""


def _line_of(first: int) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(Q(pk=first) | Q(line=first))


def used(tenant: int, measure: Measure, key: int | None = None, day: date | None = None) -> int:
    """What the tenant, or a key of it with its line, has used: now, or of tokens on a day (today)."""
    if day is None:
        day = today() if measure is Measure.TOKENS else STANDING
    # One statement: entries that are being folded are seen before it or after, never in between or twice.
    parameters: list[Any]
    where, parameters = "tenant_id = %s and measure = %s and day = %s", [tenant, measure.value, day.isoformat()]
    if key is not None:
        where, parameters = f"{where} and key_id in {_LINE}", [*parameters, key]
    sum_of = "(select coalesce(sum(amount), 0) from sessions_app_{table} where " + where + ")"
    sql = f"select {sum_of.format(table='usagetotal')} + {sum_of.format(table='usageentry')}"
    row = raw_sql.row(sql, [*parameters, *parameters])
    return 0 if row is None else int(row[0])


@dataclass(frozen=True, slots=True)
class Use:
    """A limit and what is used of it. ``used`` None: it is not counted up (the size of a request, a rate)."""

    name: str
    title: str
    used: int | None
    limit: int | None


TITLES: Mapping[str, str] = {
    "turns_at_once": "turns at once",
    "turns_per_minute": "turns a minute",
    "tokens_per_day": "tokens today (UTC)",
    "sessions": "sessions",
    "stored_bytes": "stored bytes",
    "request_bytes": "bytes a request",
}


def usage(tenant: Tenant, key: ApiKey | None = None) -> list[Use]:
    """Everything there is a limit for, for people."""
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
    limits = limits_of_tenant(tenant) if key is None else limits_of_key(key)
    return [Use(name, TITLES[name], now.get(name), getattr(limits, name)) for name in NAMES]


FOLDED_AT_ONCE = 5000

# --- folding -------------------------------------------------------------------------------------

_ADD = " on conflict (tenant_id, measure, day, key_id) do update set amount = sessions_app_usagetotal.amount + excluded.amount"
_FOLD = f"""
with gone as (delete from sessions_app_usageentry where id in
    (select id from sessions_app_usageentry where {{of}} order by id limit %s for update skip locked)
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
    """Fold the oldest entries into totals; how many totals changed, 0 when there is nothing left to fold.

    Two at once take different entries. Nobody who writes or reads usage waits for it, and it waits for nobody: if a
    total is locked, or some entries cannot be added up, the other tenants' entries are folded, tenant by tenant.
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


def _fold(batch: int, tenant: int | None) -> int:
    of = "true" if tenant is None else f"tenant_id = {int(tenant)}"
    with lock_timeouts.short(transaction.atomic()), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # What a crash undoes is folded again.
            cursor.execute("set local synchronous_commit to off")
            cursor.execute(_FOLD.format(of=of), [batch])
            return max(0, int(cursor.rowcount))
        cursor.execute(_SUM.format(of=of), [batch])
        changed = max(0, int(cursor.rowcount))
        cursor.execute(f"delete from sessions_app_usageentry where id in ({_OLDEST.format(of=of)})", [batch])
        return changed


def delete_days(before: date) -> int:
    """Delete the totals of days long past; how many there were."""
    return maintenance.delete_in_batches(UsageTotal.objects.filter(measure=Measure.TOKENS, day__lt=before))
