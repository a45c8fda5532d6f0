"""The reducers of the root's state (R400, R401)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.reducers.config import overlaid
from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed


def _agents(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, agents=action["agents"])


def _active_sessions(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, activeSessions=action["activeSessions"])


def _terminals(state: Obj, action: Obj, _now: int) -> Obj:
    return changed(state, terminals=action["terminals"])


ROOT: Mapping[str, Callable[[Obj, Obj, int], Obj]] = {
    "root/agentsChanged": _agents,
    "root/activeSessionsChanged": _active_sessions,
    "root/terminalsChanged": _terminals,
    "root/configChanged": overlaid,
}
