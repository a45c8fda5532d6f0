"""The actions of a chat in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, PendingMessageKind, ToolCallConfirmationReason
from sessions_app.ahp.versions.v0_1.wire.messages import FileEdits, StringOrMarkdown, UsageInfo
from sessions_app.ahp.versions.v0_1.wire.tools import ConfirmationOption
from sessions_app.ahp.versions.v0_9.wire.chat import ErrorResponsePart, ResponsePart, Turn
from sessions_app.ahp.versions.v0_9.wire.enumerations import ChatInputResponseKind
from sessions_app.ahp.versions.v0_9.wire.messages import Message
from sessions_app.ahp.versions.v0_9.wire.questions import ChatInputAnswer, ChatInputRequest
from sessions_app.ahp.versions.v0_9.wire.resources import McpAuthRequirement
from sessions_app.ahp.versions.v0_9.wire.tools import (
    ToolCallContributor,
    ToolCallParameterFields,
    ToolCallResult,
    ToolCallRiskAssessment,
    ToolResultContent,
)
from sessions_app.core.base.shapes import Number


class ChatActivityChangedAction(TypedDict):
    type: Literal["chat/activityChanged"]
    activity: NotRequired[str]


class ChatDeltaAction(TypedDict):
    type: Literal["chat/delta"]
    turnId: str
    partId: str
    content: str
    _meta: NotRequired[dict[str, Any]]


class ChatDraftChangedAction(TypedDict):
    type: Literal["chat/draftChanged"]
    draft: NotRequired[Message]


class ChatErrorAction(TypedDict):
    type: Literal["chat/error"]
    turnId: str
    duration: Number
    _meta: NotRequired[dict[str, Any]]
    part: ErrorResponsePart


class ChatInputAnswerChangedAction(TypedDict):
    type: Literal["chat/inputAnswerChanged"]
    requestId: str
    questionId: str
    answer: NotRequired[ChatInputAnswer]


class ChatInputCompletedAction(TypedDict):
    type: Literal["chat/inputCompleted"]
    requestId: str
    response: ChatInputResponseKind
    answers: NotRequired[dict[str, ChatInputAnswer]]


class ChatInputRequestedAction(TypedDict):
    type: Literal["chat/inputRequested"]
    request: ChatInputRequest


class ChatPendingMessageRemovedAction(TypedDict):
    type: Literal["chat/pendingMessageRemoved"]
    kind: PendingMessageKind
    id: str


class ChatPendingMessageSetAction(TypedDict):
    type: Literal["chat/pendingMessageSet"]
    kind: PendingMessageKind
    id: str
    message: Message


class ChatQueuedMessagesReorderedAction(TypedDict):
    type: Literal["chat/queuedMessagesReordered"]
    order: list[str]


class ChatReasoningAction(TypedDict):
    type: Literal["chat/reasoning"]
    turnId: str
    partId: str
    content: str
    _meta: NotRequired[dict[str, Any]]


class ChatResponsePartAction(TypedDict):
    type: Literal["chat/responsePart"]
    turnId: str
    part: ResponsePart
    _meta: NotRequired[dict[str, Any]]


class ToolCallActionBase(TypedDict):
    turnId: str
    toolCallId: str
    _meta: NotRequired[dict[str, Any]]


class ChatToolCallAuthRequiredAction(ToolCallActionBase):
    type: Literal["chat/toolCallAuthRequired"]
    auth: McpAuthRequirement


class ChatToolCallAuthResolvedAction(ToolCallActionBase):
    type: Literal["chat/toolCallAuthResolved"]


class ChatToolCallCompleteAction(ToolCallActionBase):
    type: Literal["chat/toolCallComplete"]
    result: ToolCallResult
    requiresResultConfirmation: NotRequired[bool]


class ChatToolCallApprovedAction(ToolCallActionBase):
    type: Literal["chat/toolCallConfirmed"]
    approved: Literal[True]
    confirmed: ToolCallConfirmationReason
    editedToolInput: NotRequired[str]
    selectedOptionId: NotRequired[str]


class ChatToolCallDeniedAction(ToolCallActionBase):
    type: Literal["chat/toolCallConfirmed"]
    approved: Literal[False]
    reason: Literal["denied", "skipped"]
    userSuggestion: NotRequired[Message]
    reasonMessage: NotRequired[StringOrMarkdown]
    selectedOptionId: NotRequired[str]


ChatToolCallConfirmedAction = ChatToolCallApprovedAction | ChatToolCallDeniedAction


class ChatToolCallContentChangedAction(ToolCallActionBase):
    type: Literal["chat/toolCallContentChanged"]
    content: list[ToolResultContent]


class ChatToolCallDeltaAction(ToolCallActionBase):
    type: Literal["chat/toolCallDelta"]
    content: NotRequired[str]
    invocationMessage: NotRequired[StringOrMarkdown]


class ChatToolCallReadyAction(ToolCallParameterFields, ToolCallActionBase):
    type: Literal["chat/toolCallReady"]
    contributor: NotRequired[ToolCallContributor]
    intention: NotRequired[str]
    confirmationTitle: NotRequired[StringOrMarkdown]
    riskAssessment: NotRequired[ToolCallRiskAssessment]
    edits: NotRequired[FileEdits]
    editable: NotRequired[bool]
    confirmed: NotRequired[ToolCallConfirmationReason]
    options: NotRequired[list[ConfirmationOption]]


class ChatToolCallResultConfirmedAction(ToolCallActionBase):
    type: Literal["chat/toolCallResultConfirmed"]
    approved: bool


class ChatToolCallStartAction(ToolCallActionBase):
    type: Literal["chat/toolCallStart"]
    toolName: str
    displayName: str
    intention: NotRequired[str]
    contributor: NotRequired[ToolCallContributor]


class ChatTruncatedAction(TypedDict):
    type: Literal["chat/truncated"]
    turnId: NotRequired[str]


class ChatTurnCancelledAction(TypedDict):
    type: Literal["chat/turnCancelled"]
    turnId: str
    duration: Number
    _meta: NotRequired[dict[str, Any]]


class ChatTurnCompleteAction(TypedDict):
    type: Literal["chat/turnComplete"]
    turnId: str
    duration: Number
    _meta: NotRequired[dict[str, Any]]


class ChatTurnStartedAction(TypedDict):
    type: Literal["chat/turnStarted"]
    turnId: str
    startedAt: str
    message: Message
    queuedMessageId: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class ChatTurnsLoadedAction(TypedDict):
    type: Literal["chat/turnsLoaded"]
    turns: list[Turn]
    turnsNextCursor: NotRequired[str]


class ChatUsageAction(TypedDict):
    type: Literal["chat/usage"]
    turnId: str
    usage: UsageInfo
    _meta: NotRequired[dict[str, Any]]


class ChatWorkingDirectoryRemovedAction(TypedDict):
    type: Literal["chat/workingDirectoryRemoved"]
    directory: URI


class ChatWorkingDirectorySetAction(TypedDict):
    type: Literal["chat/workingDirectorySet"]
    directory: URI


ChatAction = (
    ChatTurnStartedAction
    | ChatDeltaAction
    | ChatResponsePartAction
    | ChatToolCallStartAction
    | ChatToolCallDeltaAction
    | ChatToolCallReadyAction
    | ChatToolCallConfirmedAction
    | ChatToolCallCompleteAction
    | ChatToolCallResultConfirmedAction
    | ChatToolCallContentChangedAction
    | ChatToolCallAuthRequiredAction
    | ChatToolCallAuthResolvedAction
    | ChatTurnCompleteAction
    | ChatTurnCancelledAction
    | ChatErrorAction
    | ChatActivityChangedAction
    | ChatWorkingDirectorySetAction
    | ChatWorkingDirectoryRemovedAction
    | ChatUsageAction
    | ChatReasoningAction
    | ChatTruncatedAction
    | ChatTurnsLoadedAction
    | ChatPendingMessageSetAction
    | ChatPendingMessageRemovedAction
    | ChatQueuedMessagesReorderedAction
    | ChatDraftChangedAction
    | ChatInputRequestedAction
    | ChatInputAnswerChangedAction
    | ChatInputCompletedAction
)


class ChatTurnResumeAction(TypedDict):
    type: Literal["chat/turnResume"]
    turnId: str
