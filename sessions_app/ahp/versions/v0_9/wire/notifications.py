"""The notifications of AHP 0.9."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, AuthRequiredReason
from sessions_app.ahp.versions.v0_1.wire.state import ProjectInfo
from sessions_app.ahp.versions.v0_9.wire.chat import ChangesSummary
from sessions_app.ahp.versions.v0_9.wire.resources import ProtectedResourceMetadata
from sessions_app.ahp.versions.v0_9.wire.state import AnnotationsSummary, SessionSummary
from sessions_app.core.base.shapes import Number


class AuthRequiredParams(TypedDict):
    channel: URI
    resource: ProtectedResourceMetadata
    reason: NotRequired[AuthRequiredReason]


class ProgressParams(TypedDict):
    channel: URI
    progressToken: str
    progress: Number
    total: NotRequired[Number]
    message: NotRequired[str]


class SessionAddedParams(TypedDict):
    channel: URI
    summary: SessionSummary


class SessionRemovedParams(TypedDict):
    channel: URI
    session: URI


class SessionSummaryChanges(TypedDict):
    provider: NotRequired[str]
    title: NotRequired[str]
    status: NotRequired[int]
    activity: NotRequired[str]
    project: NotRequired[ProjectInfo]
    workingDirectories: NotRequired[list[URI]]
    annotations: NotRequired[AnnotationsSummary]
    resource: NotRequired[URI]
    createdAt: NotRequired[str]
    modifiedAt: NotRequired[str]
    changes: NotRequired[ChangesSummary]
    _meta: NotRequired[dict[str, Any]]


class SessionSummaryChangedParams(TypedDict):
    channel: URI
    session: URI
    changes: SessionSummaryChanges
