"""Tools, their calls in every state, their results, in AHP 0.1."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import (
    URI,
    ConfirmationOptionKind,
    ToolCallCancellationReason,
    ToolCallConfirmationReason,
)
from sessions_app.ahp.versions.v0_1.wire.messages import FileEdit, FileEdits, StringOrMarkdown, UserMessage
from sessions_app.core.base.shapes import Number, open_ended


class ToolAnnotations(TypedDict):
    title: NotRequired[str]
    readOnlyHint: NotRequired[bool]
    destructiveHint: NotRequired[bool]
    idempotentHint: NotRequired[bool]
    openWorldHint: NotRequired[bool]


@open_ended
class ToolSchema(TypedDict):
    """The JSON Schema of what a tool takes or gives (A5); keywords beside these are kept."""

    type: Literal["object"]
    properties: NotRequired[dict[str, Any]]
    required: NotRequired[list[str]]


class ToolDefinition(TypedDict):
    name: str
    title: NotRequired[str]
    description: NotRequired[str]
    inputSchema: NotRequired[ToolSchema]
    outputSchema: NotRequired[ToolSchema]
    annotations: NotRequired[ToolAnnotations]
    _meta: NotRequired[dict[str, Any]]


class ToolResultTextContent(TypedDict):
    type: Literal["text"]
    text: str


class ToolResultEmbeddedResourceContent(TypedDict):
    type: Literal["embeddedResource"]
    data: str
    contentType: str


class ToolResultResourceContent(TypedDict):
    uri: URI
    sizeHint: NotRequired[int]
    contentType: NotRequired[str]
    type: Literal["resource"]


class ToolResultFileEditContent(FileEdit):
    type: Literal["fileEdit"]


class ToolResultTerminalContent(TypedDict):
    type: Literal["terminal"]
    resource: URI
    title: str


class ToolResultSubagentContent(TypedDict):
    type: Literal["subagent"]
    resource: URI
    title: str
    agentName: NotRequired[str]
    description: NotRequired[str]


ToolResultContent = (
    ToolResultTextContent
    | ToolResultEmbeddedResourceContent
    | ToolResultResourceContent
    | ToolResultFileEditContent
    | ToolResultTerminalContent
    | ToolResultSubagentContent
)


class ToolCallError(TypedDict):
    message: str
    code: NotRequired[str]


class ToolCallResult(TypedDict):
    success: bool
    pastTenseMessage: StringOrMarkdown
    content: NotRequired[list[ToolResultContent]]
    structuredContent: NotRequired[dict[str, Any]]
    error: NotRequired[ToolCallError]


class ConfirmationOption(TypedDict):
    id: str
    label: str
    kind: ConfirmationOptionKind
    group: NotRequired[Number]


class ToolCallBase(TypedDict):
    toolCallId: str
    toolName: str
    displayName: str
    toolClientId: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class ToolCallParameterFields(TypedDict):
    invocationMessage: StringOrMarkdown
    toolInput: NotRequired[str]


class ToolCallStreamingState(ToolCallBase):
    status: Literal["streaming"]
    partialInput: NotRequired[str]
    invocationMessage: NotRequired[StringOrMarkdown]


class ToolCallPendingConfirmationState(ToolCallBase, ToolCallParameterFields):
    status: Literal["pending-confirmation"]
    confirmationTitle: NotRequired[StringOrMarkdown]
    edits: NotRequired[FileEdits]
    editable: NotRequired[bool]
    options: NotRequired[list[ConfirmationOption]]


class ToolCallRunningState(ToolCallBase, ToolCallParameterFields):
    status: Literal["running"]
    confirmed: ToolCallConfirmationReason
    selectedOption: NotRequired[ConfirmationOption]
    content: NotRequired[list[ToolResultContent]]


class ToolCallPendingResultConfirmationState(ToolCallBase, ToolCallParameterFields, ToolCallResult):
    status: Literal["pending-result-confirmation"]
    confirmed: ToolCallConfirmationReason
    selectedOption: NotRequired[ConfirmationOption]


class ToolCallCompletedState(ToolCallBase, ToolCallParameterFields, ToolCallResult):
    status: Literal["completed"]
    confirmed: ToolCallConfirmationReason
    selectedOption: NotRequired[ConfirmationOption]


class ToolCallCancelledState(ToolCallBase, ToolCallParameterFields):
    status: Literal["cancelled"]
    reason: ToolCallCancellationReason
    reasonMessage: NotRequired[StringOrMarkdown]
    userSuggestion: NotRequired[UserMessage]
    selectedOption: NotRequired[ConfirmationOption]


ToolCallState = (
    ToolCallStreamingState
    | ToolCallPendingConfirmationState
    | ToolCallRunningState
    | ToolCallPendingResultConfirmationState
    | ToolCallCompletedState
    | ToolCallCancelledState
)
