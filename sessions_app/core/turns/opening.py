"""Inserts a turn's row, after looking for an open turn or open calls in its session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from agents_app import tracing
from sessions_app.core.base import metrics, raw_sql, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import TurnAlreadyRunning
from sessions_app.core.base.events import Happening
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import idempotency
from sessions_app.core.records.idempotency import EarlierResult, IdempotencyKey
from sessions_app.core.tenancy import access, agents, definitions, usage_entries
from sessions_app.core.turns import tasks
from sessions_app.core.turns.closing import lock_live_turn, lock_open_calls
from sessions_app.core.turns.types import Accepted, TurnModel
from sessions_app.models import TURN_WITH_MODEL, Session, ToolCall, Turn, TurnState

OpenState = list[tuple[Any, ...]]
"""One row: whether a turn is live, whether a call is open, the session's bytes and model, and the number of its next turn's row.

A session's turns are in the order of their numbers, so the number is taken while the session is locked. None on SQLite.
"""

_ANYTHING_OPEN = f"""
select exists (select 1 from sessions_app_turn where session_id = %s and state in ('queued', 'running', 'waiting')),
 exists (select 1 from sessions_app_toolcall where session_id = %s
  and state in ('pending', 'granted', 'running', 'review')), {usage_entries.SESSION_BYTES},
 (select value from sessions_app_optionvalue where session_id = %s and name = 'model'), {{next_turn}}
"""


def lock_and_read_open(
    caller: Caller, session: Session, idempotency_key: IdempotencyKey | None, *more: Sequence[Statement]
) -> tuple[Session, OpenState, EarlierResult | None, list[list[Rows]]]:
    """Lock the session, and read what is open in it and the earlier result of this request, in one round trip.

    ``more``: groups of queries that run in it too; the last value has their rows.
    """
    groups = [idempotency.find_queries(caller, idempotency_key), *more]
    queries = chain.from_iterable(groups)
    locked, (open_state, *found) = access.lock_session_and(caller, session, _open_query(session), *queries)
    answers = iter(found)
    earlier, *rest = [list(islice(answers, len(group))) for group in groups]
    return locked, open_state, idempotency.earlier(idempotency_key, earlier), rest


def _open_query(session: Session) -> Statement:
    return Statement(_ANYTHING_OPEN, (session.pk, session.pk) + (session.tenant_id, session.pk) * 2 + (session.pk,))


def next_row(open_state: OpenState) -> int | None:
    """The number of the session's next turn."""
    row = open_state[0][4]
    return None if row is None else int(row)


def options_with_model(open_state: OpenState, changed: Mapping[str, str] | None) -> dict[str, str]:
    """A request's changes of options, and the session's option ``model`` if they have none."""
    stored = {} if open_state[0][3] is None else {agents.MODEL: str(open_state[0][3])}
    return {**stored, **(changed or {})}


def admit_into(open_state: OpenState) -> None:
    """Raises ``SessionFull`` if the session has reached its limit of bytes."""
    usage_entries.check_session_size(int(open_state[0][2]))


def open_turn_and_calls(session: Session, open_state: OpenState | None = None) -> tuple[Turn | None, list[ToolCall]]:
    """Lock a locked session's waiting turn and its open calls. TurnAlreadyRunning if its turn does not wait.

    ``open_state`` saves both queries for most sessions: while the session is locked no turn starts, and without a turn no
    call is made. With a turn it may be outdated: a run does not lock the session, and may have stored calls and paused
    while its turn's row was waited for.
    """
    if open_state is None:
        query = _open_query(session)
        open_state = raw_sql.rows(query.sql, query.params)
    ((any_turn, any_call, *_),) = open_state
    live = lock_live_turn(session) if any_turn else None
    if live is not None and live.state != TurnState.WAITING:
        raise TurnAlreadyRunning(session.public_id)
    return live, lock_open_calls(session) if any_call or live is not None else []


_INSERT = """
insert into sessions_app_turn ({id}tenant_id, session_id, api_key_id, public_id, definition_id, format, state, stop_reason, error,
 run, step, parts, fence, worker, takeovers, input_tokens, output_tokens, cache_read_tokens, created_at, queued_at, deadline_at,
 said, began, model, model_named, client, queue, trace, attention)
values ({value}%s, %s, %s, %s, %s, %s, 'queued', '', '', 1, 0, '[]', 0, '', 0, 0, 0, 0, {now}, {now}, {moment},
 %s, %s, %s, %s, %s, %s, %s, exists (select 1 from sessions_app_pendingmessage where session_id = %s)
 or exists (select 1 from sessions_app_sessionclient where session_id = %s))
"""
_INSERT_AT_END = _INSERT.replace("{id}", "id, ").replace("{value}", "%s, ")
_INSERT_NOW = _INSERT.replace("{id}", "").replace("{value}", "") + " on conflict do nothing returning id"


def insert_turn(
    tx: journal.Transaction,
    row: int | None,
    key: int | None,
    session: Session,
    public_id: str,
    definition: int,
    deadline: float | None,
    message_as_written: str | None = None,
    *,
    began: str,
    model: TurnModel,
    client: str | None = None,
    message_trace: str | None = None,
) -> int:
    """Insert a queued turn of a locked session without a live one, at the end of the transaction, and wake a worker after it.

    ``row``: its number if it is known already; else it is inserted now. ``key``: the API key's row. ``deadline``: seconds
    until the run is stopped, by the database's clock (A123). ``message_as_written``: the client's message as JSON, if the
    model gets another text. ``client``: the one of AHP that started it. ``message_trace``: of the request that sent
    the message, if that was queued.
    """
    trace = traces.of_new_turn(message_trace)
    needed, queue = definitions.format_and_queue(definition)
    stored_as = max(needed, TURN_WITH_MODEL if model.named else 0)
    values = (
        session.tenant_id,
        session.pk,
        key,
        public_id,
        definition,
        stored_as,
        deadline,
        message_as_written,
        began,
        model.id,
        model.named,
        client,
        queue,
        trace,
        session.pk,
        session.pk,
    )
    if trace is not None:
        tx.after_commit(partial(traces.accepted, trace, tracing.now(), 1, queue))
    tx.after_commit(metrics.TURNS_STARTED.labels(metrics.agent(session.agent_name)).inc)
    tx.after_commit(partial(tasks.wake, queue))
    if row is not None:
        tx.last([Statement(_INSERT_AT_END, (row, *values))])
        return row
    found = raw_sql.row(_INSERT_NOW, values)
    if found is None:
        raise TurnAlreadyRunning(session.public_id)
    return int(found[0])


def accepted_before(session: Session, earlier: EarlierResult) -> Accepted:
    """The answer that the first request with this idempotency key got (A98)."""
    turn = Turn.objects.get(session=session, public_id=earlier.turn)
    start = journal.run_start(session.pk, earlier.turn, earlier.run)
    return Accepted(turn.pk, turn.public_id, earlier.run, start or 0, repeated=True)


def append_all(tx: journal.Transaction, session: Session, happenings: list[Happening]) -> int:
    """Append them; returns the index of the first one in ``tx.stored``."""
    indexes = [tx.append(NewEvent(session.tenant_id, session.pk, happening)) for happening in happenings]
    return indexes[0]
