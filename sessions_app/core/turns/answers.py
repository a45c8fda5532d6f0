"""Checks clients' answers to calls, and makes the rows and events of valid ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from agents_app import exact_json
from agents_app.mcp import listing
from agents_app.runtime.messages import Content
from agents_app.spec import AgentSpec
from sessions_app.core.base import raw_sql
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.records import dispatches, history, session_settings
from sessions_app.core.records.history import StepRef
from sessions_app.core.turns.types import Answer, ClientResult, FormEnd, Permission
from sessions_app.models import CallRunner, CallState, Form, Origin, Session, ToolCall


def check_answers(answers: Sequence[Answer], calls: Sequence[ToolCall], client_names: set[str]) -> None:
    """InvalidInput for answers that fit no open call. ``client_names``: the application's tools."""
    # A call with runner "nobody" is answered by the run itself, possibly at this moment.
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
            faults.append(Fault(path, "answers a call that this request has already answered"))
        elif each.call_id not in pending:
            faults.append(Fault(path, "the session has no pending call with this id"))
        elif isinstance(each, ClientResult) and pending[each.call_id].state == CallState.REVIEW:
            faults.append(Fault(path, "this call has run: its result needs a permission, not a second result"))
        elif isinstance(each, Permission) and each.granted:
            call = pending[each.call_id]
            of_client = call.runner == CallRunner.CLIENT or call.name in client_names
            if of_client and call.state != CallState.REVIEW:
                faults.append(
                    Fault(("messages", each.index, "granted"), "the server cannot run a client tool: send its result instead")
                )
        seen.add(each.call_id)
    if faults:
        raise InvalidInput(faults)


def actor_of(caller: Caller) -> str:
    return f"key:{caller.key_prefix}"


def grantable_tools(spec: AgentSpec, session: Session, calls: Sequence[ToolCall]) -> frozenset[str]:
    """The tools that a permission can run: exposed tools that the session has enabled (A90).

    Tools that can be listed only with the session's own secrets are not known here: each one that was called is
    grantable, and the next run checks again before it runs it.
    """
    found = session_settings.settings_of(session).enabled & {tool.name for tool in spec.exposed_tools}
    if listing.unlisted(spec):
        found |= {call.name for call in calls if call.runner == CallRunner.SERVER and spec.tool(call.name) is None}
    # A tool that clients do not see asks only if a rule of access wants that. Calls of a seed have no step.
    hidden = {tool.name for tool in spec.tools if not tool.expose} if spec.access else set()
    found |= {call.name for call in calls if call.runner == CallRunner.SERVER and call.step and call.name in hidden}
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
    """Store the clients' results, then the permissions (A63). ``stored``: write their messages now, not in the next run."""
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
            raw_sql.execute([result])
            if each.outcome is not None:
                raw_sql.execute([history.call_notes(ref, each.call_id, option="", suggestion=None, outcome=each.outcome)])
            if stored and not each.reviewed:
                raw_sql.execute(history.message(ref, "tool", each.content, now, origin=Origin.CLIENT, tool_call_id=each.call_id))
            more: dict[str, Any] = {} if each.outcome is None else {"outcome": each.outcome}
            if each.reviewed:
                more["reviewed"] = True
            if rows[each.call_id].client:
                more["client"] = rows[each.call_id].client
            happenings.append(
                history.finished_event(turn, each.call_id, each.content, failed=each.failed, by="client", shown=False, **more)
            )
    for each in answers:
        if isinstance(each, Permission):
            happenings += _store_permission(
                ref, turn, rows[each.call_id], each, grantable=grantable, by=by, now=now, stored=stored
            )
    return happenings


def _store_permission(
    ref: StepRef,
    turn: str,
    call: ToolCall,
    permission: Permission,
    *,
    grantable: frozenset[str],
    by: str,
    now: datetime,
    stored: bool,
) -> list[Happening]:
    """Store a permission or a denial."""
    if call.state == CallState.REVIEW:
        return [_store_review(ref, turn, call, approved=permission.granted, by=by, now=now, stored=stored)]
    option = {"option": permission.option} if permission.option else {}
    if permission.granted and call.name in grantable:
        raw_sql.execute(
            [
                history.call_granted(
                    ref, call.call_id, by, now, option=permission.option, arguments=permission.arguments, why=permission.why
                )
            ]
        )
        edited = {} if permission.arguments is None else {"input": permission.arguments}
        return [
            Happening(
                Kind.CALL_GRANTED, {"turn": turn, "call": call.call_id, "by": by, "why": permission.why, **option, **edited}
            )
        ]
    happenings: list[Happening] = []
    if permission.granted or call.runner == CallRunner.CLIENT:
        # A client's call cannot be denied, and a tool that is gone cannot run: the call fails.
        happenings += _close_form(turn, call, FormEnd("decline"), now)
        text = f"Tool not found: {call.name}" if permission.granted else history.denial(permission.reason)
        final = history.call_final(ref, call.call_id, CallState.DONE, text, now, failed=True, by=by, stored=stored)
        owner = {} if call.client is None else {"client": call.client}
        happenings.append(history.finished_event(turn, call.call_id, text, failed=True, by="server", shown=True, **owner))
        raw_sql.execute([final])
    else:
        text = history.denial(permission.reason_for_model)
        final = history.call_final(
            ref, call.call_id, CallState.DENIED, text, now, reason=permission.reason, by=by, stored=stored, how=permission.how
        )
        raw_sql.execute([final])
        suggestion = {} if permission.suggestion is None else {"suggestion": permission.suggestion}
        if permission.option or permission.details:
            raw_sql.execute(
                [history.call_notes(ref, call.call_id, option=permission.option, suggestion=permission.details, outcome=None)]
            )
        happenings.append(
            history.denied_event(
                turn, call.call_id, permission.reason, text, shown=True, how=permission.how, **suggestion, **option
            )
        )
    if stored:
        raw_sql.execute(history.message(ref, "tool", text, now, origin=Origin.SERVER, tool_call_id=call.call_id))
    return happenings


def _store_review(ref: StepRef, turn: str, call: ToolCall, *, approved: bool, by: str, now: datetime, stored: bool) -> Happening:
    """Release a reviewed result to the model, or tell the model that it was withheld."""
    content: Content = exact_json.loads(call.result or '""') if approved else history.WITHHELD
    how = "" if approved else "result-denied"
    raw_sql.execute(
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
    # A client's own result is the client's message and is not shown to it again.
    from_client = approved and call.runner == CallRunner.CLIENT
    if stored:
        origin = Origin.CLIENT if from_client else Origin.SERVER
        raw_sql.execute(history.message(ref, "tool", content, now, origin=origin, tool_call_id=call.call_id))
    payload = {"turn": turn, "call": call.call_id, "approved": approved, "content": content, "shown": not from_client}
    return Happening(Kind.CALL_RESULT_CONFIRMED, payload)


def _close_form(turn: str, call: ToolCall, end: FormEnd, now: datetime) -> list[Happening]:
    """Close the form of a call of ``ask_user``; other calls have none."""
    if call.runner != CallRunner.CLIENT or call.turn_id is None:
        return []
    form = Form.objects.filter(turn_id=call.turn_id, call_id=call.call_id, response="").first()
    return [] if form is None else [close_form_row(turn, form, end, now)]


def close_form_row(turn: str, form: Form, end: FormEnd, now: datetime) -> Happening:
    """Store a form's end; returns its event."""
    answers = exact_json.loads(form.answers) if end.answers is None else end.answers
    Form.objects.filter(pk=form.pk).update(response=end.response, answers=exact_json.dumps(answers), closed_at=now)
    payload = {"turn": turn, "form": form.form_id, "response": end.response, "answers": answers}
    return dispatches.with_origin(Happening(Kind.FORM_CLOSED, payload), end.dispatched)
