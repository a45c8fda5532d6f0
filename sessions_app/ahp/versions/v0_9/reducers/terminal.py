"""The reducers of a terminal's state: those of AHP 0.1, but for its end, which is in ``lifecycle`` (V231)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, picked
from sessions_app.ahp.versions.v0_1.reducers.terminal import TERMINAL as TERMINAL_0_1
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, clockless


def _exited(terminal: Obj, action: Obj) -> Obj:
    return changed(terminal, lifecycle={"status": "exited", **picked(action, "exitCode")})


TERMINAL: Steps = {**{name: clockless(step) for name, step in TERMINAL_0_1.items()}, "terminal/exited": _exited}
