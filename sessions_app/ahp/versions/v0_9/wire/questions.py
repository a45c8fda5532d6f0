"""Requests for a person's input, in AHP 0.9: questions, options, answers."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.core.base.shapes import Number


class ChatInputBooleanAnswerValue(TypedDict):
    kind: Literal["boolean"]
    value: bool


class ChatInputNumberAnswerValue(TypedDict):
    kind: Literal["number"]
    value: Number


class ChatInputSelectedAnswerValue(TypedDict):
    kind: Literal["selected"]
    value: str
    freeformValues: NotRequired[list[str]]


class ChatInputSelectedManyAnswerValue(TypedDict):
    kind: Literal["selected-many"]
    value: list[str]
    freeformValues: NotRequired[list[str]]


class ChatInputTextAnswerValue(TypedDict):
    kind: Literal["text"]
    value: str


ChatInputAnswerValue = (
    ChatInputTextAnswerValue
    | ChatInputNumberAnswerValue
    | ChatInputBooleanAnswerValue
    | ChatInputSelectedAnswerValue
    | ChatInputSelectedManyAnswerValue
)


class ChatInputAnswered(TypedDict):
    state: Literal["draft", "submitted"]
    value: ChatInputAnswerValue


class ChatInputSkipped(TypedDict):
    state: Literal["skipped"]
    freeformValues: NotRequired[list[str]]


ChatInputAnswer = ChatInputAnswered | ChatInputSkipped


class ChatInputQuestionBase(TypedDict):
    id: str
    title: NotRequired[str]
    message: str
    required: NotRequired[bool]


class ChatInputBooleanQuestion(ChatInputQuestionBase):
    kind: Literal["boolean"]
    defaultValue: NotRequired[bool]


class ChatInputOption(TypedDict):
    id: str
    label: str
    description: NotRequired[str]
    recommended: NotRequired[bool]


class ChatInputMultiSelectQuestion(ChatInputQuestionBase):
    kind: Literal["multi-select"]
    options: list[ChatInputOption]
    allowFreeformInput: NotRequired[bool]
    min: NotRequired[Number]
    max: NotRequired[Number]


class ChatInputNumberQuestion(ChatInputQuestionBase):
    kind: Literal["number", "integer"]
    min: NotRequired[Number]
    max: NotRequired[Number]
    defaultValue: NotRequired[Number]


class ChatInputSingleSelectQuestion(ChatInputQuestionBase):
    kind: Literal["single-select"]
    options: list[ChatInputOption]
    allowFreeformInput: NotRequired[bool]


class ChatInputTextQuestion(ChatInputQuestionBase):
    kind: Literal["text"]
    format: NotRequired[str]
    min: NotRequired[Number]
    max: NotRequired[Number]
    defaultValue: NotRequired[str]


ChatInputQuestion = (
    ChatInputTextQuestion
    | ChatInputNumberQuestion
    | ChatInputBooleanQuestion
    | ChatInputSingleSelectQuestion
    | ChatInputMultiSelectQuestion
)


class ChatInputRequest(TypedDict):
    id: str
    message: NotRequired[str]
    url: NotRequired[URI]
    questions: NotRequired[list[ChatInputQuestion]]
    answers: NotRequired[dict[str, ChatInputAnswer]]
