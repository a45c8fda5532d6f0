"""Which of a worker's periodic duties have anything to do, found out with one query for all of them.

An idle worker looks once a second. Each duty by itself would need a change of threads and a query that is built and planned
anew: together a thirtieth of a core, in each worker and whether turns run or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from sessions_app.core.base import database, raw_sql
from sessions_app.core.turns import stopping

TAKE_OVER = "take-over"
QUEUED = "queued turns"
DEADLINES = "deadlines"
SUSPENDED = "suspended tenants"
REVOKED = "revoked keys"
VANISHED = "vanished clients"
GRACE = "grace periods"
TERMINALS = "terminals to end"
USAGE = "usage"
SUMMARIES = "summaries"
WEBHOOKS = "webhooks"

# Each condition is true whenever its duty has something to do, and may be true without.
_CONDITIONS: Mapping[str, str] = {
    TAKE_OVER: """exists (select 1 from sessions_app_turn where state = 'running' and (lease_expires_at < {now}
  or (lease_expires_at is null
   and worker not in (select worker from sessions_app_workerpresence where lease_expires_at >= {now}))))""",
    QUEUED: "exists (select 1 from sessions_app_turn where state = 'queued' and queued_at <= {moment})",
    DEADLINES: "exists (select 1 from sessions_app_turn where state in ('queued', 'running') and deadline_at < {now})",
    SUSPENDED: """(exists (select 1 from sessions_app_tenant where suspended_at > {moment})
 or exists (select 1 from sessions_app_turn t join sessions_app_tenant x on x.id = t.tenant_id
  where t.state = 'queued' and x.suspended_at is not null))""",
    REVOKED: """(exists (select 1 from sessions_app_apikey where revoked_at > {moment})
 or exists (select 1 from sessions_app_turn t join sessions_app_apikey k on k.id = t.api_key_id
  where t.state = 'queued' and k.revoked_at is not null))""",
    VANISHED: """exists (select 1 from sessions_app_sessionclient c
 where c.left_at is null and c.away_since is null and not exists (select 1 from sessions_app_clientpresence p
  where p.tenant_id = c.tenant_id and p.client = c.client and p.seen_at > {moment}))""",
    GRACE: """(exists (select 1 from sessions_app_sessionclient where left_at < {moment})
 or exists (select 1 from sessions_app_sessionclient where left_at is null and away_since < {moment}))""",
    TERMINALS: """(exists (select 1 from sessions_app_terminal where state in ('requested', 'running'))
 or exists (select 1 from sessions_app_terminal where claim_call is not null and disposed_at is null))""",
    USAGE: "exists (select 1 from sessions_app_usageentry)",
    SUMMARIES: "exists (select 1 from sessions_app_duesummary where due)",
    WEBHOOKS: "exists (select 1 from sessions_app_webhook where disabled_at is null)",
}
_LOOK = "select {now}, " + ",\n ".join(_CONDITIONS.values())
ALL = frozenset(_CONDITIONS)


@dataclass(frozen=True, slots=True)
class Look:
    """The duties that may have something to do, and the database's clock; None: it was not read."""

    due: frozenset[str]
    clock: datetime | None = None


def _look() -> Look:
    recently = -stopping.RECENTLY.total_seconds()
    seconds = (
        -float(settings.AGENTHOST_QUEUE_GRACE_SECONDS),
        recently,
        recently,
        -float(settings.AGENTHOST_AHP_PRESENCE_SECONDS),
        -float(settings.AGENTHOST_AHP_GRACE_SECONDS),
        -float(settings.AGENTHOST_AHP_GRACE_SECONDS),
    )
    ((clock, *answers),) = raw_sql.rows(_LOOK, seconds)
    return Look(frozenset(name for name, is_due in zip(_CONDITIONS, answers, strict=True) if is_due), clock)


async def look() -> Look:
    """Look once. If that fails, all duties are due: each reports its own errors. On SQLite they cost little."""
    if not database.has_loop_calls():
        return Look(ALL)
    try:
        return await database.run_on_loop(_look)
    except Exception:  # the duties meet the same error, and log it
        return Look(ALL)
