"""Initial states, to which the first action is applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from sessions_app.ahp.versions.v0_1.wire.enumerations import URI, SessionStatus
from sessions_app.ahp.versions.v0_1.wire.state import AgentInfo, RootState, SessionState
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalClaim, TerminalState


def root_state(agents: Sequence[AgentInfo] = ()) -> RootState:
    return {"agents": list(agents), "activeSessions": 0}


def session_state(
    resource: URI, provider: str, *, created_at: int, title: str = "", lifecycle: Literal["creating", "ready"] = "creating"
) -> SessionState:
    """A session without messages (R114). ``created_at``: Unix milliseconds. Callers add optional members."""
    return {
        "summary": {
            "resource": resource,
            "provider": provider,
            "title": title,
            "status": int(SessionStatus.IDLE),
            "createdAt": created_at,
            "modifiedAt": created_at,
        },
        "lifecycle": lifecycle,
        "turns": [],
    }


def terminal_state(title: str, claim: TerminalClaim, *, cols: int = 80, rows: int = 24) -> TerminalState:
    return {"title": title, "cols": cols, "rows": rows, "content": [], "claim": claim}
