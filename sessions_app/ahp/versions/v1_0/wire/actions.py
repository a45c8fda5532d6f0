"""The actions that AHP 1.0 adds (V330). Those of changesets and canvases are known and not declared: nothing here has any."""

from __future__ import annotations

from typing import Literal, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_9.wire.actions import StateAction as StateActionOf09
from sessions_app.ahp.versions.v1_0.wire.chat import BackgroundWork


class SessionChatsReorderedAction(TypedDict):
    type: Literal["session/chatsReordered"]
    chats: list[URI]


class SessionMcpServerBackgroundRequestedAction(TypedDict):
    type: Literal["session/mcpServerBackgroundRequested"]
    id: str


class ChatBackgroundWorkSetAction(TypedDict):
    type: Literal["chat/backgroundWorkSet"]
    work: BackgroundWork


class ChatBackgroundWorkRemovedAction(TypedDict):
    type: Literal["chat/backgroundWorkRemoved"]
    id: str


class ChatMovableChangedAction(TypedDict):
    type: Literal["chat/movableChanged"]
    movable: bool


class ChatIsReadChangedAction(TypedDict):
    type: Literal["chat/isReadChanged"]
    isRead: bool


class ChatIsArchivedChangedAction(TypedDict):
    type: Literal["chat/isArchivedChanged"]
    isArchived: bool


AddedAction = (
    SessionChatsReorderedAction
    | SessionMcpServerBackgroundRequestedAction
    | ChatBackgroundWorkSetAction
    | ChatBackgroundWorkRemovedAction
    | ChatMovableChangedAction
    | ChatIsReadChangedAction
    | ChatIsArchivedChangedAction
)

StateAction = StateActionOf09 | AddedAction
