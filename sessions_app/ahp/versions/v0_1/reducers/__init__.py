"""The reducers of AHP 0.1: a state and an action give the next state.

Pure and total. They never raise and never change their arguments; an action of an unknown type, or one that lacks a required
member, returns the same state object. Unchanged parts are shared between the states, so a step costs
what it changes, whatever the size of the session. ``now`` is Unix milliseconds, the only clock there is (R70: each side stamps
``summary.modifiedAt`` with its own).

Reducers do not validate the members of actions: ``wire.envelopes.ACTION.read`` does that for actions of clients. Nor do they
check whether an action is allowed (R90).

    reduce_root | reduce_session | reduce_terminal (state, action, now)
    reduce(state, action, now)          picks one by the action's type
    root_state | session_state | terminal_state    initial states
    activity(state)                     the status bits that a session's state makes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sessions_app.ahp.versions.v0_1.reducers.root import ROOT
from sessions_app.ahp.versions.v0_1.reducers.session import SESSION
from sessions_app.ahp.versions.v0_1.reducers.states import root_state, session_state, terminal_state
from sessions_app.ahp.versions.v0_1.reducers.status import activity
from sessions_app.ahp.versions.v0_1.reducers.terminal import TERMINAL
from sessions_app.ahp.versions.v0_1.wire.state import RootState, SessionState
from sessions_app.ahp.versions.v0_1.wire.terminals import TerminalState

__all__ = [
    "activity",
    "reduce",
    "reduce_root",
    "reduce_session",
    "reduce_terminal",
    "root_state",
    "session_state",
    "terminal_state",
]

State = TypeVar("State")
Steps = Mapping[str, Callable[[Any, Any, int], Any]]

_EVERY: Steps = {**ROOT, **SESSION, **TERMINAL}


def reduce_root(state: RootState, action: Mapping[str, object], now: int) -> RootState:
    return _step(ROOT, state, action, now)


def reduce_session(state: SessionState, action: Mapping[str, object], now: int) -> SessionState:
    return _step(SESSION, state, action, now)


def reduce_terminal(state: TerminalState, action: Mapping[str, object], now: int) -> TerminalState:
    return _step(TERMINAL, state, action, now)


def reduce(state: State, action: Mapping[str, object], now: int) -> State:
    """For callers that hold states of any kind; ``state`` must be of the kind that the action is about."""
    return _step(_EVERY, state, action, now)


def _step(steps: Steps, state: State, action: Mapping[str, object], now: int) -> State:
    members: Any = action
    try:
        step = steps.get(members["type"])
        if step is None:
            return state
        after: State = step(state, members, now)
    except (LookupError, TypeError, AttributeError, ValueError):
        # A member is missing or of another type. Nothing has happened: steps build copies.
        return state
    return after
