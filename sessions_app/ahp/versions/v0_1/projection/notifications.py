"""Notifications of AHP 0.1 about sessions; every connection gets them (R260-R263)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_1.projection.sessions import summary_of
from sessions_app.core.log.journal.types import Event
from sessions_app.core.sessions.entries import SessionEntry

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_MEMBERS = {
    "title": "title",
    "state": "status",
    "read": "status",
    "archived": "status",
    "model": "model",
    "activity": "activity",
    "diffs": "diffs",
    "modified_at": "modifiedAt",
}
"""The member of a summary on the wire, for each field of the core's."""


def concerns(_connection: Connection) -> bool:
    return True


def added(summary: SessionEntry) -> str:
    return _notification({"type": "notify/sessionAdded", "summary": summary_of(summary)})


def changed(before: SessionEntry | None, after: SessionEntry, fields: Collection[str]) -> str | None:
    shown = summary_of(after)
    old = None if before is None else summary_of(before)
    members = sorted({_MEMBERS[field] for field in fields})
    changes = {member: shown.get(member, "") for member in members if old is None or shown.get(member) != old.get(member)}
    # A member that is missing now was cleared, which only the activity can be (R262).
    changes = {member: value for member, value in changes.items() if member in shown or member == "activity"}
    if not changes:
        return None
    return _notification({"type": "notify/sessionSummaryChanged", "session": after.uri, "changes": changes})


def removed(event: Event) -> str | None:
    uri = exact_json.loads(event.data).get("uri")
    return None if uri is None else _notification({"type": "notify/sessionRemoved", "session": uri})


def _notification(notification: Mapping[str, Any]) -> str:
    return jsonrpc.notification("notification", {"notification": notification})
