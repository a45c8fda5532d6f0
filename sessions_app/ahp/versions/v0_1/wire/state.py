"""The root's and a session's state in AHP 0.1, with their parts and snapshots."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.config import ConfigSchema, RootConfigState, SessionConfigState
from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, CustomizationStatus, PolicyState, SessionLifecycle, TurnState
from sessions_app.ahp.versions.v0_1.wire.messages import (
    ErrorInfo,
    FileEdit,
    PendingMessage,
    StringOrMarkdown,
    UsageInfo,
    UserMessage,
)
from sessions_app.ahp.versions.v0_1.wire.questions import SessionInputRequest
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalInfo, TerminalState
from sessions_app.ahp.versions.v0_1.wire.tools import ToolCallState, ToolDefinition

ROOT = "agenthost:/root"
"""The URI of the resource that is always there (R60)."""


class Icon(TypedDict):
    src: URI
    contentType: NotRequired[str]
    sizes: NotRequired[list[str]]
    theme: NotRequired[Literal["light", "dark"]]


class CustomizationRef(TypedDict):
    uri: URI
    displayName: str
    description: NotRequired[str]
    icons: NotRequired[list[Icon]]
    nonce: NotRequired[str]


class SessionCustomization(TypedDict):
    customization: CustomizationRef
    enabled: bool
    clientId: NotRequired[str]
    status: NotRequired[CustomizationStatus]
    statusMessage: NotRequired[str]


class ProtectedResourceMetadata(TypedDict):
    """RFC 9728's words (R350)."""

    resource: str
    resource_name: NotRequired[str]
    authorization_servers: NotRequired[list[str]]
    jwks_uri: NotRequired[str]
    scopes_supported: NotRequired[list[str]]
    bearer_methods_supported: NotRequired[list[str]]
    resource_signing_alg_values_supported: NotRequired[list[str]]
    resource_encryption_alg_values_supported: NotRequired[list[str]]
    resource_encryption_enc_values_supported: NotRequired[list[str]]
    resource_documentation: NotRequired[str]
    resource_policy_uri: NotRequired[str]
    resource_tos_uri: NotRequired[str]
    required: NotRequired[bool]


class SessionModelInfo(TypedDict):
    id: str
    provider: str
    name: str
    maxContextWindow: NotRequired[int]
    supportsVision: NotRequired[bool]
    policyState: NotRequired[PolicyState]
    configSchema: NotRequired[ConfigSchema]
    _meta: NotRequired[dict[str, Any]]


class AgentInfo(TypedDict):
    provider: str
    displayName: str
    description: str
    models: list[SessionModelInfo]
    protectedResources: NotRequired[list[ProtectedResourceMetadata]]
    customizations: NotRequired[list[CustomizationRef]]


class RootState(TypedDict):
    agents: list[AgentInfo]
    activeSessions: NotRequired[int]
    terminals: NotRequired[list[TerminalInfo]]
    config: NotRequired[RootConfigState]


# --- a session ---


class ModelSelection(TypedDict):
    id: str
    config: NotRequired[dict[str, str]]


class ProjectInfo(TypedDict):
    uri: URI
    displayName: str


class SessionSummary(TypedDict):
    resource: URI
    provider: str
    title: str
    status: int
    activity: NotRequired[str]
    createdAt: int
    modifiedAt: int
    project: NotRequired[ProjectInfo]
    model: NotRequired[ModelSelection]
    workingDirectory: NotRequired[URI]
    diffs: NotRequired[list[FileEdit]]


class SessionActiveClient(TypedDict):
    clientId: str
    displayName: NotRequired[str]
    tools: list[ToolDefinition]
    customizations: NotRequired[list[CustomizationRef]]


class MarkdownResponsePart(TypedDict):
    kind: Literal["markdown"]
    id: str
    content: str


class ContentRefPart(TypedDict):
    uri: URI
    sizeHint: NotRequired[int]
    contentType: NotRequired[str]
    kind: Literal["contentRef"]


class ToolCallResponsePart(TypedDict):
    kind: Literal["toolCall"]
    toolCall: ToolCallState


class ReasoningResponsePart(TypedDict):
    kind: Literal["reasoning"]
    id: str
    content: str


class SystemNotificationResponsePart(TypedDict):
    kind: Literal["systemNotification"]
    content: StringOrMarkdown


ResponsePart = (
    MarkdownResponsePart | ContentRefPart | ToolCallResponsePart | ReasoningResponsePart | SystemNotificationResponsePart
)


class ActiveTurn(TypedDict):
    id: str
    userMessage: UserMessage
    responseParts: list[ResponsePart]
    usage: NotRequired[UsageInfo]


class Turn(ActiveTurn):
    state: TurnState
    error: NotRequired[ErrorInfo]


class SessionState(TypedDict):
    summary: SessionSummary
    lifecycle: SessionLifecycle
    creationError: NotRequired[ErrorInfo]
    serverTools: NotRequired[list[ToolDefinition]]
    activeClient: NotRequired[SessionActiveClient]
    turns: list[Turn]
    activeTurn: NotRequired[ActiveTurn]
    steeringMessage: NotRequired[PendingMessage]
    queuedMessages: NotRequired[list[PendingMessage]]
    inputRequests: NotRequired[list[SessionInputRequest]]
    config: NotRequired[SessionConfigState]
    customizations: NotRequired[list[SessionCustomization]]
    _meta: NotRequired[dict[str, Any]]


class Snapshot(TypedDict):
    resource: URI
    state: RootState | SessionState | TerminalState
    fromSeq: int
