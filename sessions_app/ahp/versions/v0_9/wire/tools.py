"""Tool calls in every state, and results, in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, ToolCallCancellationReason, ToolCallConfirmationReason
from sessions_app.ahp.versions.v0_1.wire.messages import FileEditDiff, FileEdits, FileEditSide, StringOrMarkdown
from sessions_app.ahp.versions.v0_1.wire.tools import (
    ConfirmationOption,
    ToolCallError,
    ToolResultEmbeddedResourceContent,
    ToolResultSubagentContent,
    ToolResultTextContent,
)
from sessions_app.ahp.versions.v0_9.wire.enumerations import ToolCallRiskAssessmentKind
from sessions_app.ahp.versions.v0_9.wire.messages import ContentRef, Message
from sessions_app.ahp.versions.v0_9.wire.resources import McpAuthRequirement
from sessions_app.ahp.versions.v0_9.wire.terminals import TerminalCommandResult
from sessions_app.core.base.shapes import Number


class ToolCallMcpContributor(TypedDict):
    kind: Literal["mcp"]
    customizationId: str


ToolInput = str | ContentRef


class ToolCallParameterFields(TypedDict):
    invocationMessage: StringOrMarkdown
    toolInput: NotRequired[ToolInput]


class ToolCallPostConfirmationFields(TypedDict):
    confirmed: ToolCallConfirmationReason
    selectedOption: NotRequired[ConfirmationOption]


class ToolResultFileEditContent(TypedDict):
    before: NotRequired[FileEditSide]
    after: NotRequired[FileEditSide]
    diff: NotRequired[FileEditDiff]
    type: Literal["fileEdit"]


class ToolResultResourceContent(ContentRef):
    type: Literal["resource"]


class ToolResultTerminalContent(TypedDict):
    type: Literal["terminal"]
    resource: URI
    title: str
    isPty: NotRequired[bool]
    result: NotRequired[TerminalCommandResult]


ToolResultContent = (
    ToolResultTextContent
    | ToolResultEmbeddedResourceContent
    | ToolResultResourceContent
    | ToolResultFileEditContent
    | ToolResultTerminalContent
    | ToolResultSubagentContent
)


class ToolCallAuthRequiredState(ToolCallParameterFields, ToolCallPostConfirmationFields):
    toolCallId: str
    toolName: str
    displayName: str
    intention: NotRequired[str]
    contributor: ToolCallMcpContributor
    _meta: NotRequired[dict[str, Any]]
    status: Literal["auth-required"]
    auth: McpAuthRequirement
    content: NotRequired[list[ToolResultContent]]


class ToolCallClientContributor(TypedDict):
    kind: Literal["client"]
    clientId: str


ToolCallContributor = ToolCallClientContributor | ToolCallMcpContributor


class ToolCallBase(TypedDict):
    toolCallId: str
    toolName: str
    displayName: str
    intention: NotRequired[str]
    contributor: NotRequired[ToolCallContributor]
    _meta: NotRequired[dict[str, Any]]


class ToolCallCancelledState(ToolCallBase, ToolCallParameterFields):
    status: Literal["cancelled"]
    reason: ToolCallCancellationReason
    reasonMessage: NotRequired[StringOrMarkdown]
    userSuggestion: NotRequired[Message]
    selectedOption: NotRequired[ConfirmationOption]


class ToolCallResult(TypedDict):
    success: bool
    pastTenseMessage: StringOrMarkdown
    content: NotRequired[list[ToolResultContent]]
    structuredContent: NotRequired[dict[str, Any]]
    error: NotRequired[ToolCallError]


class ToolCallCompletedState(ToolCallBase, ToolCallParameterFields, ToolCallResult, ToolCallPostConfirmationFields):
    status: Literal["completed"]


class ToolCallRiskAssessmentCompleteState(TypedDict):
    kind: ToolCallRiskAssessmentKind
    status: Literal["complete"]
    reason: StringOrMarkdown
    safety: Number


class ToolCallRiskAssessmentLoadingState(TypedDict):
    kind: ToolCallRiskAssessmentKind
    status: Literal["loading"]


ToolCallRiskAssessment = ToolCallRiskAssessmentLoadingState | ToolCallRiskAssessmentCompleteState


class ToolCallPendingConfirmationState(ToolCallBase, ToolCallParameterFields):
    status: Literal["pending-confirmation"]
    confirmationTitle: NotRequired[StringOrMarkdown]
    riskAssessment: NotRequired[ToolCallRiskAssessment]
    edits: NotRequired[FileEdits]
    editable: NotRequired[bool]
    options: NotRequired[list[ConfirmationOption]]


class ToolCallPendingResultConfirmationState(
    ToolCallBase, ToolCallParameterFields, ToolCallResult, ToolCallPostConfirmationFields
):
    status: Literal["pending-result-confirmation"]


ToolCallConfirmationState = ToolCallPendingConfirmationState | ToolCallPendingResultConfirmationState


class ToolCallRiskAssessmentBase(TypedDict):
    kind: ToolCallRiskAssessmentKind


class ToolCallRunningState(ToolCallBase, ToolCallParameterFields, ToolCallPostConfirmationFields):
    status: Literal["running"]
    content: NotRequired[list[ToolResultContent]]


class ToolCallStreamingState(ToolCallBase):
    status: Literal["streaming"]
    partialInput: NotRequired[str]
    invocationMessage: NotRequired[StringOrMarkdown]


ToolCallState = (
    ToolCallStreamingState
    | ToolCallPendingConfirmationState
    | ToolCallRunningState
    | ToolCallAuthRequiredState
    | ToolCallPendingResultConfirmationState
    | ToolCallCompletedState
    | ToolCallCancelledState
)
