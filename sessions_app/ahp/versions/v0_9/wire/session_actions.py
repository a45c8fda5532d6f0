"""The actions of a session in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_1.wire.tools import ToolDefinition
from sessions_app.ahp.versions.v0_9.wire.chat import ChatOrigin, ChatSummary
from sessions_app.ahp.versions.v0_9.wire.customizations import Customization, CustomizationEnablement, McpServerState
from sessions_app.ahp.versions.v0_9.wire.enumerations import ChatInteractivity
from sessions_app.ahp.versions.v0_9.wire.messages import ErrorInfo
from sessions_app.ahp.versions.v0_9.wire.state import SessionActiveClient, SessionInputRequest


class SessionActiveClientRemovedAction(TypedDict):
    type: Literal["session/activeClientRemoved"]
    clientId: str


class SessionActiveClientSetAction(TypedDict):
    type: Literal["session/activeClientSet"]
    activeClient: SessionActiveClient


class SessionActivityChangedAction(TypedDict):
    type: Literal["session/activityChanged"]
    activity: NotRequired[str]


class SessionChatAddedAction(TypedDict):
    type: Literal["session/chatAdded"]
    summary: ChatSummary


class SessionChatRemovedAction(TypedDict):
    type: Literal["session/chatRemoved"]
    chat: URI


class ChatSummaryChanges(TypedDict):
    resource: NotRequired[URI]
    title: NotRequired[str]
    status: NotRequired[int]
    activity: NotRequired[str]
    modifiedAt: NotRequired[str]
    origin: NotRequired[ChatOrigin]
    interactivity: NotRequired[ChatInteractivity]
    workingDirectories: NotRequired[list[URI]]


class SessionChatUpdatedAction(TypedDict):
    type: Literal["session/chatUpdated"]
    chat: URI
    changes: ChatSummaryChanges


class SessionConfigChangedAction(TypedDict):
    type: Literal["session/configChanged"]
    config: dict[str, Any]
    replace: NotRequired[bool]


class SessionCreationFailedAction(TypedDict):
    type: Literal["session/creationFailed"]
    error: ErrorInfo


class SessionCustomizationRemovedAction(TypedDict):
    type: Literal["session/customizationRemoved"]
    id: str


class SessionCustomizationToggledAction(TypedDict):
    type: Literal["session/customizationToggled"]
    id: str
    enablement: list[CustomizationEnablement]


class SessionCustomizationUpdatedAction(TypedDict):
    type: Literal["session/customizationUpdated"]
    customization: Customization


class SessionCustomizationsChangedAction(TypedDict):
    type: Literal["session/customizationsChanged"]
    customizations: list[Customization]


class SessionDefaultChatChangedAction(TypedDict):
    type: Literal["session/defaultChatChanged"]
    defaultChat: NotRequired[URI]


class SessionInputNeededRemovedAction(TypedDict):
    type: Literal["session/inputNeededRemoved"]
    id: str


class SessionInputNeededSetAction(TypedDict):
    type: Literal["session/inputNeededSet"]
    request: SessionInputRequest


class SessionIsArchivedChangedAction(TypedDict):
    type: Literal["session/isArchivedChanged"]
    isArchived: bool


class SessionIsReadChangedAction(TypedDict):
    type: Literal["session/isReadChanged"]
    isRead: bool


class SessionMcpServerStartRequestedAction(TypedDict):
    type: Literal["session/mcpServerStartRequested"]
    id: str


class SessionMcpServerStateChangedAction(TypedDict):
    type: Literal["session/mcpServerStateChanged"]
    id: str
    state: McpServerState
    channel: NotRequired[URI]


class SessionMcpServerStopRequestedAction(TypedDict):
    type: Literal["session/mcpServerStopRequested"]
    id: str


class SessionMetaChangedAction(TypedDict):
    type: Literal["session/metaChanged"]
    _meta: NotRequired[dict[str, Any]]


class SessionReadyAction(TypedDict):
    type: Literal["session/ready"]


class SessionServerToolsChangedAction(TypedDict):
    type: Literal["session/serverToolsChanged"]
    tools: list[ToolDefinition]


class SessionTitleChangedAction(TypedDict):
    type: Literal["session/titleChanged"]
    title: str


class SessionWorkingDirectoryRemovedAction(TypedDict):
    type: Literal["session/workingDirectoryRemoved"]
    directory: URI


class SessionWorkingDirectoryReplacedAction(TypedDict):
    type: Literal["session/workingDirectoryReplaced"]
    directory: URI
    replacement: URI


class SessionWorkingDirectorySetAction(TypedDict):
    type: Literal["session/workingDirectorySet"]
    directory: URI
