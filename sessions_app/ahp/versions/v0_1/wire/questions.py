"""Requests for a person's input, in AHP 0.1: questions, options, answers."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.core.base.shapes import Number


class SessionInputOption(TypedDict):
    id: str
    label: str
    description: NotRequired[str]
    recommended: NotRequired[bool]


class SessionInputQuestionBase(TypedDict):
    id: str
    title: NotRequired[str]
    message: str
    required: NotRequired[bool]


class SessionInputTextQuestion(SessionInputQuestionBase):
    kind: Literal["text"]
    format: NotRequired[str]
    min: NotRequired[int]
    max: NotRequired[int]
    defaultValue: NotRequired[str]


class SessionInputNumberQuestion(SessionInputQuestionBase):
    kind: Literal["number", "integer"]
    min: NotRequired[Number]
    max: NotRequired[Number]
    defaultValue: NotRequired[Number]


class SessionInputBooleanQuestion(SessionInputQuestionBase):
    kind: Literal["boolean"]
    defaultValue: NotRequired[bool]


class SessionInputSingleSelectQuestion(SessionInputQuestionBase):
    kind: Literal["single-select"]
    options: list[SessionInputOption]
    allowFreeformInput: NotRequired[bool]


class SessionInputMultiSelectQuestion(SessionInputQuestionBase):
    kind: Literal["multi-select"]
    options: list[SessionInputOption]
    allowFreeformInput: NotRequired[bool]
    min: NotRequired[int]
    max: NotRequired[int]


SessionInputQuestion = (
    SessionInputTextQuestion
    | SessionInputNumberQuestion
    | SessionInputBooleanQuestion
    | SessionInputSingleSelectQuestion
    | SessionInputMultiSelectQuestion
)


class SessionInputTextAnswerValue(TypedDict):
    kind: Literal["text"]
    value: str


class SessionInputNumberAnswerValue(TypedDict):
    kind: Literal["number"]
    value: Number


class SessionInputBooleanAnswerValue(TypedDict):
    kind: Literal["boolean"]
    value: bool


class SessionInputSelectedAnswerValue(TypedDict):
    kind: Literal["selected"]
    value: str
    freeformValues: NotRequired[list[str]]


class SessionInputSelectedManyAnswerValue(TypedDict):
    kind: Literal["selected-many"]
    value: list[str]
    freeformValues: NotRequired[list[str]]


SessionInputAnswerValue = (
    SessionInputTextAnswerValue
    | SessionInputNumberAnswerValue
    | SessionInputBooleanAnswerValue
    | SessionInputSelectedAnswerValue
    | SessionInputSelectedManyAnswerValue
)


class SessionInputAnswered(TypedDict):
    state: Literal["draft", "submitted"]
    value: SessionInputAnswerValue


class SessionInputSkipped(TypedDict):
    state: Literal["skipped"]
    freeformValues: NotRequired[list[str]]


SessionInputAnswer = SessionInputAnswered | SessionInputSkipped


class SessionInputRequest(TypedDict):
    id: str
    message: NotRequired[str]
    url: NotRequired[URI]
    questions: NotRequired[list[SessionInputQuestion]]
    answers: NotRequired[dict[str, SessionInputAnswer]]
