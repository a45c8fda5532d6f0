"""The ranges of versions that count as AHP 0.9 and 1.0 (V5-V10). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.ahp.versions.offers import highest
from sessions_app.ahp.versions.v0_9.face import Dialect


def choose_0_9(offered: Sequence[str]) -> str | None:
    return highest(offered, (0, 9, 0), (0, 10, 0))


def choose_1(offered: Sequence[str]) -> str | None:
    return highest(offered, (1, 0, 0), (2, 0, 0))


# --- the editor that finds an agent in the scheme of a session's URI (V310-V313) ---

_EDITORS = frozenset({"vscode-editor-window", "vscode-agents-window"})
SESSION_URIS = "vscode.ahpSessionUris"
"""The key in ``_meta`` of clients of this editor that take any URI of a session."""


def is_editor(params: Any) -> bool:
    info = params.get("clientInfo") if isinstance(params, Mapping) else None
    return isinstance(info, Mapping) and info.get("name") in _EDITORS


def takes_any_uri(params: Any) -> bool:
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return isinstance(meta, Mapping) and meta.get(SESSION_URIS) is True


def dialect_of_editor(params: Any) -> Dialect:
    """The dialect for an editor that sends these params of ``initialize`` or ``reconnect``."""
    return "editor" if takes_any_uri(params) else "by provider"


def dialect(params: Any) -> Dialect:
    """The dialect for the client that sends this ``initialize``."""
    return dialect_of_editor(params) if is_editor(params) else ""


def is_new_reconnect(params: Any) -> bool:
    """Whether a ``reconnect`` of an unknown client is of these versions."""
    if not isinstance(params, Mapping) or "protocolVersions" in params or "lastSeenServerSeq" not in params:
        return False
    uris = params.get("subscriptions")
    return "channel" in params or (
        isinstance(uris, list) and any(isinstance(uri, str) and uri.startswith("ahp-") for uri in uris)
    )
