"""Answering calls: what a client's tools gave, and whether the server's may run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app import exact_json, registry
from agents_app.mcp import listing
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core.base import prepared
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.log import broadcast, journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches, history, idempotency, session_settings
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import Place
from sessions_app.core.records.idempotency import Once
from sessions_app.core.records.session_settings import Overrides
from sessions_app.core.tenancy import access, agents, definitions, quotas
from sessions_app.core.turns import tasks
from sessions_app.core.turns.closing import lock_live_turn, lock_open_calls
from sessions_app.core.turns.opening import accepted_before, append_all, insert_turn, what_is_open
from sessions_app.core.turns.values import Accepted, Answer, ClientResult, FormEnd, Permission, Stopped
from sessions_app.models import CallRunner, CallState, Form, Origin, Session, ToolCall, Turn, TurnState


def _deadline(seconds: float | None) -> Any:
    """When a run that begins now is stopped, by the database's clock (A123)."""
    return None if seconds is None else Now() + timedelta(seconds=seconds)


def answer(
    caller: Caller,
    session: Session,
    *,
    answers: Sequence[Answer],
    overrides: Overrides,
    once: Once | None = None,
    deadline: float | None = None,
) -> Accepted:
    """Answer calls of a session that waits (or whose seed left calls open) and go on with the turn."""
    definitions.prepare(session.agent_name)
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        if (earlier := idempotency.recall(caller, once)) is not None:
            return accepted_before(session, earlier)
        asking.take_turn()
        spec = agents.for_turn(caller, session)
        live, calls = what_is_open(session)
        client_names = {tool["name"] for tool in session_settings.settings_of(session).client_tools}
        _check_answers(answers, calls, client_names)
        definition = session_settings.apply_overrides(session, spec, overrides)
        for happening in session_settings.told(spec, overrides):
            tx.append(NewEvent(session.tenant_id, session.pk, happening))
        now = timezone.now()
        if live is None:
            public_id, run = new_id("turn"), 1
            turn = insert_turn(caller.key, session, public_id, definition, deadline)
            began = Happening(Kind.TURN_STARTED, {"turn": public_id, "run": run, "message": None})
            ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(turn_id=turn)
        else:
            turn, public_id, run = live.pk, live.public_id, live.run + 1
            Turn.objects.filter(pk=turn).update(
                state=TurnState.QUEUED,
                api_key_id=caller.key,
                run=run,
                queued_at=Now(),
                definition_id=definition,
                takeovers=0,
                deadline_at=_deadline(deadline),
            )
            began = Happening(Kind.TURN_RESUMED, {"turn": public_id, "run": run})
        prepared.execute([session_settings.begun(session, None) if live is None else session_settings.touched(session)])
        idempotency.remember(caller, once, session=session.public_id, turn=public_id, run=run)
        place = Place(session.tenant_id, session.pk, turn, run, step=0)
        stored = _store_answers(
            place, public_id, calls, answers, grantable=_grantable(spec, session, calls), by=_by(caller), now=now, stored=True
        )
        asking.admit_turn()
        first = append_all(tx, session, [began, *stored])
        tx.after_commit(tasks.wake)
    return Accepted(turn, public_id, run, tx.stored[first].seq, standings=asking.standings)


def decide(caller: Caller, session: Session, *, answers: Sequence[Answer]) -> None:
    """Answer open calls in any state of the live turn: a fact in the call's row.

    If the turn waits, the same transaction queues it. If it runs, the run is told and finds the answer
    at its next look; its message is written by the run.
    """
    with answering(caller, session) as call:
        client_names = {tool["name"] for tool in session_settings.settings_of(call.session).client_tools}
        _check_answers(answers, call.calls, client_names)
        call.answer(answers)


class Answering:
    """A locked session with its live turn and open calls, in a transaction that may answer some of them."""

    def __init__(self, caller: Caller, session: Session, tx: journal.Transaction, asking: quotas.Asking) -> None:
        self.caller, self.session, self.tx, self._asking = caller, session, tx, asking
        self.live = lock_live_turn(session)
        self.calls = lock_open_calls(session) if self.live is not None else []
        self.told: Stopped | None = None

    def find(self, turn: str, call_id: str) -> ToolCall:
        """An open call of this turn; NotPossible if there is none."""
        if self.live is None or self.live.public_id != turn:
            raise NotPossible("this turn is not active")
        found = next((call for call in self.calls if call.call_id == call_id), None)
        if found is None:
            raise NotPossible("this call is not open")
        return found

    def answer(self, answers: Sequence[Answer], dispatched: Dispatched | None = None) -> None:
        """Store them and make the turn go on, or let its run know."""
        live = self.live
        assert live is not None, "an open call without a live turn was found by no check"
        spec, now = registry.find(self.session.agent_name), timezone.now()
        waiting = live.state == TurnState.WAITING
        # A result that waits for its release leaves its call open: there is nothing that a run could do with it.
        goes_on = waiting and not all(isinstance(each, ClientResult) and each.reviewed for each in answers)
        if goes_on:
            self._asking.take_turn()
            self.append([go_on(live, self.caller.key)])
            self.tx.after_commit(tasks.wake)
        elif not waiting:
            self.told = Stopped(live.pk, live.worker)
        place = Place(self.session.tenant_id, self.session.pk, live.pk, live.run, step=0)
        grantable = frozenset() if spec is None else _grantable(spec, self.session, self.calls)
        stored = _store_answers(
            place, live.public_id, self.calls, answers, grantable=grantable, by=_by(self.caller), now=now, stored=waiting
        )
        self.append([*stored[:-1], dispatches.told(stored[-1], dispatched)])
        if goes_on:
            self._asking.admit_turn()

    def close_form(self, form: Form, end: FormEnd) -> None:
        """Close what a running tool of the server's asked; its run is told."""
        live = self.live
        assert live is not None, "an open call without a live turn was found by no check"
        self.append([_closed(live.public_id, form, end, timezone.now())])
        self.told = Stopped(live.pk, live.worker)

    def append(self, happenings: Sequence[Happening]) -> None:
        for happening in happenings:
            self.tx.append(NewEvent(self.session.tenant_id, self.session.pk, happening))


def go_on(live: Turn, key: int | None) -> Happening:
    """Put a waiting turn, which is locked, back into the queue."""
    live.run += 1
    Turn.objects.filter(pk=live.pk).update(state=TurnState.QUEUED, api_key_id=key, run=live.run, queued_at=Now(), takeovers=0)
    return Happening(Kind.TURN_RESUMED, {"turn": live.public_id, "run": live.run})


def fail_calls_of(tx: journal.Transaction, session: Session, client: str, text: str) -> Stopped | None:
    """Fail what a client of a locked session has left open, and let the turn go on; tell the worker after it."""
    live = lock_live_turn(session)
    calls = [] if live is None else lock_open_calls(session)
    theirs = [call for call in calls if call.client == client and call.state == CallState.PENDING]
    if live is None or not theirs:
        return None
    now, waiting = timezone.now(), live.state == TurnState.WAITING
    message = text.partition(": ")[2]
    outcome = {"success": False, "message": message, "error": {"message": message}}
    results = [ClientResult(0, call.call_id, text, failed=True, outcome=outcome) for call in theirs]
    happenings = [go_on(live, live.api_key_id)] if waiting else []
    place = Place(session.tenant_id, session.pk, live.pk, live.run, step=0)
    happenings += _store_answers(
        place, live.public_id, calls, results, grantable=frozenset(), by="server", now=now, stored=waiting
    )
    append_all(tx, session, happenings)
    if waiting:
        tx.after_commit(tasks.wake)
    return None if waiting else Stopped(live.pk, live.worker)


@contextmanager
def answering(caller: Caller, session: Session, dispatched: Dispatched | None = None) -> Iterator[Answering]:
    """The transaction around an answer; the run's worker is told after it."""
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.remember(caller, dispatched)
        agents.for_turn(caller, session)
        call = Answering(caller, session, tx, asking)
        yield call
    if call.told is not None and call.told.worker:
        broadcast.tell_worker(call.told.worker, {"turn": call.told.turn_id, "what": "answered"})


def _check_answers(answers: Sequence[Answer], calls: Sequence[ToolCall], client_names: set[str]) -> None:
    # A call nobody can serve is answered by the run itself, which may be doing so now.
    pending = {
        call.call_id: call
        for call in calls
        if call.state in (CallState.PENDING, CallState.REVIEW) and call.runner != CallRunner.NOBODY
    }
    faults: list[Fault] = []
    seen: set[str] = set()
    for each in answers:
        path = ("messages", each.index, "toolCallId")
        if each.call_id in seen:
            faults.append(Fault(path, "this call is answered twice in one request"))
        elif each.call_id not in pending:
            faults.append(Fault(path, "no pending call has this id"))
        elif isinstance(each, ClientResult) and pending[each.call_id].state == CallState.REVIEW:
            faults.append(Fault(path, "this call has run; its result waits for a permission"))
        elif isinstance(each, Permission) and each.granted:
            call = pending[each.call_id]
            of_client = call.runner == CallRunner.CLIENT or call.name in client_names
            if of_client and call.state != CallState.REVIEW:
                faults.append(
                    Fault(("messages", each.index, "granted"), "this is a call of a client tool; the server cannot run it")
                )
        seen.add(each.call_id)
    if faults:
        raise InvalidInput(faults)


def _by(caller: Caller) -> str:
    return f"key:{caller.key_prefix}"


def _grantable(spec: AgentSpec, session: Session, calls: Sequence[ToolCall]) -> frozenset[str]:
    """What a permission can run: exposed tools that the session has enabled, and nothing else (A90).

    But where only a run can see what tools there are, by the session's own secrets, what it asked for counts; the
    next run looks again before it runs anything.
    """
    found = session_settings.settings_of(session).enabled & {tool.name for tool in spec.exposed_tools}
    if listing.unlisted(spec):
        found |= {call.name for call in calls if call.runner == CallRunner.SERVER and spec.tool(call.name) is None}
    return found


def _store_answers(
    place: Place,
    turn: str,
    calls: Sequence[ToolCall],
    answers: Sequence[Answer],
    *,
    grantable: frozenset[str],
    by: str,
    now: datetime,
    stored: bool,
) -> list[Happening]:
    """The clients' results first, then the decisions (A63). ``stored``: their messages are written now."""
    happenings: list[Happening] = []
    rows = {call.call_id: call for call in calls}
    for each in answers:
        if isinstance(each, ClientResult):
            happenings += _close_form(turn, rows[each.call_id], each.form or FormEnd("accept"), now)
            if each.reviewed:
                result = history.call_reviewed(place, each.call_id, each.content, now, failed=each.failed)
            else:
                result = history.call_final(
                    place, each.call_id, CallState.DONE, each.content, now, failed=each.failed, by=by, stored=stored
                )
            prepared.execute([result])
            if each.outcome is not None:
                prepared.execute([history.call_told(place, each.call_id, option="", suggestion=None, outcome=each.outcome)])
            if stored and not each.reviewed:
                prepared.execute(
                    history.message(place, "tool", each.content, now, origin=Origin.CLIENT, tool_call_id=each.call_id)
                )
            more: dict[str, Any] = {} if each.outcome is None else {"outcome": each.outcome}
            if each.reviewed:
                more["reviewed"] = True
            happenings.append(
                history.finished(turn, each.call_id, each.content, failed=each.failed, by="client", shown=False, **more)
            )
    for each in answers:
        if isinstance(each, Permission):
            happenings += _decided(place, turn, rows[each.call_id], each, grantable=grantable, by=by, now=now, stored=stored)
    return happenings


def _decided(
    place: Place,
    turn: str,
    call: ToolCall,
    word: Permission,
    *,
    grantable: frozenset[str],
    by: str,
    now: datetime,
    stored: bool,
) -> list[Happening]:
    """What a client's yes or no makes of a call."""
    if call.state == CallState.REVIEW:
        return [_reviewed(place, turn, call, approved=word.granted, by=by, now=now, stored=stored)]
    option = {"option": word.option} if word.option else {}
    if word.granted and call.name in grantable:
        prepared.execute(
            [history.call_granted(place, call.call_id, by, now, option=word.option, arguments=word.arguments, why=word.why)]
        )
        edited = {} if word.arguments is None else {"input": word.arguments}
        return [Happening(Kind.CALL_GRANTED, {"turn": turn, "call": call.call_id, "by": by, "why": word.why, **option, **edited})]
    happenings: list[Happening] = []
    if word.granted or call.runner == CallRunner.CLIENT:
        # A call that nobody waits to be asked about cannot be denied, it fails.
        happenings += _close_form(turn, call, FormEnd("decline"), now)
        text = f"Tool not found: {call.name}" if word.granted else history.denial(word.reason)
        final = history.call_final(place, call.call_id, CallState.DONE, text, now, failed=True, by=by, stored=stored)
        happenings.append(history.finished(turn, call.call_id, text, failed=True, by="server", shown=True))
        prepared.execute([final])
    else:
        text = history.denial(word.told)
        final = history.call_final(
            place, call.call_id, CallState.DENIED, text, now, reason=word.reason, by=by, stored=stored, how=word.how
        )
        prepared.execute([final])
        suggestion = {} if word.suggestion is None else {"suggestion": word.suggestion}
        if word.option or word.advice:
            prepared.execute([history.call_told(place, call.call_id, option=word.option, suggestion=word.advice, outcome=None)])
        happenings.append(history.denied(turn, call.call_id, word.reason, text, shown=True, how=word.how, **suggestion, **option))
    if stored:
        prepared.execute(history.message(place, "tool", text, now, origin=Origin.SERVER, tool_call_id=call.call_id))
    return happenings


def _reviewed(place: Place, turn: str, call: ToolCall, *, approved: bool, by: str, now: datetime, stored: bool) -> Happening:
    """A result that a client has looked at: the model gets it, or learns that it does not."""
    content: Content = exact_json.loads(call.result or '""') if approved else history.WITHHELD
    how = "" if approved else "result-denied"
    prepared.execute(
        [
            history.call_final(
                place,
                call.call_id,
                CallState.DONE if approved else CallState.DENIED,
                content,
                now,
                failed=call.failed and approved,
                by=by,
                stored=stored,
                how=how,
            )
        ]
    )
    # A client's own result is the client's message, and no news to it.
    from_client = approved and call.runner == CallRunner.CLIENT
    if stored:
        origin = Origin.CLIENT if from_client else Origin.SERVER
        prepared.execute(history.message(place, "tool", content, now, origin=origin, tool_call_id=call.call_id))
    payload = {"turn": turn, "call": call.call_id, "approved": approved, "content": content, "shown": not from_client}
    return Happening(Kind.CALL_RESULT_CONFIRMED, payload)


def _close_form(turn: str, call: ToolCall, end: FormEnd, now: datetime) -> list[Happening]:
    """Close the form of a call of ``ask_user``; a call of anything else has none."""
    if call.runner != CallRunner.CLIENT or call.turn_id is None:
        return []
    form = Form.objects.filter(turn_id=call.turn_id, call_id=call.call_id, response="").first()
    return [] if form is None else [_closed(turn, form, end, now)]


def _closed(turn: str, form: Form, end: FormEnd, now: datetime) -> Happening:
    answers = exact_json.loads(form.answers) if end.answers is None else end.answers
    Form.objects.filter(pk=form.pk).update(response=end.response, answers=exact_json.dumps(answers), closed_at=now)
    payload = {"turn": turn, "form": form.form_id, "response": end.response, "answers": answers}
    return dispatches.told(Happening(Kind.FORM_CLOSED, payload), end.dispatched)
