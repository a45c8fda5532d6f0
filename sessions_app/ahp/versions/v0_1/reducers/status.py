"""A session's status, computed from its state (R150)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_1.wire.enumerations import SessionStatus

WAITING = ("pending-confirmation", "pending-result-confirmation")
"""The states of a call that waits for a user."""


def activity(state: Obj, *, failed: bool = False) -> SessionStatus:
    """The activity bits; ``failed``: the last turn has just ended in an error."""
    if failed:
        return SessionStatus.ERROR
    turn = state.get("activeTurn")
    if state.get("inputRequests") or (turn is not None and _waits(turn)):
        return SessionStatus.INPUT_NEEDED
    return SessionStatus.IDLE if turn is None else SessionStatus.IN_PROGRESS


def _waits(turn: Obj) -> bool:
    return any(part.get("kind") == "toolCall" and part["toolCall"].get("status") in WAITING for part in turn["responseParts"])


def recomputed(state: Obj, *, failed: bool = False, unread: bool = False, touched: int | None = None) -> Obj:
    """The state with its activity bits recomputed and its flags kept. ``touched``: the new ``modifiedAt``."""
    summary = state["summary"]
    marks = summary["status"] & ~SessionStatus.ACTIVITY
    if unread:
        marks &= ~SessionStatus.READ
    return summarized(state, touched, status=int(marks | activity(state, failed=failed)))


def marked(state: Obj, bit: SessionStatus, *, on: bool) -> Obj:
    status = state["summary"]["status"]
    return summarized(state, None, status=int(status | bit if on else status & ~bit))


def summarized(state: Obj, touched: int | None, **members: object) -> Obj:
    """The state with these members of its summary; the same state if nothing differs."""
    if touched is not None:
        members["modifiedAt"] = touched
    summary = state["summary"]
    if all(summary.get(name) == value for name, value in members.items()):
        return state
    return changed(state, summary=changed(summary, **members))
