"""Notifications of AHP 0.9 and 1.0 about sessions: for subscribers of the root only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection.sessions import summary_of
from sessions_app.ahp.versions.v0_9.spelling import session_uri
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.core.log.journal.types import Event
from sessions_app.core.sessions.entries import SessionEntry

if TYPE_CHECKING:
    from sessions_app.ahp.transport.connection import Connection

_NEVER_CHANGED = frozenset({"resource", "provider", "createdAt", "defaultChat"})


@dataclass(frozen=True, slots=True)
class SummaryNotifications:
    face: Face

    def concerns(self, connection: Connection) -> bool:
        return any(channel.kind == "root" for channel in connection.subscriptions)

    def added(self, summary: SessionEntry) -> str:
        return _notification("root/sessionAdded", {"summary": summary_of(summary, self.face)})

    def changed(self, before: SessionEntry | None, after: SessionEntry, _fields: Collection[str], /) -> str | None:
        shown = summary_of(after, self.face)
        old = {} if before is None else summary_of(before, self.face)
        changes = {
            name: value for name, value in shown.items() if name not in _NEVER_CHANGED and (name not in old or old[name] != value)
        }
        if not changes:
            return None
        return _notification("root/sessionSummaryChanged", {"session": shown["resource"], "changes": changes})

    def removed(self, event: Event) -> str | None:
        payload = exact_json.loads(event.data)
        if payload.get("uri") is None or "agent" not in payload:
            return None
        uri = session_uri(
            payload["uri"], payload.get("family", ""), payload["agent"], payload["session"], by_provider=self.face.by_provider
        )
        return _notification("root/sessionRemoved", {"session": uri})


def _notification(method: str, params: dict[str, Any]) -> str:
    return jsonrpc.notification(method, {"channel": ROOT, **params})
