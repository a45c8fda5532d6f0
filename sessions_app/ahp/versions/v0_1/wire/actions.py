"""The 53 actions of AHP 0.1."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import (
    URI,
    CustomizationStatus,
    PendingMessageKind,
    SessionInputResponseKind,
    ToolCallConfirmationReason,
)
from sessions_app.ahp.versions.v0_1.wire.messages import (
    ErrorInfo,
    FileEdit,
    FileEdits,
    StringOrMarkdown,
    UsageInfo,
    UserMessage,
)
from sessions_app.ahp.versions.v0_1.wire.questions import SessionInputAnswer, SessionInputRequest
from sessions_app.ahp.versions.v0_1.wire.state import (
    AgentInfo,
    CustomizationRef,
    ModelSelection,
    ResponsePart,
    SessionActiveClient,
    SessionCustomization,
)
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalClaim, TerminalInfo
from sessions_app.ahp.versions.v0_1.wire.tools import ConfirmationOption, ToolCallResult, ToolDefinition, ToolResultContent

# --- root ---


class RootAgentsChangedAction(TypedDict):
    type: Literal["root/agentsChanged"]
    agents: list[AgentInfo]


class RootActiveSessionsChangedAction(TypedDict):
    type: Literal["root/activeSessionsChanged"]
    activeSessions: int


class RootTerminalsChangedAction(TypedDict):
    type: Literal["root/terminalsChanged"]
    terminals: list[TerminalInfo]


class RootConfigChangedAction(TypedDict):
    type: Literal["root/configChanged"]
    config: dict[str, Any]
    replace: NotRequired[bool]


# --- session: its life and turns ---


class _SessionAction(TypedDict):
    session: URI


class _TurnAction(_SessionAction):
    turnId: str


class SessionReadyAction(_SessionAction):
    type: Literal["session/ready"]


class SessionCreationFailedAction(_SessionAction):
    type: Literal["session/creationFailed"]
    error: ErrorInfo


class SessionTurnStartedAction(_TurnAction):
    type: Literal["session/turnStarted"]
    userMessage: UserMessage
    queuedMessageId: NotRequired[str]


class SessionResponsePartAction(_TurnAction):
    type: Literal["session/responsePart"]
    part: ResponsePart


class SessionDeltaAction(_TurnAction):
    type: Literal["session/delta"]
    partId: str
    content: str


class SessionReasoningAction(_TurnAction):
    type: Literal["session/reasoning"]
    partId: str
    content: str


class SessionUsageAction(_TurnAction):
    type: Literal["session/usage"]
    usage: UsageInfo


class SessionTurnCompleteAction(_TurnAction):
    type: Literal["session/turnComplete"]


class SessionTurnCancelledAction(_TurnAction):
    type: Literal["session/turnCancelled"]


class SessionErrorAction(_TurnAction):
    type: Literal["session/error"]
    error: ErrorInfo


class SessionTruncatedAction(_SessionAction):
    type: Literal["session/truncated"]
    turnId: NotRequired[str]


# --- session: tool calls ---


class ToolCallActionBase(_TurnAction):
    toolCallId: str
    _meta: NotRequired[dict[str, Any]]


class SessionToolCallStartAction(ToolCallActionBase):
    type: Literal["session/toolCallStart"]
    toolName: str
    displayName: str
    toolClientId: NotRequired[str]


class SessionToolCallDeltaAction(ToolCallActionBase):
    type: Literal["session/toolCallDelta"]
    content: str
    invocationMessage: NotRequired[StringOrMarkdown]


class SessionToolCallReadyAction(ToolCallActionBase):
    type: Literal["session/toolCallReady"]
    invocationMessage: StringOrMarkdown
    toolInput: NotRequired[str]
    confirmationTitle: NotRequired[StringOrMarkdown]
    edits: NotRequired[FileEdits]
    editable: NotRequired[bool]
    confirmed: NotRequired[ToolCallConfirmationReason]
    options: NotRequired[list[ConfirmationOption]]


class SessionToolCallApprovedAction(ToolCallActionBase):
    type: Literal["session/toolCallConfirmed"]
    approved: Literal[True]
    confirmed: ToolCallConfirmationReason
    editedToolInput: NotRequired[str]
    selectedOptionId: NotRequired[str]


class SessionToolCallDeniedAction(ToolCallActionBase):
    type: Literal["session/toolCallConfirmed"]
    approved: Literal[False]
    reason: Literal["denied", "skipped"]
    userSuggestion: NotRequired[UserMessage]
    reasonMessage: NotRequired[StringOrMarkdown]
    selectedOptionId: NotRequired[str]


SessionToolCallConfirmedAction = SessionToolCallApprovedAction | SessionToolCallDeniedAction


class SessionToolCallCompleteAction(ToolCallActionBase):
    type: Literal["session/toolCallComplete"]
    result: ToolCallResult
    requiresResultConfirmation: NotRequired[bool]


class SessionToolCallResultConfirmedAction(ToolCallActionBase):
    type: Literal["session/toolCallResultConfirmed"]
    approved: bool


class SessionToolCallContentChangedAction(ToolCallActionBase):
    type: Literal["session/toolCallContentChanged"]
    content: list[ToolResultContent]


# --- session: the rest ---


class SessionTitleChangedAction(_SessionAction):
    type: Literal["session/titleChanged"]
    title: str


class SessionModelChangedAction(_SessionAction):
    type: Literal["session/modelChanged"]
    model: ModelSelection


class SessionIsReadChangedAction(_SessionAction):
    type: Literal["session/isReadChanged"]
    isRead: bool


class SessionIsArchivedChangedAction(_SessionAction):
    type: Literal["session/isArchivedChanged"]
    isArchived: bool


class SessionActivityChangedAction(_SessionAction):
    type: Literal["session/activityChanged"]
    activity: NotRequired[str]


class SessionDiffsChangedAction(_SessionAction):
    type: Literal["session/diffsChanged"]
    diffs: list[FileEdit]


class SessionServerToolsChangedAction(_SessionAction):
    type: Literal["session/serverToolsChanged"]
    tools: list[ToolDefinition]


class SessionActiveClientChangedAction(_SessionAction):
    """``activeClient`` null releases the role (A4)."""

    type: Literal["session/activeClientChanged"]
    activeClient: SessionActiveClient | None


class SessionActiveClientToolsChangedAction(_SessionAction):
    type: Literal["session/activeClientToolsChanged"]
    tools: list[ToolDefinition]


class SessionCustomizationsChangedAction(_SessionAction):
    type: Literal["session/customizationsChanged"]
    customizations: list[SessionCustomization]


class SessionCustomizationToggledAction(_SessionAction):
    type: Literal["session/customizationToggled"]
    uri: URI
    enabled: bool


class SessionCustomizationUpdatedAction(_SessionAction):
    type: Literal["session/customizationUpdated"]
    customization: CustomizationRef
    enabled: NotRequired[bool]
    status: NotRequired[CustomizationStatus]
    statusMessage: NotRequired[str]


class SessionConfigChangedAction(_SessionAction):
    type: Literal["session/configChanged"]
    config: dict[str, Any]
    replace: NotRequired[bool]


class SessionMetaChangedAction(_SessionAction):
    type: Literal["session/metaChanged"]
    _meta: NotRequired[dict[str, Any]]


class SessionPendingMessageSetAction(_SessionAction):
    type: Literal["session/pendingMessageSet"]
    kind: PendingMessageKind
    id: str
    userMessage: UserMessage


class SessionPendingMessageRemovedAction(_SessionAction):
    type: Literal["session/pendingMessageRemoved"]
    kind: PendingMessageKind
    id: str


class SessionQueuedMessagesReorderedAction(_SessionAction):
    type: Literal["session/queuedMessagesReordered"]
    order: list[str]


class SessionInputRequestedAction(_SessionAction):
    type: Literal["session/inputRequested"]
    request: SessionInputRequest


class SessionInputAnswerChangedAction(_SessionAction):
    type: Literal["session/inputAnswerChanged"]
    requestId: str
    questionId: str
    answer: NotRequired[SessionInputAnswer]


class SessionInputCompletedAction(_SessionAction):
    type: Literal["session/inputCompleted"]
    requestId: str
    response: SessionInputResponseKind
    answers: NotRequired[dict[str, SessionInputAnswer]]


# --- terminal ---


class _TerminalAction(TypedDict):
    terminal: URI


class TerminalDataAction(_TerminalAction):
    type: Literal["terminal/data"]
    data: str


class TerminalInputAction(_TerminalAction):
    type: Literal["terminal/input"]
    data: str


class TerminalResizedAction(_TerminalAction):
    type: Literal["terminal/resized"]
    cols: int
    rows: int


class TerminalClaimedAction(_TerminalAction):
    type: Literal["terminal/claimed"]
    claim: TerminalClaim


class TerminalTitleChangedAction(_TerminalAction):
    type: Literal["terminal/titleChanged"]
    title: str


class TerminalCwdChangedAction(_TerminalAction):
    type: Literal["terminal/cwdChanged"]
    cwd: URI


class TerminalExitedAction(_TerminalAction):
    type: Literal["terminal/exited"]
    exitCode: NotRequired[int]


class TerminalClearedAction(_TerminalAction):
    type: Literal["terminal/cleared"]


class TerminalCommandDetectionAvailableAction(_TerminalAction):
    type: Literal["terminal/commandDetectionAvailable"]


class TerminalCommandExecutedAction(_TerminalAction):
    type: Literal["terminal/commandExecuted"]
    commandId: str
    commandLine: str
    timestamp: int


class TerminalCommandFinishedAction(_TerminalAction):
    type: Literal["terminal/commandFinished"]
    commandId: str
    exitCode: NotRequired[int]
    durationMs: NotRequired[int]


# --- all of them ---

RootAction = RootAgentsChangedAction | RootActiveSessionsChangedAction | RootTerminalsChangedAction | RootConfigChangedAction

SessionAction = (
    SessionReadyAction
    | SessionCreationFailedAction
    | SessionTurnStartedAction
    | SessionResponsePartAction
    | SessionDeltaAction
    | SessionReasoningAction
    | SessionUsageAction
    | SessionTurnCompleteAction
    | SessionTurnCancelledAction
    | SessionErrorAction
    | SessionTruncatedAction
    | SessionToolCallStartAction
    | SessionToolCallDeltaAction
    | SessionToolCallReadyAction
    | SessionToolCallApprovedAction
    | SessionToolCallDeniedAction
    | SessionToolCallCompleteAction
    | SessionToolCallResultConfirmedAction
    | SessionToolCallContentChangedAction
    | SessionTitleChangedAction
    | SessionModelChangedAction
    | SessionIsReadChangedAction
    | SessionIsArchivedChangedAction
    | SessionActivityChangedAction
    | SessionDiffsChangedAction
    | SessionServerToolsChangedAction
    | SessionActiveClientChangedAction
    | SessionActiveClientToolsChangedAction
    | SessionCustomizationsChangedAction
    | SessionCustomizationToggledAction
    | SessionCustomizationUpdatedAction
    | SessionConfigChangedAction
    | SessionMetaChangedAction
    | SessionPendingMessageSetAction
    | SessionPendingMessageRemovedAction
    | SessionQueuedMessagesReorderedAction
    | SessionInputRequestedAction
    | SessionInputAnswerChangedAction
    | SessionInputCompletedAction
)

TerminalAction = (
    TerminalDataAction
    | TerminalInputAction
    | TerminalResizedAction
    | TerminalClaimedAction
    | TerminalTitleChangedAction
    | TerminalCwdChangedAction
    | TerminalExitedAction
    | TerminalClearedAction
    | TerminalCommandDetectionAvailableAction
    | TerminalCommandExecutedAction
    | TerminalCommandFinishedAction
)

StateAction = RootAction | SessionAction | TerminalAction
