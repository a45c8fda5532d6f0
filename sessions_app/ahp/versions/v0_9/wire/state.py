"""The root's and a session's state, with their parts and snapshots, in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, PolicyState
from sessions_app.ahp.versions.v0_1.wire.state import ProjectInfo
from sessions_app.ahp.versions.v0_1.wire.tools import ToolDefinition
from sessions_app.ahp.versions.v0_9.wire.chat import ChangesSummary, ChatState, ChatSummary
from sessions_app.ahp.versions.v0_9.wire.config import ConfigSchema, RootConfigState, SessionConfigState
from sessions_app.ahp.versions.v0_9.wire.customizations import ClientPluginCustomization, Customization
from sessions_app.ahp.versions.v0_9.wire.enumerations import SessionLifecycle
from sessions_app.ahp.versions.v0_9.wire.files import ResourceWatchState
from sessions_app.ahp.versions.v0_9.wire.messages import ErrorInfo
from sessions_app.ahp.versions.v0_9.wire.questions import ChatInputRequest
from sessions_app.ahp.versions.v0_9.wire.resources import ProtectedResourceMetadata
from sessions_app.ahp.versions.v0_9.wire.terminals import TerminalInfo, TerminalState
from sessions_app.ahp.versions.v0_9.wire.tools import ToolCallAuthRequiredState, ToolCallConfirmationState, ToolCallRunningState

ROOT = "ahp-root://"
"""The URI of the channel that is always there."""


class MultipleChatsCapability(TypedDict):
    fork: NotRequired[bool]
    sideChat: NotRequired[bool]


class MultipleWorkingDirectoriesCapability(TypedDict):
    immutablePrimary: NotRequired[bool]
    primaryReplacement: NotRequired[bool]


class AgentCapabilities(TypedDict):
    multipleChats: NotRequired[MultipleChatsCapability]
    multipleWorkingDirectories: NotRequired[MultipleWorkingDirectoriesCapability]


class SessionModelInfo(TypedDict):
    id: str
    provider: str
    name: str
    maxContextWindow: NotRequired[int]
    maxOutputTokens: NotRequired[int]
    maxPromptTokens: NotRequired[int]
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
    customizations: NotRequired[list[Customization]]
    capabilities: NotRequired[AgentCapabilities]


class AnnotationsSummary(TypedDict):
    resource: URI
    annotationCount: int
    entryCount: int


class RootState(TypedDict):
    agents: list[AgentInfo]
    activeSessions: NotRequired[int]
    terminals: NotRequired[list[TerminalInfo]]
    config: NotRequired[RootConfigState]
    _meta: NotRequired[dict[str, Any]]


class SessionActiveClient(TypedDict):
    clientId: str
    displayName: NotRequired[str]
    tools: list[ToolDefinition]
    customizations: NotRequired[list[ClientPluginCustomization]]


class SessionInputRequestBase(TypedDict):
    id: str
    chat: URI


class SessionChatInputRequest(SessionInputRequestBase):
    kind: Literal["chatInput"]
    request: ChatInputRequest


class SessionToolAuthenticationRequest(SessionInputRequestBase):
    kind: Literal["toolAuthentication"]
    turnId: str
    toolCall: ToolCallAuthRequiredState


class SessionToolClientExecutionRequest(SessionInputRequestBase):
    kind: Literal["toolClientExecution"]
    turnId: str
    clientId: str
    toolCall: ToolCallRunningState


class SessionToolConfirmationRequest(SessionInputRequestBase):
    kind: Literal["toolConfirmation"]
    turnId: str
    toolCall: ToolCallConfirmationState


SessionInputRequest = (
    SessionChatInputRequest
    | SessionToolConfirmationRequest
    | SessionToolClientExecutionRequest
    | SessionToolAuthenticationRequest
)


class SessionMetadata(TypedDict):
    provider: str
    title: str
    status: int
    activity: NotRequired[str]
    project: NotRequired[ProjectInfo]
    workingDirectories: NotRequired[list[URI]]
    annotations: NotRequired[AnnotationsSummary]


class AutomationOrigin(TypedDict):
    kind: Literal["automation"]
    automation: URI
    run: URI


class SessionState(SessionMetadata):
    lifecycle: SessionLifecycle
    creationError: NotRequired[ErrorInfo]
    serverTools: NotRequired[list[ToolDefinition]]
    activeClients: list[SessionActiveClient]
    chats: list[ChatSummary]
    defaultChat: NotRequired[URI]
    config: NotRequired[SessionConfigState]
    customizations: NotRequired[list[Customization]]
    inputNeeded: NotRequired[list[SessionInputRequest]]
    _meta: NotRequired[dict[str, Any]]
    origin: NotRequired[AutomationOrigin]


class SessionSummary(SessionMetadata):
    resource: URI
    createdAt: str
    modifiedAt: str
    changes: NotRequired[ChangesSummary]
    _meta: NotRequired[dict[str, Any]]
    origin: NotRequired[AutomationOrigin]


class Snapshot(TypedDict):
    resource: URI
    state: RootState | SessionState | ChatState | TerminalState | ResourceWatchState
    fromSeq: int
