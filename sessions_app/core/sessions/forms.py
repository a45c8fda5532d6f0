"""Forms: questions of an agent to its user. A tool call opens a form, clients edit draft answers, and one closes it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from django.db.models import Q
from django.db.models.functions import Now

from agents_app import exact_json
from agents_app.runtime.interface import Call, FormAnswer
from agents_app.tools import questions
from sessions_app.core import turns
from sessions_app.core.base import content
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.identifiers import new_id
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log import journal
from sessions_app.core.log.journal.types import NewEvent
from sessions_app.core.records import dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.records.history import StepRef
from sessions_app.core.tenancy import access
from sessions_app.core.turns import ClientResult, FormEnd
from sessions_app.models import LIVE_STATES, CallRunner, Form, Session


def open_for_call(ref: StepRef, turn: str, call: Call, place: int, at: datetime) -> tuple[Happening, Statement]:
    """Open the form of a call of ``ask_user``, whose arguments were checked.

    ``place``: the number of the turn's parts before it.
    """
    form = {"id": new_id("form"), **questions.form(exact_json.loads(call.arguments))}
    return _open(ref, turn, call.call_id, form, place, at)


def open_for_tool(
    ref: StepRef, turn: str, call: Call, form: Mapping[str, Any], place: int, at: datetime
) -> tuple[str, Happening, Statement]:
    """Open a form for a running server tool. The first value is the form's id."""
    document = {"id": new_id("form"), **form}
    return (document["id"], *_open(ref, turn, call.call_id, document, place, at))


def _open(ref: StepRef, turn: str, call_id: str, form: dict[str, Any], place: int, at: datetime) -> tuple[Happening, Statement]:
    statement = Statement(
        "insert into sessions_app_form (tenant_id, session_id, turn_id, call_id, form_id, document, answers, response,"
        " place, created_at) values (%s, %s, %s, %s, %s, %s, '{}', '', %s, %s)",
        (ref.tenant, ref.session, ref.turn, call_id, form["id"], exact_json.dumps(form), place, at),
    )
    return Happening(Kind.FORM_OPENED, {"turn": turn, "call": call_id, "form": form}), statement


def answer_of(turn_id: int, form: str) -> FormAnswer | None:
    """The answer to a form that a running tool opened; None: it is still open."""
    row = Form.objects.filter(turn_id=turn_id, form_id=form).exclude(response="").first()
    if row is None:
        return None
    if row.response != "accept":
        return FormAnswer("decline" if row.response == "decline" else "cancel")
    return FormAnswer("accept", values(exact_json.loads(row.document), exact_json.loads(row.answers)))


def cancel_open(turn_id: int, turn: str, call: str, at: datetime) -> list[tuple[Happening, Statement]]:
    """Cancel the open forms of a tool that has ended."""
    rows = Form.objects.filter(turn_id=turn_id, call_id=call, response="")
    sql = "update sessions_app_form set response = 'cancel', closed_at = %s where id = %s and response = ''"
    closed = []
    for row in rows.order_by("pk"):
        payload = {"turn": turn, "form": row.form_id, "response": "cancel", "answers": exact_json.loads(row.answers)}
        closed.append((Happening(Kind.FORM_CLOSED, payload), Statement(sql, (at, row.pk))))
    return closed


# --- clients -------------------------------------------------------------------------------------

Answers = Mapping[str, Any]


def change_answer(
    caller: Caller, session: Session, form: str, question: str, answer: Answers | None, *, dispatched: Dispatched | None
) -> None:
    """Change one question's draft or submitted answer, visible to all clients of the session. None: remove it."""
    with journal.transaction() as tx:
        session = access.lock_session(caller, session)
        dispatches.record(caller, dispatched)
        row = _open_form(session, form)
        question_asked = _question(row, question)
        answers = exact_json.loads(row.answers)
        if answer is None:
            answers.pop(question, None)
        else:
            check_answer(question_asked, answer)
            answers[question] = dict(answer)
        Form.objects.filter(pk=row.pk).update(answers=exact_json.dumps(answers))
        Session.objects.filter(pk=session.pk).update(modified_at=Now())
        payload = {"turn": row.turn.public_id, "form": form, "question": question, "answer": answer}
        happening = dispatches.with_origin(Happening(Kind.FORM_ANSWER_CHANGED, payload), dispatched)
        tx.append(NewEvent(session.tenant_id, session.pk, happening))


def complete(
    caller: Caller,
    session: Session,
    form: str,
    response: Literal["accept", "decline", "cancel"],
    answers: Mapping[str, Answers] | None = None,
    *,
    dispatched: Dispatched | None,
) -> None:
    """Close the form: its call gets a result, and the turn continues. If two clients close it at once, the first one counts."""
    with turns.answering(caller, session, dispatched) as calls:
        row = _open_form(calls.session, form)
        last_answers = dict(answers or {})
        for question, answer in last_answers.items():
            check_answer(_question(row, question), answer)
        final = {**exact_json.loads(row.answers), **last_answers}
        document = exact_json.loads(row.document)
        if response == "accept":
            _check_complete(document, final)
        call = calls.find(row.turn.public_id, row.call_id)
        if call.runner == CallRunner.SERVER:
            calls.close_form(row, FormEnd(response, final, dispatched))
        else:
            end = FormEnd(response, final, dispatched)
            calls.answer([ClientResult(0, call.call_id, result_text(document, response, final), form=end)])
        Session.objects.filter(pk=calls.session.pk).update(modified_at=Now())


def _open_form(session: Session, form: str) -> Form:
    if content.UNSTORABLE.search(form):
        raise NotPossible("the session has no open form with this id")
    live = Q(turn__state__in=LIVE_STATES)
    row = Form.objects.select_related("turn").filter(live, session=session, form_id=form, response="").first()
    if row is None:
        raise NotPossible("the session has no open form with this id")
    return row


def _question(row: Form, question: str) -> dict[str, Any]:
    for each in exact_json.loads(row.document)["questions"]:
        if each["id"] == question:
            found: dict[str, Any] = each
            return found
    raise NotPossible("the form has no question with this id")


_VALUE_KINDS = {
    "text": "text",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "single-select": "selected",
    "multi-select": "selected-many",
}


def check_answer(question: Mapping[str, Any], answer: Answers) -> None:
    """Raise if an answer does not fit its question. A draft may be out of bounds."""
    if faults := content.unstorable(dict(answer), ("answer",)):
        raise InvalidInput(faults)
    state = answer.get("state")
    if state == "skipped":
        return
    value = answer.get("value")
    if state not in ("draft", "submitted") or not isinstance(value, Mapping):
        raise NotPossible("an answer's state is draft or submitted, with a value, or skipped")
    kind = question["kind"]
    if value.get("kind") != _VALUE_KINDS[kind] or not questions.fits(kind, value.get("value")):
        raise NotPossible(f"the value's type does not fit a question of kind {kind}")
    if kind.endswith("select"):
        _check_choice(question, value)
    elif state == "submitted":
        _check_bounds(question, value["value"])
    if kind == "multi-select" and state == "submitted":
        _check_bounds(question, [*value["value"], *(value.get("freeformValues") or [])])


def _check_choice(question: Mapping[str, Any], value: Mapping[str, Any]) -> None:
    known = {option["id"] for option in question["options"]}
    freeform = value.get("freeformValues") or []
    if freeform and not question.get("allowFreeformInput"):
        raise NotPossible("the question accepts only its options")
    chosen = [value["value"]] if isinstance(value["value"], str) else value["value"]
    # A free text in place of an option is allowed if the question accepts free text.
    if any(each not in known for each in chosen) and not (question.get("allowFreeformInput") and isinstance(value["value"], str)):
        raise NotPossible("the question has no option with this id")


def _check_bounds(question: Mapping[str, Any], value: Any) -> None:
    size = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(value, str | list):
        size = len(value)
    if size is None:
        return
    if "min" in question and size < question["min"]:
        raise NotPossible(f"the answer is below the question's minimum, {question['min']}")
    if "max" in question and size > question["max"]:
        raise NotPossible(f"the answer is above the question's maximum, {question['max']}")


def _check_complete(document: Mapping[str, Any], answers: Mapping[str, Answers]) -> None:
    for question in document["questions"]:
        answer = answers.get(question["id"])
        if question.get("required") and (answer is None or answer.get("state") != "submitted"):
            raise NotPossible(f"the question {question['id']} needs an answer")


def values(document: Mapping[str, Any], answers: Mapping[str, Answers]) -> dict[str, Any]:
    """The submitted answers by question id, each in the type of its question's kind."""
    found: dict[str, Any] = {}
    for question in document["questions"]:
        answer = answers.get(question["id"])
        if answer is not None and answer.get("state") == "submitted":
            value = answer["value"]["value"]
            found[question["id"]] = int(value) if question["kind"] == "integer" else value
    return found


def result_text(document: Mapping[str, Any], response: str, answers: Mapping[str, Answers]) -> str:
    """The form's result for the model: JSON, answers by question id. Drafts are left out; a skipped question is null."""
    if response == "decline":
        return "The user declined to answer."
    if response == "cancel":
        return "The user closed the questions without answering."
    final: dict[str, Any] = {}
    for question in document["questions"]:
        answer = answers.get(question["id"])
        if answer is None or answer.get("state") == "draft":
            continue
        value = answer.get("value") or {}
        freeform = value.get("freeformValues") or answer.get("freeformValues") or []
        if question["kind"] == "multi-select" and answer["state"] == "submitted":
            final[question["id"]] = [*value["value"], *freeform]
        elif freeform:
            final[question["id"]] = freeform[0] if len(freeform) == 1 else list(freeform)
        else:
            final[question["id"]] = value.get("value")
    return exact_json.dumps(final)
