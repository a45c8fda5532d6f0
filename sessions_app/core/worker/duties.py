"""Which of a worker's periodic duties have anything to do, found out with one query for all of them.

An idle worker looks once a second. Each duty by itself would need a change of threads and a query that is built and planned
anew: together a thirtieth of a core, in each worker and whether turns run or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain

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
   and worker not in (select worker from sessions_app_workerpresence where lease_expires_at >= {now}))){of_queues})""",
    QUEUED: "{any_queued}",
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
    SUMMARIES: "exists (select 1 from sessions_app_duesummary where due{of_queues})",
    WEBHOOKS: "exists (select 1 from sessions_app_webhook where disabled_at is null)",
}
_LOOK = "select {now}, " + ",\n ".join(_CONDITIONS.values())
_ANY_QUEUED = "exists (select 1 from sessions_app_turn where {in_queue}state = 'queued' and queued_at <= {moment})"


@lru_cache(maxsize=8)
def _look_at(queues: int | None) -> str:
    """The query of a worker that serves this number of queues; None: all. Each is compared by itself, as in a claim."""
    if queues is None:
        return _LOOK.replace("{of_queues}", "").replace("{any_queued}", _ANY_QUEUED.replace("{in_queue}", ""))
    each = " or ".join([_ANY_QUEUED.replace("{in_queue}", "queue = %s and ")] * queues)
    return _LOOK.replace("{of_queues}", " and queue {among_texts}").replace("{any_queued}", f"({each})")


ALL = frozenset(_CONDITIONS)


@dataclass(frozen=True, slots=True)
class Look:
    """The duties that may have something to do, and the database's clock; None: it was not read."""

    due: frozenset[str]
    clock: datetime | None = None


def _look(queues: Sequence[str] | None) -> Look:
    of_queues = [] if queues is None else [list(queues)]
    recently = -stopping.RECENTLY.total_seconds()
    overdue = -float(settings.AGENTHOST_QUEUE_GRACE_SECONDS)
    values = (
        *of_queues,
        *((overdue,) if queues is None else chain.from_iterable((queue, overdue) for queue in queues)),
        recently,
        recently,
        -float(settings.AGENTHOST_AHP_PRESENCE_SECONDS),
        -float(settings.AGENTHOST_AHP_GRACE_SECONDS),
        -float(settings.AGENTHOST_AHP_GRACE_SECONDS),
        *of_queues,
    )
    ((clock, *answers),) = raw_sql.rows(_look_at(None if queues is None else len(queues)), values)
    return Look(frozenset(name for name, is_due in zip(_CONDITIONS, answers, strict=True) if is_due), clock)


async def look(queues: Sequence[str] | None = None) -> Look:
    """Look once, for a worker that serves these queues (None: all).

    If that fails, all duties are due: each reports its own errors. On SQLite they cost little.
    """
    if not database.has_loop_calls():
        return Look(ALL)
    try:
        return await database.run_on_loop(_look, queues)
    except Exception:  # the duties meet the same error, and log it
        return Look(ALL)
