"""The actions of the root and of terminals in AHP 0.9, and all actions that this host knows."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_9.wire.chat_actions import (
    ChatActivityChangedAction,
    ChatDeltaAction,
    ChatDraftChangedAction,
    ChatErrorAction,
    ChatInputAnswerChangedAction,
    ChatInputCompletedAction,
    ChatInputRequestedAction,
    ChatPendingMessageRemovedAction,
    ChatPendingMessageSetAction,
    ChatQueuedMessagesReorderedAction,
    ChatReasoningAction,
    ChatResponsePartAction,
    ChatToolCallApprovedAction,
    ChatToolCallAuthRequiredAction,
    ChatToolCallAuthResolvedAction,
    ChatToolCallCompleteAction,
    ChatToolCallContentChangedAction,
    ChatToolCallDeltaAction,
    ChatToolCallDeniedAction,
    ChatToolCallReadyAction,
    ChatToolCallResultConfirmedAction,
    ChatToolCallStartAction,
    ChatTruncatedAction,
    ChatTurnCancelledAction,
    ChatTurnCompleteAction,
    ChatTurnResumeAction,
    ChatTurnsLoadedAction,
    ChatTurnStartedAction,
    ChatUsageAction,
    ChatWorkingDirectoryRemovedAction,
    ChatWorkingDirectorySetAction,
)
from sessions_app.ahp.versions.v0_9.wire.files import ResourceWatchChangedAction
from sessions_app.ahp.versions.v0_9.wire.session_actions import (
    SessionActiveClientRemovedAction,
    SessionActiveClientSetAction,
    SessionActivityChangedAction,
    SessionChatAddedAction,
    SessionChatRemovedAction,
    SessionChatUpdatedAction,
    SessionConfigChangedAction,
    SessionCreationFailedAction,
    SessionCustomizationRemovedAction,
    SessionCustomizationsChangedAction,
    SessionCustomizationToggledAction,
    SessionCustomizationUpdatedAction,
    SessionDefaultChatChangedAction,
    SessionInputNeededRemovedAction,
    SessionInputNeededSetAction,
    SessionIsArchivedChangedAction,
    SessionIsReadChangedAction,
    SessionMcpServerStartRequestedAction,
    SessionMcpServerStateChangedAction,
    SessionMcpServerStopRequestedAction,
    SessionMetaChangedAction,
    SessionReadyAction,
    SessionServerToolsChangedAction,
    SessionTitleChangedAction,
    SessionWorkingDirectoryRemovedAction,
    SessionWorkingDirectoryReplacedAction,
    SessionWorkingDirectorySetAction,
)
from sessions_app.ahp.versions.v0_9.wire.state import AgentInfo
from sessions_app.ahp.versions.v0_9.wire.terminals import TerminalClaim, TerminalInfo


class RootActiveSessionsChangedAction(TypedDict):
    type: Literal["root/activeSessionsChanged"]
    activeSessions: int


class RootAgentsChangedAction(TypedDict):
    type: Literal["root/agentsChanged"]
    agents: list[AgentInfo]


class RootConfigChangedAction(TypedDict):
    type: Literal["root/configChanged"]
    config: dict[str, Any]
    replace: NotRequired[bool]


class RootTerminalsChangedAction(TypedDict):
    type: Literal["root/terminalsChanged"]
    terminals: list[TerminalInfo]


class TerminalClaimedAction(TypedDict):
    type: Literal["terminal/claimed"]
    claim: TerminalClaim


class TerminalClearedAction(TypedDict):
    type: Literal["terminal/cleared"]


class TerminalCommandDetectionAvailableAction(TypedDict):
    type: Literal["terminal/commandDetectionAvailable"]


class TerminalCommandExecutedAction(TypedDict):
    type: Literal["terminal/commandExecuted"]
    commandId: str
    commandLine: str
    timestamp: int


class TerminalCommandFinishedAction(TypedDict):
    type: Literal["terminal/commandFinished"]
    commandId: str
    exitCode: NotRequired[int]
    durationMs: NotRequired[int]


class TerminalCwdChangedAction(TypedDict):
    type: Literal["terminal/cwdChanged"]
    cwd: URI


class TerminalDataAction(TypedDict):
    type: Literal["terminal/data"]
    data: str


class TerminalExitedAction(TypedDict):
    type: Literal["terminal/exited"]
    exitCode: NotRequired[int]


class TerminalInputAction(TypedDict):
    type: Literal["terminal/input"]
    data: str


class TerminalResizedAction(TypedDict):
    type: Literal["terminal/resized"]
    cols: int
    rows: int


class TerminalTitleChangedAction(TypedDict):
    type: Literal["terminal/titleChanged"]
    title: str


StateAction = (
    ChatActivityChangedAction
    | ChatDeltaAction
    | ChatDraftChangedAction
    | ChatErrorAction
    | ChatInputAnswerChangedAction
    | ChatInputCompletedAction
    | ChatInputRequestedAction
    | ChatPendingMessageRemovedAction
    | ChatPendingMessageSetAction
    | ChatQueuedMessagesReorderedAction
    | ChatReasoningAction
    | ChatResponsePartAction
    | ChatToolCallApprovedAction
    | ChatToolCallAuthRequiredAction
    | ChatToolCallAuthResolvedAction
    | ChatToolCallCompleteAction
    | ChatToolCallContentChangedAction
    | ChatToolCallDeltaAction
    | ChatToolCallDeniedAction
    | ChatToolCallReadyAction
    | ChatToolCallResultConfirmedAction
    | ChatToolCallStartAction
    | ChatTruncatedAction
    | ChatTurnCancelledAction
    | ChatTurnCompleteAction
    | ChatTurnResumeAction
    | ChatTurnStartedAction
    | ChatTurnsLoadedAction
    | ChatUsageAction
    | ChatWorkingDirectoryRemovedAction
    | ChatWorkingDirectorySetAction
    | RootActiveSessionsChangedAction
    | RootAgentsChangedAction
    | RootConfigChangedAction
    | RootTerminalsChangedAction
    | ResourceWatchChangedAction
    | SessionActiveClientRemovedAction
    | SessionActiveClientSetAction
    | SessionActivityChangedAction
    | SessionChatAddedAction
    | SessionChatRemovedAction
    | SessionChatUpdatedAction
    | SessionConfigChangedAction
    | SessionCreationFailedAction
    | SessionCustomizationRemovedAction
    | SessionCustomizationToggledAction
    | SessionCustomizationUpdatedAction
    | SessionCustomizationsChangedAction
    | SessionDefaultChatChangedAction
    | SessionInputNeededRemovedAction
    | SessionInputNeededSetAction
    | SessionIsArchivedChangedAction
    | SessionIsReadChangedAction
    | SessionMcpServerStartRequestedAction
    | SessionMcpServerStateChangedAction
    | SessionMcpServerStopRequestedAction
    | SessionMetaChangedAction
    | SessionReadyAction
    | SessionServerToolsChangedAction
    | SessionTitleChangedAction
    | SessionWorkingDirectoryRemovedAction
    | SessionWorkingDirectoryReplacedAction
    | SessionWorkingDirectorySetAction
    | TerminalClaimedAction
    | TerminalClearedAction
    | TerminalCommandDetectionAvailableAction
    | TerminalCommandExecutedAction
    | TerminalCommandFinishedAction
    | TerminalCwdChangedAction
    | TerminalDataAction
    | TerminalExitedAction
    | TerminalInputAction
    | TerminalResizedAction
    | TerminalTitleChangedAction
)
