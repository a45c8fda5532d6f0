"""The members of chats and of entries in lists that AHP 1.0 adds."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_9.wire import chat, state
from sessions_app.ahp.versions.v0_9.wire.enumerations import ChatInteractivity


class BackgroundWorkShell(TypedDict):
    kind: Literal["shell"]
    id: str
    label: str
    startedAt: str
    command: str
    terminal: NotRequired[URI]
    _meta: NotRequired[dict[str, Any]]


class BackgroundWorkSubagent(TypedDict):
    kind: Literal["subagent"]
    id: str
    label: str
    startedAt: str
    chat: URI
    _meta: NotRequired[dict[str, Any]]


BackgroundWork = BackgroundWorkShell | BackgroundWorkSubagent


class ChatSummary(chat.ChatSummary):
    changes: NotRequired[chat.ChangesSummary]
    movable: NotRequired[bool]


class ChatState(chat.ChatState):
    changes: NotRequired[chat.ChangesSummary]
    movable: NotRequired[bool]
    backgroundWork: NotRequired[list[BackgroundWork]]  # noqa: N815


class SessionChatSummary(TypedDict):
    """A chat in a list of sessions."""

    resource: URI
    title: str
    origin: NotRequired[chat.ChatOrigin]
    interactivity: NotRequired[ChatInteractivity]
    status: NotRequired[int]
    changes: NotRequired[chat.ChangesSummary]


class SessionSummary(state.SessionSummary):
    chats: NotRequired[list[SessionChatSummary]]
    defaultChat: NotRequired[URI]  # noqa: N815
