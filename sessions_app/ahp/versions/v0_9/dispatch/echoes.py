"""The echo of an accepted action: the action as received, without values that the host does not store.

A client that applies the echo must have the state of the next snapshot (V56).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents_app.exact_json import LongNumber
from sessions_app.ahp.versions.v0_1.dispatch.echoes import echo_of as echo_of_0_1
from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.ahp.versions.v0_9.messages import shown
from sessions_app.ahp.versions.v0_9.plugins import entry_of
from sessions_app.core.base import times
from sessions_app.core.base.shapes import Number


def _client(client: Mapping[str, Any]) -> dict[str, Any]:
    entry = entry_of(client)
    assert entry is not None
    kept = values.active_client({**entry.document(), "customizations": None})
    if "customizations" in client:
        kept["customizations"] = [
            {"type": "plugin", **{name: each[name] for name in ("id", "uri", "name")}} for each in client["customizations"]
        ]
    return kept


def _result(result: Mapping[str, Any]) -> Any:
    return echo_of_0_1({"type": "session/toolCallComplete", "result": result})["result"]


def duration_of(milliseconds: Number) -> int:
    """As it is stored: whole milliseconds, not below 0, at most some 30 years."""
    given = float(milliseconds.text) if isinstance(milliseconds, LongNumber) else milliseconds
    return int(min(max(0, given), times.LONGEST_MS))


_STORED_FORM: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("chat/turnStarted", "message"): shown,
    ("chat/pendingMessageSet", "message"): shown,
    ("chat/draftChanged", "draft"): shown,
    ("chat/turnCancelled", "duration"): duration_of,
    ("chat/toolCallConfirmed", "userSuggestion"): shown,
    ("chat/toolCallComplete", "result"): _result,
    ("session/activeClientSet", "activeClient"): _client,
}


def echo_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """``action``: as read by its shape."""
    echo = {name: value for name, value in action.items() if name != "_meta"}
    for member, value in echo.items():
        stored = _STORED_FORM.get((action["type"], member))
        if stored is not None:
            echo[member] = stored(value)
    return echo
