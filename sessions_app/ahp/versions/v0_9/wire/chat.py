"""A chat's state and summary, its turns and their parts, in AHP 0.9."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, TurnState
from sessions_app.ahp.versions.v0_1.wire.messages import StringOrMarkdown, UsageInfo
from sessions_app.ahp.versions.v0_1.wire.state import MarkdownResponsePart, ReasoningResponsePart
from sessions_app.ahp.versions.v0_9.wire.enumerations import ChatInputResponseKind, ChatInteractivity
from sessions_app.ahp.versions.v0_9.wire.messages import ContentRef, ErrorInfo, Message, PendingMessage
from sessions_app.ahp.versions.v0_9.wire.questions import ChatInputRequest
from sessions_app.ahp.versions.v0_9.wire.tools import ToolCallState
from sessions_app.core.base.shapes import Number


class ErrorResponsePart(TypedDict):
    kind: Literal["error"]
    error: ErrorInfo
    resumable: NotRequired[bool]


class InputRequestResponsePart(TypedDict):
    kind: Literal["inputRequest"]
    request: ChatInputRequest
    response: NotRequired[ChatInputResponseKind]


class ResourceResponsePart(ContentRef):
    kind: Literal["contentRef"]


class SystemNotificationResponsePart(TypedDict):
    kind: Literal["systemNotification"]
    content: StringOrMarkdown
    _meta: NotRequired[dict[str, Any]]


class ToolCallResponsePart(TypedDict):
    kind: Literal["toolCall"]
    toolCall: ToolCallState


ResponsePart = (
    MarkdownResponsePart
    | ResourceResponsePart
    | ToolCallResponsePart
    | ReasoningResponsePart
    | SystemNotificationResponsePart
    | InputRequestResponsePart
    | ErrorResponsePart
)


class ActiveTurn(TypedDict):
    id: str
    startedAt: str
    message: Message
    responseParts: list[ResponsePart]
    usage: NotRequired[UsageInfo]


class ChangesSummary(TypedDict):
    additions: NotRequired[int]
    deletions: NotRequired[int]
    files: NotRequired[int]


class ChatOriginUser(TypedDict):
    kind: Literal["user"]


class ChatOriginFork(TypedDict):
    kind: Literal["fork"]
    chat: URI
    turnId: str


class ChatOriginSideChat(TypedDict):
    kind: Literal["sideChat"]
    chat: URI
    turnId: str


class ChatOriginTool(TypedDict):
    kind: Literal["tool"]
    chat: URI
    toolCallId: str


ChatOrigin = ChatOriginUser | ChatOriginFork | ChatOriginSideChat | ChatOriginTool


class ChatSummary(TypedDict):
    resource: URI
    title: str
    status: int
    activity: NotRequired[str]
    modifiedAt: str
    origin: NotRequired[ChatOrigin]
    interactivity: NotRequired[ChatInteractivity]
    workingDirectories: NotRequired[list[URI]]


class Turn(TypedDict):
    id: str
    startedAt: NotRequired[str]
    duration: NotRequired[Number]
    message: Message
    responseParts: list[ResponsePart]
    usage: NotRequired[UsageInfo]
    state: TurnState


class ChatState(ChatSummary):
    turns: list[Turn]
    turnsNextCursor: NotRequired[str]
    activeTurn: NotRequired[ActiveTurn]
    steeringMessage: NotRequired[PendingMessage]
    queuedMessages: NotRequired[list[PendingMessage]]
    draft: NotRequired[Message]
    _meta: NotRequired[dict[str, Any]]
