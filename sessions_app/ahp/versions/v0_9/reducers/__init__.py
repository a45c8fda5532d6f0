"""The reducers of AHP 0.9: a state and an action give the next state.

Pure and total, as those of 0.1, but without a clock: times come with the actions. They never raise and never change their
arguments. They do not validate members, and do not check whether an action is allowed.

    reduce(state, action)    the step is chosen by the action's type; ``state`` must be of the kind that the action is about
    STEPS                    the tables, by the part of the type before "/"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_9.reducers.annotations import ANNOTATIONS
from sessions_app.ahp.versions.v0_9.reducers.changeset import CHANGESET
from sessions_app.ahp.versions.v0_9.reducers.chat import CHAT
from sessions_app.ahp.versions.v0_9.reducers.root import ROOT
from sessions_app.ahp.versions.v0_9.reducers.session import SESSION
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, apply
from sessions_app.ahp.versions.v0_9.reducers.terminal import TERMINAL

__all__ = ["STEPS", "reduce"]

STEPS: Mapping[str, Steps] = {
    "root": ROOT,
    "session": SESSION,
    "chat": CHAT,
    "terminal": TERMINAL,
    # The state of a watch never changes: its changes are news, not state.
    "resourceWatch": {},
    "changeset": CHANGESET,
    "annotations": ANNOTATIONS,
}

_EVERY: Steps = {name: step for table in STEPS.values() for name, step in table.items()}


def reduce(state: Any, action: Mapping[str, object]) -> Any:
    return apply(_EVERY, state, action)
