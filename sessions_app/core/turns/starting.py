"""Starting a turn with a user's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json
from agents_app.runtime.messages import Content
from sessions_app.core.base import metrics, row_ids, times, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.content import unstorable
from sessions_app.core.base.errors import NotPossible, TurnAlreadyRunning
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.pipeline import Rows
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.base.user_messages import UserMessage, title_of
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches, history, idempotency, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import StepRef
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.tenancy import agents, definitions, quotas
from sessions_app.core.turns.closing import close_calls, duration_of, end_times, void_forms
from sessions_app.core.turns.deferred import apply_deferred_models
from sessions_app.core.turns.opening import (
    accepted_before,
    admit_into,
    append_all,
    insert_turn,
    lock_and_read_open,
    next_row,
    open_turn_and_calls,
    options_with_model,
)
from sessions_app.core.turns.types import NO_MODEL, Accepted, TurnModel
from sessions_app.models import Origin, Session, ToolCall, Turn, TurnState

NOTHING = Overrides()
LONGEST_TURN_ID = 256


def start(
    caller: Caller,
    session: Session,
    *,
    content: Content,
    overrides: Overrides = NOTHING,
    idempotency_key: IdempotencyKey | None = None,
    deadline: float | None = None,
    turn_id: str | None = None,
    as_written: UserMessage | None = None,
    only_if_idle: bool = False,
    started_at: str | None = None,
    client: str | None = None,
    dispatched: Dispatched | None = None,
) -> Accepted:
    """Start a turn with a user message. ``deadline``: seconds until its run is stopped.

    A turn that waits for its client is ended, because a new message replaces it, and its open calls are closed: models
    refuse a call without a result. ``only_if_idle``: TurnAlreadyRunning instead. ``turn_id``: an id that the client chose.
    ``as_written``: the message as the client wrote it, if the model gets another text or it names a model, which counts for this
    turn alone. ``started_at``: by the clock of the client, whose own action then announces the turn. ``client``: the one of AHP
    that starts it, if that has dispatched nothing.
    """
    definitions.prepare(session.agent_name)
    with quotas.check(caller, quotas.COUNTED_WITH_TURNS, starts_turn=True) as asking, journal.transaction() as tx:
        session, open_state, earlier, (records, same_id, tokens) = lock_and_read_open(
            caller,
            session,
            idempotency_key,
            dispatches.record_queries(caller, dispatched),
            _turns_with(session, turn_id),
            asking.turn_queries(),
        )
        if earlier is not None:
            return accepted_before(session, earlier)
        tx.last(dispatches.recorded(caller, dispatched, records))
        admit_into(open_state)
        asking.take_turn(tokens)
        spec = agents.for_turn(caller, session)
        live, calls = open_turn_and_calls(session, open_state)
        if live is not None and only_if_idle:
            raise TurnAlreadyRunning(session.public_id)
        if turn_id is None:
            turn_id = new_id("turn")
        else:
            _check_new_id(turn_id, same_id)
        definition = session_settings.apply_overrides(session, spec, overrides)
        for happening in session_settings.change_events(spec, overrides):
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
        tx.last(idempotency.record(caller, idempotency_key, session=session.public_id, turn=turn_id, run=1))
        model = TurnModel.of(spec, options_with_model(open_state, overrides.options), as_written)
        if started_at is not None and dispatched is not None and (as_written is None or as_written.model is None):
            # Clients see the action, which names none.
            model = NO_MODEL
        client = client if dispatched is None else dispatched.client
        message = FirstMessage(content, as_written, dispatched=dispatched, started_at=started_at, model=model, client=client)
        started = begin_locked(tx, next_row(open_state), caller.key, session, turn_id, message, definition, deadline, live, calls)
        asking.admit_turn(tx.write)
    return started.accepted(tx, asking.rate_statuses)


def _turns_with(session: Session, turn_id: str | None) -> list[Statement]:
    if turn_id is None or unstorable(turn_id, ()):
        return []
    return [Statement("select 1 from sessions_app_turn where session_id = %s and public_id = %s", (session.pk, turn_id))]


def _check_new_id(turn_id: str, same_id: Sequence[Rows]) -> None:
    """NotPossible if a client may not use this id for its turn. ``same_id``: the rows of ``_turns_with``."""
    if not turn_id or len(turn_id) > LONGEST_TURN_ID or unstorable(turn_id, ()):
        raise NotPossible(f"a turn's id needs 1 to {LONGEST_TURN_ID} characters that can be stored")
    if same_id[0]:
        raise NotPossible("this session already has a turn with this id")


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """A user's message that starts a turn.

    ``queued_id``: its id in the inbox, if it was queued. ``client``: the one of AHP that sent it.
    """

    content: Content
    as_written: UserMessage | None = None
    queued_id: str | None = None
    dispatched: Dispatched | None = None
    started_at: str | None = None
    model: TurnModel = NO_MODEL
    client: str | None = None
    trace: str | None = None
    """Of the request that sent it, if it was queued."""

    def happening(self, turn_id: str, began: str) -> Happening:
        shown: dict[str, Any] = {"content": self.content}
        if self._as_written is not None:
            shown.update(replace(self._as_written, model=None).document())
        payload: dict[str, Any] = {"turn": turn_id, "run": 1, "started_at": began, "message": shown}
        if self.model.id is not None:
            payload["model"] = self.model.id
        if self.queued_id is not None:
            payload["queued"] = self.queued_id
        return dispatches.with_origin(Happening(Kind.TURN_STARTED, payload), self.dispatched)

    @property
    def _as_written(self) -> UserMessage | None:
        """None: the stored message says it all."""
        written = self.as_written
        return None if written is None or written.attachments is None else written

    @property
    def as_written_json(self) -> str | None:
        """The message as its client wrote it, for the turn's row; None: the stored message is the same."""
        return None if self._as_written is None else exact_json.dumps(replace(self._as_written, model=None).document())


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn that was started in an open transaction. ``first``: the index of its first event in ``tx.stored``."""

    turn: int
    public_id: str
    first: int

    def accepted(self, tx: journal.Transaction, standings: tuple[quotas.RateStatus, ...]) -> Accepted:
        """Call this after the transaction."""
        return Accepted(self.turn, self.public_id, 1, tx.stored[self.first].seq, standings=standings)


def begin(
    tx: journal.Transaction,
    caller: Caller,
    session: Session,
    turn_id: str,
    *,
    content: Content,
    model: TurnModel,
    definition: int,
    deadline: float | None,
    has_history: bool,
) -> StartedTurn:
    """Start a turn in the transaction that creates its session; a seed's open calls are closed."""
    message = FirstMessage(content, model=model)
    if not has_history:
        row = row_ids.take("sessions_app_turn")
        return begin_locked(tx, row, caller.key, session, turn_id, message, definition, deadline, None, [])
    live, calls = open_turn_and_calls(session)
    return begin_locked(tx, None, caller.key, session, turn_id, message, definition, deadline, live, calls)


def begin_locked(
    tx: journal.Transaction,
    row: int | None,
    key: int | None,
    session: Session,
    turn_id: str,
    message: FirstMessage,
    definition: int,
    deadline: float | None,
    live: Turn | None,
    calls: Sequence[ToolCall],
) -> StartedTurn:
    """Start a turn in a locked session.

    ``row``: its number, if it is known already. ``live``: the waiting turn that it replaces; ``calls``: the open ones, to be
    closed.
    """
    now = timezone.now()
    if live is not None:
        _end_waiting(tx, live, session.agent_name)
    began = message.started_at or times.text_of(now)
    turn = insert_turn(
        tx,
        row,
        key,
        session,
        turn_id,
        definition,
        deadline,
        message.as_written_json,
        began=began,
        model=message.model,
        client=message.client,
        message_trace=message.trace,
    )
    tx.know(session.pk, session)
    if calls:
        # Their messages refer to the turn's row.
        tx.write()
    ref = StepRef(session.tenant_id, session.pk, turn, run=1, step=0)
    ended = turn_id if live is None else live.public_id
    happenings = [
        message.happening(turn_id, began),
        *close_calls(ref, ended, calls, history.REPLACED, history.REPLACED, now, shown=True),
    ]
    title = title_of(message.content) if session.title is None else None
    if title is not None:
        happenings.append(Happening(Kind.TITLE_CHANGED, {"title": title}))
    line = history.message(ref, "user", message.content, now, origin=Origin.CLIENT)
    tx.last([session_settings.turn_started(session, title), *line])
    first = append_all(tx, session, happenings)
    return StartedTurn(turn, turn_id, first)


def _end_waiting(tx: journal.Transaction, turn: Turn, agent: str) -> None:
    lasted = duration_of(turn, timezone.now())
    Turn.objects.filter(pk=turn.pk).update(state=TurnState.CANCELLED, stop_reason="end_turn", ended_at=Now(), duration_ms=lasted)
    payload = {"turn": turn.public_id, "run": turn.run, "reason": "end_turn", "cause": "replaced", "in_run": False}
    payload |= end_times(turn, lasted)
    for happening in (Happening(Kind.TURN_CANCELLED, payload), *apply_deferred_models(turn)):
        tx.append(NewEvent(turn.tenant_id, turn.session_id, happening))
    void_forms(turn)
    tx.after_commit(partial(metrics.turn_ended, agent, TurnState.CANCELLED, lasted))
    about = {"agenthost.turn.outcome": "cancelled", "agenthost.turn.cause": "replaced"}
    tx.after_commit(partial(traces.ended, turn.trace, turn.created_at, agent, "", {**traces.ids_of(turn), **about}))
