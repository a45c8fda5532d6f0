"""The rows of summaries: which sessions are due, who is at it, what stands for the start of a history.

A row of ``DueSummary`` is the queue and the lock: a worker takes it by a conditional update, and one whose
worker is gone is free. What is stored is checked under the session's lock against what it was made of.
Locks: the session, then its row here; never a turn in between.
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
from sessions_app.core.tenancy import definitions, model_use, quotas
from sessions_app.models import LIVE_STATES, TURN_FORMAT, ModelUsePurpose, Session

MOST_ATTEMPTS = 6
_REST, _LONGEST_REST = 60.0, 3600.0
"""Seconds until a summary that failed is tried again; each failure doubles them."""

_ALIVE = "(select p.worker from sessions_app_workerpresence p where p.seen_at > {moment})"

_REQUEST = """
insert into sessions_app_duesummary (tenant_id, session_id, asked_at, due, worker, attempts, rest_until)
select s.tenant_id, s.id, {now}, true, '', 0, null from sessions_app_session s
join sessions_app_turn t on t.session_id = s.id where t.id = %s and t.state = 'done' and s.deleted_at is null
on conflict (session_id) do update set due = true, asked_at = excluded.asked_at,
 attempts = case when sessions_app_duesummary.attempts < %s then sessions_app_duesummary.attempts else 0 end
where sessions_app_duesummary.rest_until is null or sessions_app_duesummary.rest_until <= {now}
"""

_FREE = f"t.worker not in {_ALIVE} and (t.rest_until is null or t.rest_until <= {{now}})"
_HAS_FREE = f"select t.id from sessions_app_duesummary t where t.due and t.attempts < %s and {_FREE} limit 1"

# As turns are claimed: a tenant's second one stands behind every other tenant's first.
_CLAIM = f"""
with busy as (select tenant_id, count(*) as places from sessions_app_duesummary where worker in {_ALIVE} group by tenant_id),
 line as (select t.id, t.worker, t.asked_at, coalesce(busy.places, 0)
   + row_number() over (partition by t.tenant_id order by t.asked_at, t.id) as place
   from sessions_app_duesummary t join sessions_app_session s on s.id = t.session_id
   join sessions_app_tenant x on x.id = t.tenant_id left join busy on busy.tenant_id = t.tenant_id
   where t.due and t.attempts < %s and {_FREE} and s.deleted_at is null and x.suspended_at is null
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


# --- who is at it --------------------------------------------------------------------------------


def request(turn: int) -> None:
    """The next input of the turn's session will be long: its older part should be summarised, unless that failed not long ago.

    Nothing is asked for after a turn that was cancelled or came to nothing.
    """
    raw_sql.execute([Statement(_REQUEST, (turn, MOST_ATTEMPTS))])


def has_free() -> bool:
    """Whether a look at the queue is worth while."""
    return bool(raw_sql.rows(_HAS_FREE, (MOST_ATTEMPTS, _lease())))


@dataclass(frozen=True, slots=True)
class Claimed:
    """A session whose summary is this worker's to make; ``attempts`` with this one."""

    session: int
    tenant: int
    attempts: int


def claim(worker: str, most: int, besides: Collection[int]) -> list[Claimed]:
    """Up to ``most`` due sessions in fair order, none of the tenants ``besides``."""
    values = (_lease(), MOST_ATTEMPTS, _lease(), list(besides), most, worker)
    with journal.transaction():
        return [Claimed(*row) for row in raw_sql.rows(_CLAIM, values)]


def claim_one(worker: str, session: int) -> Claimed | None:
    """For a run that needs the summary now; None: somebody is at it, or the session is gone."""
    with journal.transaction():
        row = raw_sql.row(_CLAIM_ONE, (worker, session, _lease()))
        return None if row is None else Claimed(*row)


@dataclass(frozen=True, slots=True)
class State:
    """``in_progress``: a living worker makes the summary now. ``resting``: the last attempt failed not long ago."""

    in_progress: bool = False
    resting: bool = False


def state(session: int) -> State:
    found = raw_sql.row(_STATE, (_lease(), session))
    return State() if found is None else State(bool(found[0]), bool(found[1]))


def claimed_by(worker: str) -> set[int]:
    """The sessions that this worker may go on with."""
    return {session for (session,) in raw_sql.rows(_CLAIMED_BY, (worker,))}


def give_back(worker: str, session: int) -> None:
    """Not done and not failed: whoever comes next may begin anew."""
    _set(worker, session, "attempts = case when attempts > 0 then attempts - 1 else 0 end")


def give_back_all_but(worker: str, sessions: Collection[int]) -> None:
    """What this worker is said to be at, and is not. A row that somebody holds is left for the next time."""
    sql = (
        "update sessions_app_duesummary set worker = '' where id in (select t.id from sessions_app_duesummary t"
        " where t.worker = %s and not t.session_id {among} {for_change_of_turn})"
    )
    raw_sql.execute([Statement(sql, (worker, list(sessions)))])


def nothing_to_do(worker: str, session: int) -> None:
    """There is nothing to be done; a later turn may see that otherwise."""
    _set(worker, session, "due = false, attempts = 0")


def _set(worker: str, session: int, what: str) -> None:
    sql = f"update sessions_app_duesummary set worker = '', {what} where worker = %s and session_id = %s"
    raw_sql.execute([Statement(sql, (worker, session))])


def failed(worker: str, session: int, attempts: int) -> None:
    """Nobody tries again for a while, and then only if a later turn asks for it."""
    rest = min(_LONGEST_REST, _REST * 2 ** (attempts - 1))
    sql = (
        "update sessions_app_duesummary set worker = '', due = false, rest_until = {moment} where worker = %s and session_id = %s"
    )
    raw_sql.execute([Statement(sql, (rest, worker, session))])


def remove(session: Session) -> None:
    """What was asked for is void: its history was cut. The session is locked, and so is its live turn, if there was one."""
    raw_sql.execute([Statement("delete from sessions_app_duesummary where session_id = %s", (session.pk,))])


# --- what it is made of --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryToSummarise:
    """A session's history as a model would be given it, read at one moment.

    ``through``: what the newest compaction covers, 0 without one. ``positions``: of all messages behind it.
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
    """The conversation that is summarised, and what its model is given besides."""

    tenant: int
    session: int
    public_id: str
    turn: int
    """Whose key's tokens the summary takes."""
    spec: AgentSpec
    options: dict[str, str] = field(repr=False)
    instructions: str = field(repr=False)
    tool_schemas: Sequence[ToolSchema] = field(repr=False)
    running_turn: int | None
    budget: quotas.TokenBudget | None

    def older(self, messages: Sequence[Message]) -> compaction.Older | None:
        """What there is to be summarised."""
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
    """As its newest turn has it. None: there is nothing to be summarised any more, or nothing that this release understands."""
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
    """Store what stands for the history up to ``summary.position``, and what it took.

    False: what it was made of is not what is there now (truncated, deleted, summarised by somebody else), and only
    what it took is stored.
    """
    with journal.transaction():
        # Whoever cuts or deletes locks the session first: it is done before or comes after.
        locked = Session.objects.select_for_update(no_key=True).filter(pk=of.session).only("pk").first()
        fits = locked is not None and _is_as_it_was(made_of, summary.position)
        statements = _usage_statements(of, full_model, used)
        if fits:
            statements.append(history.compacted(of.tenant, of.session, summary.position, str(summary.content), timezone.now()))
            statements.append(Statement("delete from sessions_app_duesummary where session_id = %s", (of.session,)))
        if statements:
            raw_sql.execute(statements)
    return fits


def _is_as_it_was(made_of: HistoryToSummarise, through: int) -> bool:
    newest, count = raw_sql.row(_NEWEST, (made_of.session,)), raw_sql.row(_COVERED, (made_of.session, made_of.through, through))
    covered = sum(made_of.through < position <= through for position in made_of.positions)
    return newest is not None and count is not None and (newest[0] or 0, count[0]) == (made_of.through, covered)


def store_usage(of: Source, full_model: str, used: Sequence[Usage]) -> None:
    """What was taken for nothing."""
    if used:
        raw_sql.execute(_usage_statements(of, full_model, used))


def _usage_statements(of: Source, full_model: str, used: Sequence[Usage]) -> list[Statement]:
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in used)
    statements = [quotas.tokens_used(of.tenant, of.turn, tokens)] if tokens else []
    statements += [
        model_use.one_call(of.tenant, of.public_id, of.turn, of.spec, full_model, usage, ModelUsePurpose.SUMMARY)
        for usage in used
    ]
    return statements
