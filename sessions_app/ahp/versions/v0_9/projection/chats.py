"""A session's chat in AHP 0.9 and 1.0: its state and its summary."""

from __future__ import annotations

from typing import Any

from sessions_app.ahp.versions.v0_1.projection import calls
from sessions_app.ahp.versions.v0_1.projection import values as v0_1
from sessions_app.ahp.versions.v0_1.projection.sessions import status_of
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import values
from sessions_app.ahp.versions.v0_9.spelling import chat_uri
from sessions_app.core.sessions.entries import SessionEntry
from sessions_app.core.sessions.state import FormView, SessionState, TurnView


def chat_status(state: str, face: Face, *, read: bool, archived: bool) -> int:
    return status_of(state, read=face.family == "1" and read, archived=face.family == "1" and archived)


def summary_of(entry: SessionEntry, session: str, face: Face) -> dict[str, Any]:
    """``session``: the session's URI. An activity is always there, because a partial change could not remove it."""
    return {
        "resource": chat_uri(session),
        "title": entry.title,
        "status": chat_status(entry.state, face, read=entry.chat_read, archived=entry.archived),
        "activity": entry.activity or "",
        "modifiedAt": entry.chat_modified_at,
    }


def state_of(state: SessionState, session: str, face: Face) -> dict[str, Any]:
    shown = summary_of(state.summary, session, face)
    if not shown["activity"]:
        del shown["activity"]
    shown["turns"] = [turn_of(turn, session) for turn in state.turns]
    if state.live is not None:
        shown["activeTurn"] = _turn(state.live, session)
    if state.steering is not None:
        shown["steeringMessage"] = values.pending_message(state.steering["id"], state.steering["message"])
    if state.queued:
        shown["queuedMessages"] = [values.pending_message(each["id"], each["message"]) for each in state.queued]
    if state.draft is not None:
        shown["draft"] = values.message(state.draft)
    return shown


def turn_of(turn: TurnView, session: str) -> dict[str, Any]:
    """A turn that has ended."""
    shown = {**_turn(turn, session), "duration": turn.duration_ms, "state": turn.ending}
    if turn.ending == "error":
        shown["responseParts"].append(values.error_part(turn.error, resumable=turn.resumable))
    return shown


def _turn(turn: TurnView, session: str) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": turn.id,
        "startedAt": turn.began,
        "message": values.message(v0_1.stored_message(turn), turn.model),
        "responseParts": _parts(turn, session),
    }
    if turn.usage is not None:
        shown["usage"] = values.usages(turn.usage)
    return shown


def _parts(turn: TurnView, session: str) -> list[dict[str, Any]]:
    """Each question stands where it was asked, and each failure where it came."""
    shown = [calls.part_of(part, session, values.call_of) for part in turn.parts]
    placed = [(form.place, _question(form)) for form in turn.forms]
    # After the questions in the same place: nothing is asked before a new attempt has a part.
    placed += [(failed.place, values.error_part(failed.error, resumable=True)) for failed in turn.attempts]
    placed.sort(key=lambda each: each[0])
    for place, part in reversed(placed):
        shown.insert(place, part)
    return shown


def _question(form: FormView) -> dict[str, Any]:
    request = {**form.document, "answers": form.answers} if form.answers else dict(form.document)
    shown = {"kind": "inputRequest", "request": request}
    return {**shown, "response": form.response} if form.response else shown
