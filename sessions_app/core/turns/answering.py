"""Answering calls: what a client's tools gave, and whether the server's may run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models.functions import Now
from django.utils import timezone

from agents_app.spec import AgentSpec
from sessions_app.core import access, agents, broadcast, history, idempotency, journal, prepared, quotas, session_settings, tasks
from sessions_app.core.caller import Caller
from sessions_app.core.errors import Fault, InvalidInput
from sessions_app.core.events import Happening, Kind
from sessions_app.core.history import Place
from sessions_app.core.idempotency import Once
from sessions_app.core.identifiers import new_id
from sessions_app.core.journal.types import NewEvent
from sessions_app.core.session_settings import Overrides
from sessions_app.core.turns.closing import lock_live_turn, lock_open_calls
from sessions_app.core.turns.opening import accepted_before, append_all, insert_turn, what_is_open
from sessions_app.core.turns.values import Accepted, Answer, ClientResult, Permission, Stopped
from sessions_app.models import CallRunner, CallState, Origin, Session, ToolCall, Turn, TurnState


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
            turn = insert_turn(caller.key, session, public_id, definition, now, deadline)
            began = Happening(Kind.TURN_STARTED, {"turn": public_id, "run": run, "message": None})
            ToolCall.objects.filter(pk__in=[call.pk for call in calls]).update(turn_id=turn)
        else:
            turn, public_id, run = live.pk, live.public_id, live.run + 1
            Turn.objects.filter(pk=turn).update(
                state=TurnState.QUEUED,
                api_key_id=caller.key,
                run=run,
                queued_at=now,
                definition_id=definition,
                takeovers=0,
                deadline_at=_deadline(deadline),
            )
            began = Happening(Kind.TURN_RESUMED, {"turn": public_id, "run": run})
        prepared.execute([session_settings.begun(session, None, now) if live is None else session_settings.touched(session, now)])
        idempotency.remember(caller, once, session=session.public_id, turn=public_id, run=run)
        place = Place(session.tenant_id, session.pk, turn, run, step=0)
        stored = _store_answers(
            place, public_id, calls, answers, grantable=_grantable(spec, session), by=_by(caller), now=now, stored=True
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
    told: Stopped | None = None
    with quotas.asking(caller) as asking, journal.transaction() as tx:
        session = access.lock_session(caller, session)
        spec = agents.for_turn(caller, session)
        live = lock_live_turn(session)
        calls = lock_open_calls(session) if live is not None else []
        client_names = {tool["name"] for tool in session_settings.settings_of(session).client_tools}
        _check_answers(answers, calls, client_names)
        assert live is not None, "an open call without a live turn was found by no check"
        now = timezone.now()
        happenings: list[Happening] = []
        waiting = live.state == TurnState.WAITING
        if waiting:
            asking.take_turn()
            live.run += 1
            Turn.objects.filter(pk=live.pk).update(
                state=TurnState.QUEUED, api_key_id=caller.key, run=live.run, queued_at=now, takeovers=0
            )
            happenings.append(Happening(Kind.TURN_RESUMED, {"turn": live.public_id, "run": live.run}))
            tx.after_commit(tasks.wake)
        else:
            told = Stopped(live.pk, live.worker)
        place = Place(session.tenant_id, session.pk, live.pk, live.run, step=0)
        happenings += _store_answers(
            place, live.public_id, calls, answers, grantable=_grantable(spec, session), by=_by(caller), now=now, stored=waiting
        )
        if waiting:
            asking.admit_turn()
        append_all(tx, session, happenings)
    if told is not None and told.worker:
        broadcast.tell_worker(told.worker, {"turn": told.turn_id, "what": "answered"})


def _check_answers(answers: Sequence[Answer], calls: Sequence[ToolCall], client_names: set[str]) -> None:
    # A call nobody can serve is answered by the run itself, which may be doing so now.
    pending = {call.call_id: call for call in calls if call.state == CallState.PENDING and call.runner != CallRunner.NOBODY}
    faults: list[Fault] = []
    seen: set[str] = set()
    for each in answers:
        path = ("messages", each.index, "toolCallId")
        if each.call_id in seen:
            faults.append(Fault(path, "this call is answered twice in one request"))
        elif each.call_id not in pending:
            faults.append(Fault(path, "no pending call has this id"))
        elif isinstance(each, Permission) and each.granted:
            call = pending[each.call_id]
            if call.runner == CallRunner.CLIENT or call.name in client_names:
                faults.append(
                    Fault(("messages", each.index, "granted"), "this is a call of a client tool; the server cannot run it")
                )
        seen.add(each.call_id)
    if faults:
        raise InvalidInput(faults)


def _by(caller: Caller) -> str:
    return f"key:{caller.key_prefix}"


def _grantable(spec: AgentSpec, session: Session) -> frozenset[str]:
    """What a permission can run: exposed tools that the session has enabled, and nothing else (A90)."""
    return session_settings.settings_of(session).enabled & {tool.name for tool in spec.exposed_tools}


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
    names = {call.call_id: call.name for call in calls}
    for each in answers:
        if isinstance(each, ClientResult):
            prepared.execute([history.call_final(place, each.call_id, CallState.DONE, each.content, now, by=by, stored=stored)])
            if stored:
                prepared.execute(
                    history.message(place, "tool", each.content, now, origin=Origin.CLIENT, tool_call_id=each.call_id)
                )
            happenings.append(history.finished(turn, each.call_id, each.content, failed=False, by="client", shown=False))
    for each in answers:
        if isinstance(each, ClientResult):
            continue
        if each.granted and names[each.call_id] in grantable:
            prepared.execute([history.call_granted(place, each.call_id, by, now)])
            happenings.append(Happening(Kind.CALL_GRANTED, {"turn": turn, "call": each.call_id, "by": by}))
            continue
        if each.granted:
            text = f"Tool not found: {names[each.call_id]}"
            final = history.call_final(place, each.call_id, CallState.DONE, text, now, failed=True, by=by, stored=stored)
            happenings.append(history.finished(turn, each.call_id, text, failed=True, by="server", shown=True))
        else:
            text = history.denial(each.reason)
            final = history.call_final(place, each.call_id, CallState.DENIED, text, now, reason=each.reason, by=by, stored=stored)
            happenings.append(history.denied(turn, each.call_id, each.reason, text, shown=True))
        prepared.execute([final])
        if stored:
            prepared.execute(history.message(place, "tool", text, now, origin=Origin.SERVER, tool_call_id=each.call_id))
    return happenings
