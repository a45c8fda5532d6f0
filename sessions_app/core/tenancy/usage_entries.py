"""Usage of tenants and keys: the entries that count it, the totals, and what rows use in bytes.

Sessions, bytes and tokens are counted in entries: each change inserts one in its transaction, so no change waits for
another; a periodic task adds entries up into totals ("folding"). Concurrent turns are counted from the turn rows, in
quotas.py, which compares usage with limits. See docs/decisions/0008.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Max, Sum
from django.utils import timezone

from sessions_app.core.base import database, lock_timeouts, maintenance, raw_sql
from sessions_app.core.base.errors import SessionFull
from sessions_app.core.base.lock_timeouts import RowLocked
from sessions_app.core.base.raw_sql import Statement
from sessions_app.models import NO_DAY, FileVersion, Measure, Message, Session, UsageEntry, UsageTotal


def today() -> date:
    """The day in UTC that tokens are counted for."""
    return timezone.now().astimezone(UTC).date()


# --- entries -------------------------------------------------------------------------------------

_ENTRY = "insert into sessions_app_usageentry (tenant_id, key_id, measure, day, amount) values"


def bytes_stored(tenant: int, session: int, amount: int) -> Statement:
    """The statement that counts a change of a session's bytes, for the key that created it and for the session itself."""
    day = NO_DAY.isoformat()
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
    of_key = (session.tenant_id, session.created_by_id or 0, measure.value, NO_DAY.isoformat(), amount)
    if measure is not Measure.BYTES:
        raw_sql.execute([Statement(f"{_ENTRY} (%s, %s, %s, %s, %s)", of_key)])
        return
    of_session = (session.tenant_id, session.pk, Measure.OF_SESSION.value, NO_DAY.isoformat(), amount)
    raw_sql.execute([Statement(f"{_ENTRY} (%s, %s, %s, %s, %s), (%s, %s, %s, %s, %s)", (*of_key, *of_session))])


def record_output(tenant: int, line: int, amount: int) -> None:
    """Count a change of a terminal's stored output for the key line that created it, in the open transaction."""
    if amount:
        of_key = (tenant, line, Measure.BYTES.value, NO_DAY.isoformat(), amount)
        raw_sql.execute([Statement(f"{_ENTRY} (%s, %s, %s, %s, %s)", of_key)])


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
 (select coalesce(sum({message} + coalesce({files}, 0)), 0) from sessions_app_pendingmessage where session_id = %s)
 + (select coalesce(sum({tools} + coalesce({name}, 0) + coalesce({brought}, 0)), 0) from sessions_app_sessionclient
  where session_id = %s)
 + (select coalesce({brought}, 0) + coalesce({draft}, 0) from sessions_app_session where id = %s)"""


def bytes_of_clients(session: Session) -> int:
    """The bytes that clients have stored in a session: pending messages, the draft, client entries, customizations."""
    columns = {"message": "message", "files": "files", "tools": "tools", "name": "name", "draft": "draft"}
    columns["brought"] = "customizations"
    sql = _OF_CLIENTS.format(**{place: _length().format(column) for place, column in columns.items()})
    row = raw_sql.row(sql, [session.pk] * 3)
    return 0 if row is None else int(row[0])


def bytes_of_files(session: Session) -> int:
    """The bytes of the kept contents of files that the session's agent changed."""
    return int(FileVersion.objects.filter(session=session).aggregate(size=Sum("size"))["size"] or 0)


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
    of_key = (session.tenant_id, session.created_by_id or 0, NO_DAY.isoformat())
    of_session = (session.tenant_id, session.pk, NO_DAY.isoformat())
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
    stored = bytes_of_settings(session) + bytes_of_history(session) + bytes_of_clients(session) + bytes_of_files(session)
    record(session, Measure.BYTES, -stored)
    return upto


def late_history_deleted(session: Session, after: int) -> None:
    """Subtract the messages that stopping the turn wrote. They are few, because the tenant's counter is locked by now."""
    record(session, Measure.BYTES, -bytes_of_history(session, after))


# --- usage ---------------------------------------------------------------------------------------


_LINE = """(select k.id from sessions_app_apikey k, sessions_app_apikey own
 where own.id = %s and coalesce(k.line, k.id) = coalesce(own.line, own.id) and k.tenant_id = own.tenant_id)"""
"""A key and all keys it was rotated from or into: their usage is counted together."""


def used(tenant: int, measure: Measure, key: int | None = None, day: date | None = None) -> int:
    """The usage of a tenant, or of a key with its rotations; tokens are those of ``day`` (default: today)."""
    query = used_query(tenant, measure, key, day)
    row = raw_sql.row(query.sql, query.params)
    return 0 if row is None else int(row[0])


def used_query(tenant: int, measure: Measure, key: int | None = None, day: date | None = None) -> Statement:
    """The query of ``used``."""
    if day is None:
        day = today() if measure is Measure.TOKENS else NO_DAY
    # One statement, so that an entry that is being folded is counted exactly once.
    parameters: list[Any]
    where, parameters = "tenant_id = %s and measure = %s and day = %s", [tenant, measure.value, day.isoformat()]
    if key is not None:
        where, parameters = f"{where} and key_id in {_LINE}", [*parameters, key]
    sum_of = "(select coalesce(sum(amount), 0) from sessions_app_{table} where " + where + ")"
    sql = f"select {sum_of.format(table='usagetotal')} + {sum_of.format(table='usageentry')}"
    return Statement(sql, (*parameters, *parameters))


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
