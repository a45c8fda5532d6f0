"""Stopping a turn from outside its run."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from django.db import OperationalError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.runtime.content import of_assistant
from agents_app.runtime.messages import Content
from sessions_app.core.base import lock_timeouts, maintenance, metrics, raw_sql, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.lock_timeouts import LockHeld
from sessions_app.core.base.maintenance import Round
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import Event, NewEvent
from sessions_app.core.records import dispatches, history
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import StepRef
from sessions_app.core.tenancy import access, audit
from sessions_app.core.turns import failures, refusals
from sessions_app.core.turns.closing import close_calls, duration_of, end_times, lock_live_turn, void_forms
from sessions_app.core.turns.deferred import apply_deferred_models
from sessions_app.core.turns.types import CancelReceipt, Claimed, Stop, Stopped
from sessions_app.models import (
    LIVE_STATES,
    OPEN_CALL_STATES,
    ApiKey,
    CallRunner,
    CallState,
    Form,
    Origin,
    Session,
    Tenant,
    ToolCall,
    Turn,
    TurnState,
)

log = logging.getLogger(__name__)


def open_step(turn: Turn) -> list[Event]:
    """The stream events of the step whose message is not stored yet; empty if there is none."""
    events = journal.open_step(turn.session_id)
    if not events or any(event.kind == Kind.STEP_DONE for event in events):
        return []
    payload = exact_json.loads(events[0].data)
    return events if payload["turn"] == turn.public_id else []


@dataclass(slots=True)
class _PartialStep:
    """The open step, put together from its stream events."""

    step: int = 0
    text: str = ""
    thinking: str = ""
    parts: list[dict[str, object]] = field(default_factory=list)

    @staticmethod
    def of(events: Sequence[Event]) -> _PartialStep:
        partial = _PartialStep()
        # Joined at the end: a step may have thousands of deltas, and adding each to a string would copy all before it.
        deltas: list[tuple[dict[str, object], str, list[str]]] = []
        of_id: dict[str, list[str]] = {}
        text: list[str] = []
        thinking: list[str] = []

        def open_part(part: dict[str, object], name: str, key: str) -> None:
            partial.parts.append(part)
            of_id[name] = []
            deltas.append((part, key, of_id[name]))

        for event in events:
            payload = exact_json.loads(event.data)
            match event.kind:
                case Kind.STEP_STARTED:
                    partial.step = payload["step"]
                case Kind.TEXT_OPENED | Kind.THINKING_OPENED:
                    kind = "text" if event.kind == Kind.TEXT_OPENED else "thinking"
                    open_part({"id": payload["part"], "kind": kind, "text": ""}, payload["part"], "text")
                case Kind.CALL_OPENED:
                    title, client = payload.get("title", ""), payload.get("client")
                    call = history.incomplete_call(payload["part"], payload["call"], payload["name"], title, client)
                    open_part(call, payload["call"], "partial")
                case Kind.CALL_ARGUMENTS:
                    of_id.get(payload["call"], []).append(payload["delta"])
                case Kind.TEXT_DELTA | Kind.THINKING_DELTA:
                    of_id.get(payload["part"], []).append(payload["delta"])
                    if event.kind == Kind.TEXT_DELTA:
                        text.append(payload["delta"])
                    elif not payload.get("late"):
                        thinking.append(payload["delta"])
        for part, key, texts in deltas:
            if texts:
                part[key] = "".join(texts)
        partial.text, partial.thinking = "".join(text), "".join(thinking)
        return partial


def abandon_step(turn: Turn) -> Happening | None:
    """Close a step whose parts were opened but have no text yet; the turn is locked and has been taken over.

    Clients may have seen the parts, so they stay in the turn, and the next step gets another number. None: no part was
    opened.
    """
    partial = _PartialStep.of(open_step(turn))
    if not partial.parts:
        return None
    history.set_open_parts(turn, partial.parts, partial.step)
    return step_done(turn, partial.step)


def step_done(turn: Turn, step: int) -> Happening:
    """The end of a step that its run did not end; the next one gets another number."""
    usage = {
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "cache_read_tokens": turn.cache_read_tokens,
    }
    return Happening(Kind.STEP_DONE, {"turn": turn.public_id, "step": step, "usage": usage})


def stop_locked(
    tx: journal.Transaction, turn: Turn, stop: Stop, dispatched: Dispatched | None = None, duration_ms: int | None = None
) -> Stopped:
    """Write a live turn's end from outside its run; the turn and its session are locked.

    ``duration_ms``: as the client that stops it has measured it.

    The open step is stored as far as the journal has it. Then the tenant's counter is locked, so that no more deltas are
    stored, and those that came in between are added: every delta that a client saw is in the history. The raised fence
    refuses later writes of the run.
    """
    now = timezone.now()
    was = turn.state
    in_run = was in (TurnState.QUEUED, TurnState.RUNNING)
    fence = journal.tail(turn.session_id).fence + 1
    events = open_step(turn) if was == TurnState.RUNNING else []
    partial = _PartialStep.of(events)
    ref = StepRef(turn.tenant_id, turn.session_id, turn.pk, turn.run, partial.step or turn.step)
    content = of_assistant(partial.text, partial.thinking, [])
    if content is not None:
        raw_sql.execute(history.message(ref, "assistant", content, now, origin=Origin.SERVER))
    calls = list(
        ToolCall.objects.select_for_update(no_key=True)
        .filter(turn=turn, state__in=OPEN_CALL_STATES)
        .order_by("step", "ordinal", "pk")
    )
    unstored = list(ToolCall.objects.filter(turn=turn, state__in=[CallState.DONE, CallState.DENIED], stored=False))
    for call in unstored:
        _store_result_message(ref, call, now)
    closed = close_calls(ref, turn.public_id, calls, history.CANCELLED, stop.result_of_running_calls, now, shown=in_run)
    error = "" if stop.state is TurnState.CANCELLED else stop.cause
    lasted = None if stop.cause == "cut" else duration_of(turn, now) if duration_ms is None else duration_ms
    resumable = stop.state is TurnState.ERROR and _is_resumable(turn, error, ref.step)
    how = history.End(stop.state, stop.reason, error, stop.failure, lasted, resumable)
    history.end_turn_from_outside(turn, fence, how, partial.parts)
    if calls:
        void_forms(turn)
    deferred = apply_deferred_models(turn)
    if was == TurnState.RUNNING:
        journal.lock_counter(turn.tenant_id, waiting=tx.waiting)
        late = open_step(turn)
        if len(late) > len(events):
            partial = _amend(ref, turn, content, _PartialStep.of(late), now)
    happenings = [*history.text_events(turn.public_id, partial.step, partial.text, partial.thinking), *closed]
    if any(call.state == CallState.RUNNING and call.runner == CallRunner.SERVER for call in calls):
        happenings.append(Happening(Kind.ACTIVITY_CHANGED, {"activity": None}))
    agent, took = turn.session.agent_name, duration_of(turn, now)
    tx.after_commit(lambda: metrics.turn_ended(agent, stop.state, took))
    about = {**traces.ids_of(turn), "agenthost.turn.outcome": str(stop.state), "agenthost.turn.cause": stop.cause}
    tx.after_commit(lambda: traces.ended(turn.trace, turn.created_at, agent, error, about))
    end = {"turn": turn.public_id, "run": turn.run, "in_run": in_run, **end_times(turn, lasted)}
    if stop.state is TurnState.CANCELLED:
        cancelled = Happening(Kind.TURN_CANCELLED, {**end, "reason": stop.reason, "cause": stop.cause})
        happenings.append(dispatches.with_origin(cancelled, dispatched))
    else:
        happenings.append(Happening(Kind.TURN_FAILED, {**end, "error": stop.cause, "resumable": resumable}))
    for happening in [*happenings, *deferred]:
        tx.append(NewEvent(turn.tenant_id, turn.session_id, happening, fence=fence))
    return Stopped(turn.pk, turn.worker if was == TurnState.RUNNING else "")


def _is_resumable(turn: Turn, error: str, step: int) -> bool:
    spec = registry.find(turn.session.agent_name)
    most_steps = None if spec is None else spec.limits.max_steps
    if not failures.may_pass(error, None) or not failures.has_room(step, most_steps, turn.attempt):
        return False
    # A question that the end leaves unanswered can be answered no more, and a live turn would seem to wait for it.
    return not Form.objects.filter(turn=turn, response="").exists()


def _amend(ref: StepRef, turn: Turn, before: Content | None, partial: _PartialStep, now: datetime) -> _PartialStep:
    """Add the deltas that were stored while the end was being written."""
    content = of_assistant(partial.text, partial.thinking, [])
    if content is not None and before is None:
        raw_sql.execute(history.message(ref, "assistant", content, now, origin=Origin.SERVER))
    elif content is not None and before is not None:
        history.extend_partial_message(ref, before, content)
    history.set_open_parts(turn, partial.parts)
    return partial


def _store_result_message(ref: StepRef, call: ToolCall, now: datetime) -> None:
    """Store the message of an answer that came while the run was busy."""
    origin = Origin.SERVER if call.state == CallState.DENIED or call.started_at is not None else Origin.CLIENT
    content = exact_json.loads(call.result or '""')
    raw_sql.execute(
        [
            *history.message(ref, "tool", content, now, origin=origin, tool_call_id=call.call_id),
            history.call_stored(ref, call.call_id),
        ]
    )


def stop_live_turn(tx: journal.Transaction, session: Session, stop: Stop) -> Stopped | None:
    """Stop a locked session's live turn, if it has one, in an open transaction. Call ``tell_worker`` after it."""
    turn = lock_live_turn(session)
    return None if turn is None else stop_locked(tx, turn, stop)


def stop(
    turn_id: int, stop: Stop, *, fence: int | None = None, waiting: bool = True, no_lock_wait: bool = False
) -> Stopped | None:
    """Stop this turn, never the session's next one; None if it has ended already.

    ``fence``: a run ends its own turn; the turn is left alone if it waits or runs under another fence.
    ``waiting`` False: do not wait for locks. The turn is left alone while its session or its row is locked; Held if another
    row of it, or its tenant's counter, is locked. ``no_lock_wait``: not even for the short time that is usual then.
    """
    skipping = not waiting and lock_timeouts.skip_locked()
    transaction = journal.transaction(waiting=waiting)
    with transaction if waiting else lock_timeouts.short(transaction) as tx:
        if no_lock_wait:
            lock_timeouts.set_shortest()
        session_id = Turn.objects.filter(pk=turn_id).values_list("session_id", flat=True).first()
        if session_id is None:
            return None
        sessions = Session.with_deleted.select_for_update(no_key=True, skip_locked=skipping)
        if (session := sessions.filter(pk=session_id).first()) is None:
            return None
        rows = Turn.objects.select_for_update(no_key=True, skip_locked=skipping)
        turn = rows.filter(pk=turn_id, state__in=LIVE_STATES).first()
        if turn is None or (fence is not None and (turn.fence, turn.state) != (fence, TurnState.RUNNING)):
            return None
        turn.session = session
        stopped = stop_locked(tx, turn, stop)
    tell_worker(stopped)
    return stopped


def tell_worker(stopped: Stopped | None) -> None:
    """Notify the worker of a stopped run. If this is lost, the worker notices at its next write or sweep."""
    if stopped is not None and stopped.worker:
        broadcast.notify_worker(stopped.worker, {"turn": stopped.turn_id, "what": "stopped"})


_PROVIDER_CLOSE_WAIT = 1.0
_PROVIDER_CLOSE_POLL = 0.02


def cancel(caller: Caller, session: Session) -> CancelReceipt:
    """Stop the turn in progress, and wait up to a second until the provider's call is closed."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        stopped = stop_live_turn(tx, session, Stop(cause="client", reason="end_turn"))
    if stopped is None:
        return CancelReceipt(cancelled=False)
    if not stopped.worker:
        return CancelReceipt(cancelled=True, provider_closed=True)
    tell_worker(stopped)
    deadline = time.monotonic() + _PROVIDER_CLOSE_WAIT
    while True:
        if Turn.objects.filter(pk=stopped.turn_id, provider_closed_at__isnull=False).exists():
            return CancelReceipt(cancelled=True, provider_closed=True)
        if time.monotonic() >= deadline:
            return CancelReceipt(cancelled=True, provider_closed=False)
        time.sleep(_PROVIDER_CLOSE_POLL)


def stop_by_operator(session: Session, *, actor: str, address: str) -> bool:
    """Stop the session's live turn for an operator of the server, with an audit record; False if there is none."""
    with journal.transaction() as tx:
        session = access.lock_any_session(session)
        stopped = stop_live_turn(tx, session, Stop(cause="client", reason="end_turn"))
        if stopped is None:
            return False
        audit.record(
            actor=actor,
            address=address,
            action=audit.Action.TURN_STOPPED,
            target=f"session {session.public_id}",
            tenant=session.tenant,
        )
    tell_worker(stopped)
    return True


def cancel_turn(
    caller: Caller, session: Session, turn: str, *, duration_ms: int | None = None, dispatched: Dispatched | None
) -> None:
    """Stop this turn. It has ended when this returns; its provider's call is closed soon after.

    ``duration_ms``: how long it took, as the client has measured it.
    """
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        live = lock_live_turn(session)
        if live is None or live.public_id != turn:
            raise NotPossible("this turn is not active")
        stopped = stop_locked(tx, live, Stop(cause="client", reason="end_turn"), dispatched, duration_ms)
    tell_worker(stopped)


StopCause = Literal["suspended", "revoked"]
_LOCKED_POLL = 0.05
RECENTLY = timedelta(minutes=10)
"""How long the sweep looks for turns that a suspension or a revocation did not stop itself."""


def cancel_tenant(tenant_id: int, until: float | None = None) -> int:
    """Stop every live turn of a suspended tenant. Returns how many are locked; the sweep stops those.

    ``until``: how long to wait for locked turns, all of them together; None: ``refusals.deadline``.
    """
    return _cancel_each(Turn.objects.filter(tenant_id=tenant_id), "suspended", until)


def cancel_key(key_id: int, until: float | None = None) -> int:
    """The same for the turns whose last run a revoked key started."""
    return _cancel_each(Turn.objects.filter(api_key_id=key_id), "revoked", until)


def _cancel_each(turns: QuerySet[Turn], cause: StopCause, until: float | None) -> int:
    until = refusals.deadline() if until is None else until
    live, reason = turns.filter(state__in=LIVE_STATES), Stop(cause=cause, reason="error")
    # Whether this round has waited for a lock. It waits for one only.
    has_waited = False

    def stop_free(turn: int) -> int:
        nonlocal has_waited
        try:
            return stop(turn, reason, waiting=False, no_lock_wait=has_waited) is not None
        except LockHeld:
            has_waited = True
            raise

    # The first round tries all of them, whatever the time.
    seconds = math.inf
    while True:
        this_round, has_waited = Round(seconds), False
        try:
            this_round.for_each(list(live.values_list("pk", flat=True)), stop_free)
        except OperationalError as error:
            log.warning("turns_not_stopped cause=%s error=%s", cause, type(error).__name__)
        left, seconds = live.count(), until - time.monotonic()
        if not left or seconds <= 0:
            break
        time.sleep(_LOCKED_POLL)
    this_round.report("stop refused turns")
    if left:
        log.warning("turns_left_to_sweep cause=%s turns=%d: other transactions lock them", cause, left)
    return left


def stop_overdue() -> int:
    """Stop turns whose client's deadline has passed (A123); returns how many.

    A worker checks its own runs' deadlines; this finds turns that no worker is running.
    """
    overdue = Turn.objects.filter(state__in=[TurnState.QUEUED, TurnState.RUNNING], deadline_at__lt=Now())
    return _stop_each(overdue, Stop(cause="deadline", reason="error"))


def stop_suspended() -> int:
    """Stop the remaining live turns of suspended tenants; returns how many."""
    recent = Tenant.objects.filter(suspended_at__gt=Now() - RECENTLY).values_list("pk", flat=True)
    return _stop_refused("suspended", Q(tenant__suspended_at__isnull=False), Q(tenant__in=list(recent)))


def stop_revoked() -> int:
    """Stop the remaining live turns of revoked keys; returns how many."""
    recent = ApiKey.objects.filter(revoked_at__gt=Now() - RECENTLY).values_list("pk", flat=True)
    return _stop_refused("revoked", Q(api_key__revoked_at__isnull=False), Q(api_key__in=list(recent)))


def _stop_refused(cause: StopCause, refused: Q, recent: Q) -> int:
    """Stop turns that were accepted while the refusal was written, which no worker claims, and those that were locked then."""
    reason = Stop(cause=cause, reason="error")
    queued = _stop_each(Turn.objects.filter(refused, state=TurnState.QUEUED), reason)
    return queued + _stop_each(Turn.objects.filter(recent, state__in=LIVE_STATES), reason)


def _stop_each(found: QuerySet[Turn], reason: Stop) -> int:
    """One round, which waits for no lock: the next round finds locked turns again."""
    return maintenance.for_each(maintenance.fair_selection(found), lambda turn: stop(turn, reason, waiting=False) is not None)


def provider_closed(claimed: Claimed) -> None:
    """Record that a stopped run's call to the provider is closed: the one write that checks no fence of its own.

    A stop raises the fence by one. Any other fence means that a later run has started, whose call is the one that counts.
    """
    ended = Turn.objects.filter(pk=claimed.turn_id, fence=claimed.fence + 1).exclude(state__in=LIVE_STATES)
    ended.update(provider_closed_at=Now())
