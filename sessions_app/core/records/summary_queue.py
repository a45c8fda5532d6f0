"""The queue of summaries of long conversations, and storing a finished summary.

A row of ``DueSummary`` is both a queue entry and a lock: a worker claims it by a conditional update, and the row of a dead
worker is free. A summary is stored under the session's lock, after a check that the summarised messages are unchanged.
Lock order: the session, then its row here; never a turn in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.utils import timezone

from agents_app import compaction
from agents_app import options as agent_options
from agents_app.runtime.interface import Usage
from agents_app.runtime.messages import Message, ToolSchema
from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.records import history, options, session_settings, stored_messages
from sessions_app.core.tenancy import definitions, model_use, quotas, usage_entries
from sessions_app.models import LIVE_STATES, TURN_FORMAT, ModelUsePurpose, Session

MOST_ATTEMPTS = 6
_REST, _LONGEST_REST = 60.0, 3600.0
"""Seconds until a failed summary is tried again, doubled with each failure, and their maximum."""

_ALIVE = "(select p.worker from sessions_app_workerpresence p where p.seen_at > {moment})"

_REQUEST = """
insert into sessions_app_duesummary (tenant_id, session_id, asked_at, due, worker, attempts, rest_until, queue)
select s.tenant_id, s.id, {now}, true, '', 0, null, t.queue from sessions_app_session s
join sessions_app_turn t on t.session_id = s.id where t.id = %s and t.state = 'done' and s.deleted_at is null
on conflict (session_id) do update set due = true, asked_at = excluded.asked_at, queue = excluded.queue,
 attempts = case when sessions_app_duesummary.attempts < %s then sessions_app_duesummary.attempts else 0 end
where sessions_app_duesummary.rest_until is null or sessions_app_duesummary.rest_until <= {now}
"""

_FREE = f"t.worker not in {_ALIVE} and (t.rest_until is null or t.rest_until <= {{now}})"
_HAS_FREE = f"select t.id from sessions_app_duesummary t where t.due and t.attempts < %s and {_FREE}{{of_queues}} limit 1"

# The same fair order as for turns: in a queue, a tenant's second row comes after every other tenant's first.
_CLAIM = f"""
with busy as (select tenant_id, queue, count(*) as places from sessions_app_duesummary where worker in {_ALIVE}
  group by tenant_id, queue),
 line as (select t.id, t.worker, t.asked_at, coalesce(busy.places, 0)
   + row_number() over (partition by t.queue, t.tenant_id order by t.asked_at, t.id) as place
   from sessions_app_duesummary t join sessions_app_session s on s.id = t.session_id
   join sessions_app_tenant x on x.id = t.tenant_id left join busy on busy.tenant_id = t.tenant_id and busy.queue = t.queue
   where t.due and t.attempts < %s and {_FREE}{{of_queues}} and s.deleted_at is null and x.suspended_at is null
   and not t.tenant_id {{among}}),
 next as (select t.id from line join sessions_app_duesummary t on t.id = line.id where t.due and t.worker = line.worker
   order by line.place, line.asked_at, line.id limit %s {{for_change_of_turn}})
update sessions_app_duesummary set worker = %s, attempts = attempts + 1 where id in (select id from next)
returning session_id, tenant_id, attempts
"""

_CLAIM_ONE = f"""
insert into sessions_app_duesummary (tenant_id, session_id, asked_at, due, worker, attempts, rest_until)
select s.tenant_id, s.id, {{now}}, false, %s, 1, null from sessions_app_session s where s.id = %s and s.deleted_at is null
on conflict (session_id) do update set worker = excluded.worker, attempts = sessions_app_duesummary.attempts + 1
where sessions_app_duesummary.worker not in {_ALIVE}
returning session_id, tenant_id, attempts
"""

_STATE = f"""
select t.worker in {_ALIVE}, t.rest_until is not null and t.rest_until > {{now}}
from sessions_app_duesummary t where t.session_id = %s
"""

_CLAIMED_BY = """
select t.session_id from sessions_app_duesummary t join sessions_app_session s on s.id = t.session_id
join sessions_app_tenant x on x.id = t.tenant_id
where t.worker = %s and s.deleted_at is null and x.suspended_at is null
"""


def _lease() -> float:
    return -float(settings.AGENTHOST_LEASE_SECONDS)


# --- the queue -----------------------------------------------------------------------------------


def request(turn: int) -> None:
    """Request a summary of the older part of the turn's session, unless the last attempt failed recently.

    Only a completed turn can request one.
    """
    raw_sql.execute([Statement(_REQUEST, (turn, MOST_ATTEMPTS))])


def _in_queues(sql: str, queues: Sequence[str] | None) -> tuple[str, list[list[str]]]:
    """The statement for the rows of these queues (None: of all), and the values that this adds."""
    if queues is None:
        return sql.replace("{of_queues}", ""), []
    return sql.replace("{of_queues}", " and t.queue {among_texts}"), [list(queues)]


def has_free(queues: Sequence[str] | None = None) -> bool:
    """Whether these queues (None: all) have a free row."""
    sql, values = _in_queues(_HAS_FREE, queues)
    return bool(raw_sql.rows(sql, (MOST_ATTEMPTS, _lease(), *values)))


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session that this worker has claimed for summarising; ``attempts`` includes this one."""

    session: int
    tenant: int
    attempts: int


def claim(worker: str, most: int, besides: Collection[int], queues: Sequence[str] | None = None) -> list[Claimed]:
    """Claim up to ``most`` due sessions of these queues (None: of all) in fair order, except those of the tenants ``besides``."""
    sql, of_queues = _in_queues(_CLAIM, queues)
    values = (_lease(), MOST_ATTEMPTS, _lease(), *of_queues, list(besides), most, worker)
    with journal.transaction():
        return [Claimed(*row) for row in raw_sql.rows(sql, values)]


def claim_one(worker: str, session: int) -> Claimed | None:
    """Claim a session whose run needs the summary now; None if another worker has it or the session is gone."""
    with journal.transaction():
        row = raw_sql.row(_CLAIM_ONE, (worker, session, _lease()))
        return None if row is None else Claimed(*row)


@dataclass(frozen=True, slots=True)
class State:
    """``in_progress``: a live worker is making the summary. ``resting``: the last attempt failed recently."""

    in_progress: bool = False
    resting: bool = False


def state(session: int) -> State:
    found = raw_sql.row(_STATE, (_lease(), session))
    return State() if found is None else State(bool(found[0]), bool(found[1]))


def claimed_by(worker: str) -> set[int]:
    """The sessions that this worker has claimed, without deleted ones and those of suspended tenants."""
    return {session for (session,) in raw_sql.rows(_CLAIMED_BY, (worker,))}


def give_back(worker: str, session: int) -> None:
    """Release a claim without a failure; any worker may claim the session again."""
    _set(worker, session, "attempts = case when attempts > 0 then attempts - 1 else 0 end")


def give_back_all_but(worker: str, sessions: Collection[int]) -> None:
    """Release this worker's claims except these sessions. A locked row is skipped until the next call."""
    sql = (
        "update sessions_app_duesummary set worker = '' where id in (select t.id from sessions_app_duesummary t"
        " where t.worker = %s and not t.session_id {among} {for_change_of_turn})"
    )
    raw_sql.execute([Statement(sql, (worker, list(sessions)))])


def cancel(worker: str, session: int) -> None:
    """Remove a session from the queue because there is nothing to summarise; a later turn may request it again."""
    _set(worker, session, "due = false, attempts = 0")


def _set(worker: str, session: int, values: str) -> None:
    sql = f"update sessions_app_duesummary set worker = '', {values} where worker = %s and session_id = %s"
    raw_sql.execute([Statement(sql, (worker, session))])


def failed(worker: str, session: int, attempts: int) -> None:
    """Record a failure: no worker tries again for a while, and then only if a later turn requests it."""
    rest = min(_LONGEST_REST, _REST * 2 ** (attempts - 1))
    sql = (
        "update sessions_app_duesummary set worker = '', due = false, rest_until = {moment} where worker = %s and session_id = %s"
    )
    raw_sql.execute([Statement(sql, (rest, worker, session))])


def remove(session: Session) -> None:
    """Remove a session from the queue because its history was cut. The session and its live turn are locked."""
    raw_sql.execute([Statement("delete from sessions_app_duesummary where session_id = %s", (session.pk,))])


# --- the input of a summary ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryToSummarise:
    """A session's history as sent to a model, read in one snapshot.

    ``through``: the last position that the newest compaction covers, 0 without one. ``positions``: those of all later messages.
    """

    session: int
    messages: list[Message] = field(repr=False)
    through: int
    positions: Sequence[int] = field(repr=False)

    @property
    def standing(self) -> Message | None:
        return next((message for message in self.messages if message.summary), None)


def history_of(session: int) -> HistoryToSummarise:
    asked = stored_messages.query_for_models([session])
    rows = raw_sql.rows(asked.sql, asked.params)
    found = stored_messages.after_compaction(rows)
    return HistoryToSummarise(session, stored_messages.parse_for_models([session], rows)[session], found.through, found.positions)


@dataclass(frozen=True, slots=True)
class Source:
    """The session that is summarised, with its agent, options and budget."""

    tenant: int
    session: int
    public_id: str
    turn: int
    """The turn whose key the summary's tokens are counted for."""
    spec: AgentSpec
    options: dict[str, str] = field(repr=False)
    instructions: str = field(repr=False)
    tool_schemas: Sequence[ToolSchema] = field(repr=False)
    running_turn: int | None
    budget: quotas.TokenBudget | None

    def older(self, messages: Sequence[Message]) -> compaction.Older | None:
        """The older part of the messages, which is to be summarised; None if there is none."""
        limit = self.spec.context_tokens
        if limit is None:
            return None
        lines = compaction.for_model(messages)
        return compaction.older(lines, self.instructions, self.tool_schemas, limit, self.running_turn)


_SOURCE = """
select s.tenant_id, s.public_id, s.tool_refs, s.client_tools, t.id, t.state, t.format, t.definition_id, d.digest, t.api_key_id,
 x.max_tokens_per_day, k.max_tokens_per_day
from sessions_app_session s join sessions_app_tenant x on x.id = s.tenant_id
join sessions_app_turn t on t.id = (select max(n.id) from sessions_app_turn n where n.session_id = s.id and n.cut_at is null)
join sessions_app_agentdefinition d on d.id = t.definition_id left join sessions_app_apikey k on k.id = t.api_key_id
where s.id = %s and s.deleted_at is null and x.suspended_at is null
"""


def source(session: int) -> Source | None:
    """The session as of its newest turn; None if it is gone or its newest turn has a newer format than this release knows."""
    row = raw_sql.row(_SOURCE, (session,))
    if row is None or row[6] > TURN_FORMAT:
        return None
    (tenant, public_id, tool_refs, client_tools, turn, state, _, definition, digest, key, of_tenant, of_key) = row
    spec = definitions.by_digest(definition, digest)
    opened = options.opened(tenant, session)
    decided = session_settings.parsed(tool_refs, client_tools)
    schemas = [tool.schema for tool in spec.tools if not tool.expose or tool.name in decided.enabled]
    return Source(
        tenant=tenant,
        session=session,
        public_id=public_id,
        turn=turn,
        spec=spec,
        options=opened,
        instructions=agent_options.fill(spec.instructions, agent_options.effective(spec, opened)),
        tool_schemas=[*schemas, *(decided.client_schemas() if spec.client_tools else [])],
        running_turn=turn if state in LIVE_STATES else None,
        budget=quotas.token_budget(tenant, of_tenant, key, of_key),
    )


# --- storing -------------------------------------------------------------------------------------

_NEWEST = "select max(covers_through) from sessions_app_compaction where session_id = %s"
_COVERED = (
    "select count(*) from sessions_app_message where session_id = %s and position > %s and position <= %s and cut_at is null"
)


def store(made_of: HistoryToSummarise, of: Source, summary: Message, full_model: str, used: Sequence[Usage]) -> bool:
    """Store a summary of the history up to ``summary.position``, and its usage.

    False if the history has changed since (truncated, deleted, summarised by another worker): only the usage is stored then.
    """
    with journal.transaction():
        # Truncating and deleting lock the session too, so they have finished or come later.
        locked = Session.objects.select_for_update(no_key=True).filter(pk=of.session).only("pk").first()
        fits = locked is not None and _is_as_it_was(made_of, summary.position)
        statements = _usage_statements(of, full_model, used)
        if fits:
            statements.append(history.compacted(of.tenant, of.session, summary.position, str(summary.content), timezone.now()))
            statements.append(Statement("delete from sessions_app_duesummary where session_id = %s", (of.session,)))
        if statements:
            raw_sql.execute(statements)
    return fits


def is_unchanged(base: HistoryToSummarise) -> bool:
    """Whether no summary was stored since the history was read."""
    newest = raw_sql.row(_NEWEST, (base.session,))
    return newest is not None and (newest[0] or 0) == base.through


def _is_as_it_was(made_of: HistoryToSummarise, through: int) -> bool:
    count = raw_sql.row(_COVERED, (made_of.session, made_of.through, through))
    covered = sum(made_of.through < position <= through for position in made_of.positions)
    return is_unchanged(made_of) and count is not None and count[0] == covered


def store_usage(of: Source, full_model: str, used: Sequence[Usage]) -> None:
    """Store the usage of a summary that failed."""
    if used:
        raw_sql.execute(_usage_statements(of, full_model, used))


def _usage_statements(of: Source, full_model: str, used: Sequence[Usage]) -> list[Statement]:
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in used)
    statements = [usage_entries.tokens_used(of.tenant, of.turn, tokens)] if tokens else []
    statements += [
        model_use.one_call(of.tenant, of.public_id, of.turn, of.spec, full_model, usage, ModelUsePurpose.SUMMARY)
        for usage in used
    ]
    return statements
