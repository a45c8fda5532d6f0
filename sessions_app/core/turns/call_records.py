"""What answers of clients make of calls: which are refused, and the rows and events of those that are taken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from agents_app import exact_json
from agents_app.mcp import listing
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core.base import prepared
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import dispatches, history, session_settings
from sessions_app.core.records.history import StepRef
from sessions_app.core.turns.values import Answer, ClientResult, FormEnd, Permission
from sessions_app.models import CallRunner, CallState, Form, Origin, Session, ToolCall


def check_answers(answers: Sequence[Answer], calls: Sequence[ToolCall], client_names: set[str]) -> None:
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


def actor_of(caller: Caller) -> str:
    return f"key:{caller.key_prefix}"


def grantable_tools(spec: AgentSpec, session: Session, calls: Sequence[ToolCall]) -> frozenset[str]:
    """What a permission can run: exposed tools that the session has enabled, and nothing else (A90).

    But where only a run can see what tools there are, by the session's own secrets, what it asked for counts; the
    next run looks again before it runs anything.
    """
    found = session_settings.settings_of(session).enabled & {tool.name for tool in spec.exposed_tools}
    if listing.unlisted(spec):
        found |= {call.name for call in calls if call.runner == CallRunner.SERVER and spec.tool(call.name) is None}
    return found


def store_answers(
    ref: StepRef,
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
                result = history.call_in_review(ref, each.call_id, each.content, now, failed=each.failed)
            else:
                result = history.call_final(
                    ref, each.call_id, CallState.DONE, each.content, now, failed=each.failed, by=by, stored=stored
                )
            prepared.execute([result])
            if each.outcome is not None:
                prepared.execute([history.call_notes(ref, each.call_id, option="", suggestion=None, outcome=each.outcome)])
            if stored and not each.reviewed:
                prepared.execute(history.message(ref, "tool", each.content, now, origin=Origin.CLIENT, tool_call_id=each.call_id))
            more: dict[str, Any] = {} if each.outcome is None else {"outcome": each.outcome}
            if each.reviewed:
                more["reviewed"] = True
            happenings.append(
                history.finished_event(turn, each.call_id, each.content, failed=each.failed, by="client", shown=False, **more)
            )
    for each in answers:
        if isinstance(each, Permission):
            happenings += _decided(ref, turn, rows[each.call_id], each, grantable=grantable, by=by, now=now, stored=stored)
    return happenings


def _decided(
    ref: StepRef,
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
        return [_reviewed(ref, turn, call, approved=word.granted, by=by, now=now, stored=stored)]
    option = {"option": word.option} if word.option else {}
    if word.granted and call.name in grantable:
        prepared.execute(
            [history.call_granted(ref, call.call_id, by, now, option=word.option, arguments=word.arguments, why=word.why)]
        )
        edited = {} if word.arguments is None else {"input": word.arguments}
        return [Happening(Kind.CALL_GRANTED, {"turn": turn, "call": call.call_id, "by": by, "why": word.why, **option, **edited})]
    happenings: list[Happening] = []
    if word.granted or call.runner == CallRunner.CLIENT:
        # A call that nobody waits to be asked about cannot be denied, it fails.
        happenings += _close_form(turn, call, FormEnd("decline"), now)
        text = f"Tool not found: {call.name}" if word.granted else history.denial(word.reason)
        final = history.call_final(ref, call.call_id, CallState.DONE, text, now, failed=True, by=by, stored=stored)
        happenings.append(history.finished_event(turn, call.call_id, text, failed=True, by="server", shown=True))
        prepared.execute([final])
    else:
        text = history.denial(word.told)
        final = history.call_final(
            ref, call.call_id, CallState.DENIED, text, now, reason=word.reason, by=by, stored=stored, how=word.how
        )
        prepared.execute([final])
        suggestion = {} if word.suggestion is None else {"suggestion": word.suggestion}
        if word.option or word.advice:
            prepared.execute([history.call_notes(ref, call.call_id, option=word.option, suggestion=word.advice, outcome=None)])
        happenings.append(
            history.denied_event(turn, call.call_id, word.reason, text, shown=True, how=word.how, **suggestion, **option)
        )
    if stored:
        prepared.execute(history.message(ref, "tool", text, now, origin=Origin.SERVER, tool_call_id=call.call_id))
    return happenings


def _reviewed(ref: StepRef, turn: str, call: ToolCall, *, approved: bool, by: str, now: datetime, stored: bool) -> Happening:
    """A result that a client has looked at: the model gets it, or learns that it does not."""
    content: Content = exact_json.loads(call.result or '""') if approved else history.WITHHELD
    how = "" if approved else "result-denied"
    prepared.execute(
        [
            history.call_final(
                ref,
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
        prepared.execute(history.message(ref, "tool", content, now, origin=origin, tool_call_id=call.call_id))
    payload = {"turn": turn, "call": call.call_id, "approved": approved, "content": content, "shown": not from_client}
    return Happening(Kind.CALL_RESULT_CONFIRMED, payload)


def _close_form(turn: str, call: ToolCall, end: FormEnd, now: datetime) -> list[Happening]:
    """Close the form of a call of ``ask_user``; a call of anything else has none."""
    if call.runner != CallRunner.CLIENT or call.turn_id is None:
        return []
    form = Form.objects.filter(turn_id=call.turn_id, call_id=call.call_id, response="").first()
    return [] if form is None else [form_closed(turn, form, end, now)]


def form_closed(turn: str, form: Form, end: FormEnd, now: datetime) -> Happening:
    answers = exact_json.loads(form.answers) if end.answers is None else end.answers
    Form.objects.filter(pk=form.pk).update(response=end.response, answers=exact_json.dumps(answers), closed_at=now)
    payload = {"turn": turn, "form": form.form_id, "response": end.response, "answers": answers}
    return dispatches.told(Happening(Kind.FORM_CLOSED, payload), end.dispatched)
