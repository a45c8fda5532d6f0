"""Answers to forms: which fit their questions, and what the model gets of them."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.core.base.errors import InvalidInput, NotPossible
from sessions_app.core.sessions import forms

TEXT = {"id": "q", "kind": "text", "min": 2, "max": 5}
NUMBER = {"id": "q", "kind": "number", "min": 1, "max": 10}
INTEGER = {"id": "q", "kind": "integer"}
YES_NO = {"id": "q", "kind": "boolean"}
ONE = {"id": "q", "kind": "single-select", "options": [{"id": "s"}, {"id": "l"}]}
ONE_OR_TEXT = {**ONE, "allowFreeformInput": True}
MANY = {
    "id": "q",
    "kind": "multi-select",
    "options": [{"id": "a"}, {"id": "b"}, {"id": "c"}],
    "max": 2,
    "allowFreeformInput": True,
}


def answer(kind: str, value: Any, state: str = "submitted", **more: Any) -> dict[str, Any]:
    return {"state": state, "value": {"kind": kind, "value": value, **more}}


@pytest.mark.parametrize(
    ("question", "given"),
    [
        (TEXT, answer("text", "Ada")),
        (TEXT, answer("text", "a draft may be too long", "draft")),
        (TEXT, {"state": "skipped"}),
        (NUMBER, answer("number", 1.5)),
        (INTEGER, answer("number", 3)),
        (YES_NO, answer("boolean", value=False)),
        (ONE, answer("selected", "l")),
        (ONE_OR_TEXT, answer("selected", "a size of my own")),
        (MANY, answer("selected-many", ["a", "b"])),
        (MANY, answer("selected-many", ["a"], freeformValues=["another"])),
        (MANY, answer("selected-many", ["a", "b", "c"], "draft")),
    ],
)
def test_an_answer_that_fits_is_accepted(question: dict[str, Any], given: dict[str, Any]) -> None:
    forms.check_answer(question, given)


@pytest.mark.parametrize(
    ("question", "given", "reason"),
    [
        (TEXT, answer("text", "A"), "below the question's minimum, 2"),
        (TEXT, answer("text", "Augusta"), "above the question's maximum, 5"),
        (TEXT, answer("number", 3), "does not fit a question of kind text"),
        (TEXT, {"state": "submitted"}, "with a value, or skipped"),
        (TEXT, {"state": "sent", "value": {"kind": "text", "value": "Ada"}}, "draft or submitted"),
        (NUMBER, answer("number", 11), "above the question's maximum, 10"),
        (NUMBER, answer("number", value=True), "does not fit a question of kind number"),
        (INTEGER, answer("number", 1.5), "does not fit a question of kind integer"),
        (YES_NO, answer("boolean", "yes"), "does not fit a question of kind boolean"),
        (ONE, answer("selected", "xl"), "no option with this id"),
        (ONE, answer("selected", "l", freeformValues=["x"]), "accepts only its options"),
        (MANY, answer("selected-many", ["d"]), "no option with this id"),
        (MANY, answer("selected-many", ["a", "b"], freeformValues=["another"]), "above the question's maximum, 2"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_with_the_reason(
    question: dict[str, Any], given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotPossible, match=reason):
        forms.check_answer(question, given)


def test_text_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidInput):
        forms.check_answer(TEXT, answer("text", "a\0b", "draft"))


DOCUMENT = {"id": "form", "questions": [{**TEXT, "id": "name"}, {**INTEGER, "id": "age"}, {**MANY, "id": "harbours"}]}


def test_a_tool_gets_the_submitted_answers_in_the_types_of_their_questions() -> None:
    answers = {"name": answer("text", "Ada"), "age": answer("number", 3.0), "harbours": answer("selected-many", ["a"], "draft")}
    found = forms.values(DOCUMENT, answers)
    assert found == {"name": "Ada", "age": 3}
    assert isinstance(found["age"], int)


def test_the_model_gets_submitted_and_skipped_answers_without_drafts() -> None:
    answers = {
        "name": answer("text", "a draft", "draft"),
        "age": {"state": "skipped"},
        "harbours": answer("selected-many", ["a"], freeformValues=["Ostend"]),
    }
    assert exact_json.loads(forms.result_text(DOCUMENT, "accept", answers)) == {"age": None, "harbours": ["a", "Ostend"]}


def test_a_skipped_question_keeps_the_users_own_text() -> None:
    answers = {"name": {"state": "skipped", "freeformValues": ["ask my mother"]}}
    assert exact_json.loads(forms.result_text(DOCUMENT, "accept", answers)) == {"name": "ask my mother"}


@pytest.mark.parametrize(
    ("response", "text"),
    [("decline", "The user declined to answer."), ("cancel", "The user closed the questions without answering.")],
)
def test_a_form_that_was_not_accepted_gives_the_model_no_answers(response: str, text: str) -> None:
    assert forms.result_text(DOCUMENT, response, {"name": answer("text", "Ada")}) == text
