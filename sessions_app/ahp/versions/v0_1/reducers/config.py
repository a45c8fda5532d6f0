"""Changes of configuration values, of a session or of the root (R401, R433)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed


def overlaid(state: Obj, action: Obj, _now: int) -> Obj:
    """The schema stays; a state without configuration is not changed."""
    config = state.get("config")
    if config is None:
        return state
    values = dict(action["config"]) if action.get("replace") else {**config["values"], **action["config"]}
    return changed(state, config=changed(config, values=values))
