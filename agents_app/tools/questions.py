"""The builtin tool ``ask_user``: checks a model's questions and makes a form of them. Pure.

The tool's function is never called: the server opens the form, and the user's answers are the call's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents_app.errors import ToolFailed

SOURCE = "builtin:ask_user"

KINDS = ("text", "number", "integer", "boolean", "single-select", "multi-select")
MOST_QUESTIONS = 20
MOST_OPTIONS = 100

_OPTION = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "label": {"type": "string"},
        "description": {"type": "string"},
        "recommended": {"type": "boolean"},
    },
    "required": ["id", "label"],
}
_QUESTION = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Names the answer."},
        "kind": {"type": "string", "enum": list(KINDS)},
        "message": {"type": "string", "description": "The question itself."},
        "title": {"type": "string"},
        "required": {"type": "boolean"},
        "format": {"type": "string", "description": "Of a text: email, uri, date or date-time."},
        "min": {"type": "number", "description": "Least value, length of a text, or number of choices."},
        "max": {"type": "number", "description": "Most, likewise."},
        "defaultValue": {"description": "Initial value; not for selects."},
        "options": {"type": "array", "items": _OPTION, "description": "The choices of a select."},
        "allowFreeformInput": {"type": "boolean", "description": "Whether other answers than the choices are allowed."},
    },
    "required": ["id", "kind", "message"],
}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What the questions are about."},
        "questions": {"type": "array", "items": _QUESTION, "minItems": 1, "maxItems": MOST_QUESTIONS},
    },
    "required": ["questions"],
}


def ask_user(message: str = "", questions: Sequence[Any] = ()) -> str:  # noqa: ARG001 - what a model is told of it
    """Asks the user one or more questions in a form and gives their answers."""
    raise ToolFailed("no user can be asked here")


def fault(arguments: Mapping[str, Any]) -> str | None:
    """The fault of a model's questions, worded for the model; None if they are valid."""
    if not isinstance(arguments.get("message", ""), str):
        return "message must be a string"
    questions = arguments.get("questions")
    if not isinstance(questions, list) or not 1 <= len(questions) <= MOST_QUESTIONS:
        return f"questions must be a list of 1 to {MOST_QUESTIONS} questions"
    seen: set[str] = set()
    for question in questions:
        if not isinstance(question, dict):
            return "each question must be an object"
        wrong = _wrong_with(question)
        if wrong is not None:
            return wrong
        if question["id"] in seen:
            return f"two questions have the id {question['id']}"
        seen.add(question["id"])
    return None


def _wrong_with(question: Mapping[str, Any]) -> str | None:
    for member in ("id", "kind", "message"):
        if not isinstance(question.get(member), str) or not question[member]:
            return f"each question needs a text as its {member}"
    name, kind = question["id"], question["kind"]
    if kind not in KINDS:
        return f"question {name}: kind must be one of {', '.join(KINDS)}"
    for member in ("required", "allowFreeformInput"):
        if not isinstance(question.get(member, False), bool):
            return f"question {name}: {member} must be true or false"
    for member in ("min", "max"):
        if member in question and not _is_number(question[member]):
            return f"question {name}: {member} must be a number"
    for member in ("title", "format"):
        if not isinstance(question.get(member, ""), str):
            return f"question {name}: {member} must be a string"
    if kind.endswith("select"):
        return _wrong_with_options(name, question.get("options"))
    if "defaultValue" in question and not fits(kind, question["defaultValue"]):
        return f"question {name}: defaultValue does not fit its kind"
    return None


def _wrong_with_options(name: str, options: Any) -> str | None:
    if not isinstance(options, list) or not 1 <= len(options) <= MOST_OPTIONS:
        return f"question {name}: options must be a list of 1 to {MOST_OPTIONS} choices"
    seen: set[str] = set()
    for option in options:
        if not isinstance(option, dict) or not all(isinstance(option.get(member), str) for member in ("id", "label")):
            return f"question {name}: each choice needs an id and a label"
        if not isinstance(option.get("description", ""), str) or not isinstance(option.get("recommended", False), bool):
            return f"question {name}: a choice's description is a text, and recommended is true or false"
        if option["id"] in seen:
            return f"question {name}: two choices have the id {option['id']}"
        seen.add(option["id"])
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def fits(kind: str, value: Any) -> bool:
    """Whether a value is of a question's kind."""
    match kind:
        case "text" | "single-select":
            return isinstance(value, str)
        case "number":
            return _is_number(value)
        case "integer":
            return _is_number(value) and value == int(value)
        case "boolean":
            return isinstance(value, bool)
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_OF_ALL = ("id", "kind", "message", "title", "required")
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "text": ("format", "min", "max", "defaultValue"),
    "number": ("min", "max", "defaultValue"),
    "integer": ("min", "max", "defaultValue"),
    "boolean": ("defaultValue",),
    "single-select": ("options", "allowFreeformInput"),
    "multi-select": ("options", "allowFreeformInput", "min", "max"),
}
_OF_OPTION = ("id", "label", "description", "recommended")


def form(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The form of questions that ``fault`` accepts; unknown members are left out."""
    questions = []
    for question in arguments["questions"]:
        shown = {member: question[member] for member in (*_OF_ALL, *_OF_KIND[question["kind"]]) if member in question}
        if "options" in shown:
            shown["options"] = [
                {member: option[member] for member in _OF_OPTION if member in option} for option in shown["options"]
            ]
        questions.append(shown)
    return {"message": arguments["message"], "questions": questions} if arguments.get("message") else {"questions": questions}
