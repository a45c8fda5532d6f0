"""A session's summary in AHP 0.1."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sessions_app.ahp.wire.v0_1.enumerations import SessionStatus
from sessions_app.core.summaries import Summary

_ACTIVITY: Mapping[str, SessionStatus] = {
    "idle": SessionStatus.IDLE,
    "failed": SessionStatus.ERROR,
    "working": SessionStatus.IN_PROGRESS,
    "waiting": SessionStatus.INPUT_NEEDED,
}


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def status_of(state: str, *, read: bool, archived: bool) -> int:
    status = _ACTIVITY[state]
    if read:
        status |= SessionStatus.READ
    if archived:
        status |= SessionStatus.ARCHIVED
    return int(status)


def summary_of(summary: Summary) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "resource": summary.uri,
        "provider": summary.agent,
        "title": summary.title,
        "status": status_of(summary.state, read=summary.read, archived=summary.archived),
        "createdAt": milliseconds(summary.created_at),
        "modifiedAt": milliseconds(summary.modified_at),
    }
    if summary.activity is not None:
        shown["activity"] = summary.activity
    if summary.model is not None:
        shown["model"] = {"id": summary.model}
    return shown
