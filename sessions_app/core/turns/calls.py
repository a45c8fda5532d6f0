"""Clients' answers to open calls: results of their own tools, and permissions for the server's tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry, tracing
from sessions_app.core.base import content, raw_sql, times, traces
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import clients, dispatches, history, idempotency, options, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import StepRef
from sessions_app.core.records.idempotency import IdempotencyKey
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.tenancy import access, agents, definitions, quotas
from sessions_app.core.turns import call_options, tasks
from sessions_app.core.turns.answers import actor_of, check_answers, close_form_row, grantable_tools, store_answers
from sessions_app.core.turns.closing import lock_live_turn, lock_open_calls
from sessions_app.core.turns.opening import accepted_before, append_all, insert_turn, open_turn_and_calls
from sessions_app.core.turns.types import (
    Accepted,
    Answer,
    ClientResult,
    Decision,
    FormEnd,
    Outcome,
    Permission,
    Stopped,
    TurnModel,
)
from sessions_app.models import CallRunner, CallState, Form, Session, ToolCall, Turn, TurnState

UNKNOWN_HERE = "Tool execution failed: the client does not know this tool"


def _deadline(seconds: float | None) -> Any:
    """The time at which a run that starts now is stopped, by the database's clock (A123)."""
    return None if seconds is None else Now() + timedelta(seconds=seconds)


def answer(
    caller: Caller,
    session: Session,
    *,
    answers: Sequence[Answer],
    overrides: Overrides,
    idempotency_key: IdempotencyKey | None = None,
    deadline: float | None = None,
) -> Accepted:
    """Answer calls of a waiting turn, or open calls of a seed, and queue the turn's next run."""
    definitions.prepare(session.agent_name)
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        if (earlier := idempotency.find(caller, idempotency_key)) is not None:
            return accepted_before(session, earlier)
        asking.take_turn()
        asked_at = tracing.now()
        spec = agents.for_turn(caller, session)
        live, calls = open_turn_and_calls(session)
        client_names = {tool["name"] for tool in session_settings.settings_of(session).client_tools}
        check_answers(answers, calls, client_names)
        definition = session_settings.apply_overrides(session, spec, overrides)
        for happening in session_settings.change_events(spec, overrides):
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
        now = timezone.now()
        if live is None:
            public_id, run = new_id("turn"), 1
            began = times.text_of(now)
            model = TurnModel.of(spec, options.shown([session.pk]).get(session.pk, {}))
            turn = insert_turn(tx, None, caller.key, session, public_id, definition, deadline, began=began, model=model)
            payload = {"turn": public_id, "run": run, "started_at": began, "message": None, "model": model.id}
            start = Happening(Kind.TURN_STARTED, payload)
            history.adopt_calls(calls, turn)
        else:
            turn, public_id, run = live.pk, live.public_id, live.run + 1
            Turn.objects.filter(pk=turn).update(
                state=TurnState.QUEUED,
                api_key_id=caller.key,
                run=run,
                queued_at=Now(),
                definition_id=definition,
                # The agent may have changed since: no worker may claim a definition that it cannot read.
                format=max(live.format, definitions.format_of(definition)),
                takeovers=0,
                deadline_at=_deadline(deadline),
            )
            start = Happening(Kind.TURN_RESUMED, {"turn": public_id, "run": run})
            tx.after_commit(partial(tasks.wake, live.queue))
        raw_sql.execute([session_settings.turn_started(session, None) if live is None else session_settings.mark_used(session)])
        tx.last(idempotency.record(caller, idempotency_key, session=session.public_id, turn=public_id, run=run))
        ref = StepRef(session.tenant_id, session.pk, turn, run, step=0)
        stored = store_answers(
            ref,
            public_id,
            calls,
            answers,
            grantable=grantable_tools(spec, session, calls),
            by=actor_of(caller),
            now=now,
            stored=True,
        )
        asking.admit_turn()
        first = append_all(tx, session, [start, *stored])
        if live is not None:
            _trace_answers(tx, live, calls, answers, run, queued_at=asked_at)
    return Accepted(turn, public_id, run, tx.stored[first].seq, standings=asking.rate_statuses)


def _trace_answers(
    tx: journal.Transaction,
    turn: Turn,
    calls: Sequence[ToolCall],
    answers: Sequence[Answer],
    run: int,
    *,
    queued_at: int | None,
) -> None:
    """Record after COMMIT how long these answers were waited for. ``queued_at``: when this began, if it queues the turn."""
    if turn.trace is None or not tracing.is_on():
        return
    traces.link_request(turn.trace)
    rows = {call.call_id: call for call in calls}
    waits = [(*_wait_of(each, rows[each.call_id]), rows[each.call_id].created_at) for each in answers]
    tx.after_commit(partial(traces.answered, turn.trace, waits, tracing.context()))
    if queued_at is not None:
        tx.after_commit(partial(traces.accepted, turn.trace, queued_at, run, turn.queue))


def _wait_of(answer: Answer, call: ToolCall) -> tuple[str, tracing.Attributes]:
    about: tracing.Attributes = {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.call_id}
    if isinstance(answer, ClientResult):
        failed = "tool_failed" if answer.failed else None
        own: tracing.Attributes = {"gen_ai.operation.name": "execute_tool", "agenthost.tool.runner": "client"}
        return f"execute_tool {call.name}", {**about, **own, "error.type": failed}
    return f"wait_for_permission {call.name}", {**about, "agenthost.permission.granted": answer.granted}


class Answering:
    """A locked session with its live turn and open calls, in a transaction that may answer some of them."""

    def __init__(self, caller: Caller, session: Session, tx: journal.Transaction, asking: quotas.QuotaCheck) -> None:
        self.caller, self.session, self.tx, self._asking = caller, session, tx, asking
        self.live = lock_live_turn(session)
        self.calls = lock_open_calls(session) if self.live is not None else []
        self.running: Stopped | None = None
        """The turn whose run has to be notified after the transaction."""

    def find(self, turn: str, call_id: str) -> ToolCall:
        """An open call of this turn; NotPossible if there is none."""
        if self.live is None or self.live.public_id != turn:
            raise NotPossible("this turn is not active")
        found = next((call for call in self.calls if call.call_id == call_id), None)
        if found is None:
            raise NotPossible("this turn has no open call with this id")
        return found

    def answer(self, answers: Sequence[Answer], dispatched: Dispatched | None = None) -> None:
        """Store the answers, and queue a waiting turn or notify a running one."""
        live = self.live
        assert live is not None, "an open call without a live turn"
        spec, now, asked_at = registry.find(self.session.agent_name), timezone.now(), tracing.now()
        waiting = live.state == TurnState.WAITING
        # A result that needs a release leaves its call open, so a run would have nothing to do.
        resumes = waiting and not all(isinstance(each, ClientResult) and each.reviewed for each in answers)
        if resumes:
            self._asking.take_turn()
            self.append([resume(live, self.caller.key)])
            self.tx.after_commit(partial(tasks.wake, live.queue))
        elif not waiting:
            self.running = Stopped(live.pk, live.worker)
        ref = StepRef(self.session.tenant_id, self.session.pk, live.pk, live.run, step=0)
        grantable = frozenset() if spec is None else grantable_tools(spec, self.session, self.calls)
        stored = store_answers(
            ref, live.public_id, self.calls, answers, grantable=grantable, by=actor_of(self.caller), now=now, stored=waiting
        )
        self.append([*stored[:-1], dispatches.with_origin(stored[-1], dispatched)])
        _trace_answers(self.tx, live, self.calls, answers, live.run, queued_at=asked_at if resumes else None)
        if resumes:
            self._asking.admit_turn()

    def close_form(self, form: Form, end: FormEnd) -> None:
        """Close a form that a running server tool has opened; its run is notified."""
        live = self.live
        assert live is not None, "an open call without a live turn"
        self.append([close_form_row(live.public_id, form, end, timezone.now())])
        self.running = Stopped(live.pk, live.worker)

    def append(self, happenings: Sequence[Happening]) -> None:
        for happening in happenings:
            self.tx.append(NewEvent(self.session.tenant_id, self.session.pk, happening))


def resume(live: Turn, key: int | None) -> Happening:
    """Queue a waiting turn, which is locked, for its next run. ``key``: the API key that starts it."""
    live.run += 1
    Turn.objects.filter(pk=live.pk).update(state=TurnState.QUEUED, api_key_id=key, run=live.run, queued_at=Now(), takeovers=0)
    return Happening(Kind.TURN_RESUMED, {"turn": live.public_id, "run": live.run})


def fail_calls_of(tx: journal.Transaction, session: Session, client: str, text: str) -> Stopped | None:
    """Fail a client's open calls in a locked session, and queue or continue the turn.

    Returns the turn whose run has to be notified after the transaction, if it is running.
    """
    live = lock_live_turn(session)
    calls = [] if live is None else lock_open_calls(session)
    pending = [call for call in calls if call.client == client and call.state == CallState.PENDING]
    if live is None or not pending:
        return None
    now, waiting = timezone.now(), live.state == TurnState.WAITING
    message = text.partition(": ")[2]
    outcome = {"success": False, "message": message, "error": {"message": message}}
    results = [ClientResult(0, call.call_id, text, failed=True, outcome=outcome) for call in pending]
    happenings = [resume(live, live.api_key_id)] if waiting else []
    ref = StepRef(session.tenant_id, session.pk, live.pk, live.run, step=0)
    happenings += store_answers(ref, live.public_id, calls, results, grantable=frozenset(), by="server", now=now, stored=waiting)
    append_all(tx, session, happenings)
    _trace_answers(tx, live, calls, results, live.run, queued_at=tracing.now() if waiting else None)
    if waiting:
        tx.after_commit(partial(tasks.wake, live.queue))
    return None if waiting else Stopped(live.pk, live.worker)


@contextmanager
def answering(caller: Caller, session: Session, dispatched: Dispatched | None = None) -> Iterator[Answering]:
    """A transaction that answers calls; after it the run's worker is notified."""
    with quotas.check(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        agents.for_turn(caller, session)
        open_calls = Answering(caller, session, tx, asking)
        yield open_calls
    tell_worker_of_answer(open_calls.running)


def tell_worker_of_answer(running: Stopped | None) -> None:
    """Notify the worker that calls of a turn that it runs were answered. If this is lost, its sweep notices."""
    if running is not None and running.worker:
        broadcast.notify_worker(running.worker, {"turn": running.turn_id, "what": "answered"})


def confirm(caller: Caller, session: Session, turn: str, call: str, decision: Decision, *, dispatched: Dispatched | None) -> None:
    """Grant or deny a call that asks for permission. If two clients decide at once, the first one counts.

    A client that denies a call of its own tool, which is already running, does not know the tool: the call fails (R187).
    """
    with answering(caller, session, dispatched) as open_calls:
        row = open_calls.find(turn, call)
        if not decision.approved and dispatched is not None and _is_own(row, dispatched):
            _fail_unknown(open_calls, row, dispatched)
            return
        if row.state != CallState.PENDING or row.runner != CallRunner.SERVER:
            raise NotPossible("this call does not wait for a permission")
        if decision.option is not None:
            kind = call_options.kind_of(decision.option)
            if kind is None:
                raise NotPossible("no such option")
            if (kind == "approve") is not decision.approved:
                raise NotPossible("the option contradicts the decision")
        _check_storable([decision.input, decision.reason, decision.suggestion, decision.shown_reason])
        permission = Permission(
            0,
            call,
            decision.approved,
            reason=decision.reason,
            option=decision.option or "",
            arguments=decision.input,
            how=decision.how,
            suggestion=decision.suggestion,
            why=decision.why,
            shown_reason=decision.shown_reason,
        )
        open_calls.answer([permission], dispatched)
        if decision.option == call_options.SESSION:
            _trust(open_calls, row)


def _check_storable(value: Any) -> None:
    if faults := content.unstorable(value, ("action",)):
        raise InvalidInput(faults)


def _trust(open_calls: Answering, row: ToolCall) -> None:
    """Let the tool run without asking in this session from now on, in both protocols."""
    session = open_calls.session
    refs: list[dict[str, Any]] = exact_json.loads(session.tool_refs or "[]")
    trusted = [{**ref, "trust": True} if ref["name"] == row.name else ref for ref in refs]
    if trusted != refs:
        Session.objects.filter(pk=session.pk).update(tool_refs=exact_json.dumps(trusted))
        clients.request_attention(session.pk)


def complete(
    caller: Caller,
    session: Session,
    turn: str,
    call: str,
    outcome: Outcome,
    *,
    reviewed: bool = False,
    dispatched: Dispatched,
) -> None:
    """Store the result of the dispatching client's own tool. ``reviewed``: a client has to release it first."""
    with answering(caller, session, dispatched) as open_calls:
        _own(open_calls, turn, call, dispatched)
        _check_storable(outcome.document())
        spec = registry.find(session.agent_name)
        content_for_model = outcome.for_model(() if spec is None else spec.images)
        result = ClientResult(
            0, call, content_for_model, failed=not outcome.success, outcome=outcome.document(), reviewed=reviewed
        )
        open_calls.answer([result], dispatched)


def _is_own(row: ToolCall, dispatched: Dispatched) -> bool:
    """Whether this is a running call of the dispatching client's own tool."""
    return row.client == dispatched.client and row.state == CallState.PENDING


def _own(open_calls: Answering, turn: str, call: str, dispatched: Dispatched) -> ToolCall:
    row = open_calls.find(turn, call)
    if row.client is None:
        raise NotPossible("this call is not of a client's tool")
    if row.client != dispatched.client:
        raise NotPossible("this call belongs to another client")
    if row.state != CallState.PENDING:
        raise NotPossible("this call is not running")
    return row


def _fail_unknown(open_calls: Answering, row: ToolCall, dispatched: Dispatched) -> None:
    open_calls.tx.append(dispatches.refusal(open_calls.caller, dispatched, "this call is already running"))
    message = UNKNOWN_HERE.partition(": ")[2]
    outcome = {"success": False, "message": message, "error": {"message": message}}
    open_calls.answer([ClientResult(0, row.call_id, UNKNOWN_HERE, failed=True, outcome=outcome)])


def show_content(
    caller: Caller, session: Session, turn: str, call: str, shown: list[dict[str, Any]], *, dispatched: Dispatched
) -> None:
    """Store and publish what a client shows of its own call while it runs."""
    with answering(caller, session, dispatched) as open_calls:
        row = _own(open_calls, turn, call, dispatched)
        _check_storable(shown)
        raw_sql.execute([history.call_progress(row, shown)])
        happening = Happening(Kind.CALL_CONTENT_CHANGED, {"turn": turn, "call": call, "content": shown})
        open_calls.append([dispatches.with_origin(happening, dispatched)])


def confirm_result(
    caller: Caller, session: Session, turn: str, call: str, *, approved: bool, dispatched: Dispatched | None
) -> None:
    """Release a result that waits for a permission, or withhold it from the model."""
    with answering(caller, session, dispatched) as open_calls:
        if open_calls.find(turn, call).state != CallState.REVIEW:
            raise NotPossible("no result of this call waits for a permission")
        open_calls.answer([Permission(0, call, approved)], dispatched)
