"""The reducers of AHP 1.0: those of 0.9, and what 1.0 adds to them (V513, V521, V527, V330).

Of the ten new actions ``canvas/stateChanged`` has no step: neither this host nor its client has canvases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_9.reducers import STEPS as STEPS_0_9
from sessions_app.ahp.versions.v0_9.reducers import catalogue, customizations
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, apply
from sessions_app.ahp.versions.v1_0.reducers.chat import CHAT

__all__ = ["STEPS", "reduce"]

STEPS: Mapping[str, Steps] = {
    **STEPS_0_9,
    "session": {
        **STEPS_0_9["session"],
        "session/chatsReordered": catalogue.reordered,
        "session/mcpServerBackgroundRequested": customizations.server_background_requested,
    },
    "chat": {**STEPS_0_9["chat"], **CHAT},
}

_EVERY: Steps = {name: step for table in STEPS.values() for name, step in table.items()}


def reduce(state: Any, action: Mapping[str, object]) -> Any:
    return apply(_EVERY, state, action)
