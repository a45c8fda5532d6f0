"""The commands of AHP 1.0 that this host serves: those of 0.9, ``moveChat``, and ``expiresIn`` of a sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.commands import Command
from sessions_app.ahp.versions.v0_1.wire.enumerations import URI
from sessions_app.ahp.versions.v0_9.wire import commands as v0_9
from sessions_app.ahp.versions.v1_0.wire.chat import SessionSummary
from sessions_app.ahp.versions.v1_0.wire.envelopes import ActionEnvelope
from sessions_app.core.base.shapes import Rule, Shape

_POSITIVE = Rule(lambda value: None if value > 0 else "must be positive", minimum=1)


class AuthenticateParams(v0_9.AuthenticateParams):
    expiresIn: NotRequired[Annotated[int, _POSITIVE]]  # noqa: N815


class MoveChatParams(TypedDict):
    channel: URI
    destination: dict[str, Any]
    requestId: NotRequired[str]
    _meta: NotRequired[dict[str, Any]]


class MoveChatResult(TypedDict):
    session: URI


class ListSessionsResult(TypedDict):
    nextCursor: NotRequired[str]
    items: list[SessionSummary]


class ReconnectReplayResult(TypedDict):
    type: Literal["replay"]
    actions: list[ActionEnvelope]
    missing: list[URI]


ReconnectResult = ReconnectReplayResult | v0_9.ReconnectSnapshotResult

COMMANDS: Mapping[str, Command] = {
    **v0_9.COMMANDS,
    "authenticate": Command(Shape(AuthenticateParams), v0_9.COMMANDS["authenticate"].result),
    "reconnect": Command(v0_9.COMMANDS["reconnect"].params, Shape(ReconnectResult)),
    "listSessions": Command(v0_9.COMMANDS["listSessions"].params, Shape(ListSessionsResult)),
    "moveChat": Command(Shape(MoveChatParams), Shape(MoveChatResult)),
}
NOTICES = v0_9.NOTICES
