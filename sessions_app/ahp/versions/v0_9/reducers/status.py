"""The status bits of a chat (V103), and those that ``inputNeeded`` gives a session (V525)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_1.wire.enumerations import SessionStatus

WAITING = ("pending-confirmation", "pending-result-confirmation", "auth-required")
"""The states of a call that waits for a person."""

_ATTENTION = SessionStatus.INPUT_NEEDED & ~SessionStatus.IN_PROGRESS


def recomputed(chat: Obj, *, failed: bool = False, unread: bool = False) -> Obj:
    """The chat with its activity bits recomputed and its flags kept. ``failed``: the last turn has just ended in an error."""
    flags = chat["status"] & ~SessionStatus.ACTIVITY
    if unread:
        flags &= ~SessionStatus.READ
    return with_status(chat, flags | _activity(chat, failed=failed))


def _activity(chat: Obj, *, failed: bool) -> SessionStatus:
    if failed:
        return SessionStatus.ERROR
    turn = chat.get("activeTurn")
    if turn is None:
        return SessionStatus.IDLE
    return SessionStatus.INPUT_NEEDED if any(_waits(part) for part in turn["responseParts"]) else SessionStatus.IN_PROGRESS


def _waits(part: Obj) -> bool:
    if part["kind"] == "toolCall":
        return part["toolCall"].get("status") in WAITING
    return is_unanswered(part)


def is_unanswered(part: Obj) -> bool:
    return part["kind"] == "inputRequest" and part.get("response") is None


def _marked(state: Obj, bit: SessionStatus, *, on: bool) -> Obj:
    return with_status(state, state["status"] | bit if on else state["status"] & ~bit)


def is_read(state: Obj, action: Obj) -> Obj:
    return _marked(state, SessionStatus.READ, on=bool(action["isRead"]))


def is_archived(state: Obj, action: Obj) -> Obj:
    return _marked(state, SessionStatus.ARCHIVED, on=bool(action["isArchived"]))


def of_attention(session: Obj) -> Obj:
    """The session with the bits that its ``inputNeeded`` makes: a client's own work asks nobody (V206)."""
    entries = session.get("inputNeeded") or ()
    if any(entry["kind"] != "toolClientExecution" for entry in entries):
        return with_status(session, session["status"] & ~SessionStatus.ACTIVITY | SessionStatus.INPUT_NEEDED)
    return _marked(session, _ATTENTION, on=False)


def with_status(state: Obj, status: int) -> Obj:
    return state if state["status"] == int(status) else changed(state, status=int(status))
