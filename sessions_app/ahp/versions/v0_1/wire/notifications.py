"""The four notifications of AHP 0.1: what every connection of a tenant hears (R260)."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, AuthRequiredReason
from sessions_app.ahp.versions.v0_1.wire.messages import FileEdit
from sessions_app.ahp.versions.v0_1.wire.state import ModelSelection, ProjectInfo, SessionSummary
from sessions_app.core.base.shapes import Shape


class SessionAddedNotification(TypedDict):
    type: Literal["notify/sessionAdded"]
    summary: SessionSummary


class SessionRemovedNotification(TypedDict):
    type: Literal["notify/sessionRemoved"]
    session: URI


class SessionSummaryChanges(TypedDict):
    """The members that changed; what a session is called by never does, and is not here (R262)."""

    title: NotRequired[str]
    status: NotRequired[int]
    activity: NotRequired[str]
    modifiedAt: NotRequired[int]
    project: NotRequired[ProjectInfo]
    model: NotRequired[ModelSelection]
    workingDirectory: NotRequired[URI]
    diffs: NotRequired[list[FileEdit]]


class SessionSummaryChangedNotification(TypedDict):
    type: Literal["notify/sessionSummaryChanged"]
    session: URI
    changes: SessionSummaryChanges


class AuthRequiredNotification(TypedDict):
    type: Literal["notify/authRequired"]
    resource: str
    reason: NotRequired[AuthRequiredReason]


ProtocolNotification = (
    SessionAddedNotification | SessionRemovedNotification | SessionSummaryChangedNotification | AuthRequiredNotification
)


class NotificationParams(TypedDict):
    notification: ProtocolNotification


NOTIFICATION: Shape[NotificationParams] = Shape(NotificationParams)
"""The params of the method ``notification``."""
