"""Turns: start, parts, end, truncation (R412-R418)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, picked, replaced
from sessions_app.ahp.versions.v0_1.reducers.pending import without_queued
from sessions_app.ahp.versions.v0_1.reducers.status import recomputed

BASE = ("toolCallId", "toolName", "displayName", "toolClientId", "_meta")
"""The members that a call has in all states."""


def active(state: Obj, action: Obj) -> Obj | None:
    """The active turn, if the action names it."""
    turn: Obj | None = state.get("activeTurn")
    return turn if turn is not None and turn["id"] == action["turnId"] else None


def started(state: Obj, action: Obj, now: int) -> Obj:
    turn = {"id": action["turnId"], "userMessage": action["userMessage"], "responseParts": []}
    begun = changed(state, activeTurn=turn)
    queued = action.get("queuedMessageId")
    if queued is not None:
        steering = state.get("steeringMessage")
        if steering is not None and steering["id"] == queued:
            begun = changed(begun, steeringMessage=None)
        begun = without_queued(begun, queued)
    return recomputed(begun, unread=True, touched=now)


def part(state: Obj, action: Obj, _now: int) -> Obj:
    turn = active(state, action)
    if turn is None:
        return state
    return changed(state, activeTurn=changed(turn, responseParts=[*turn["responseParts"], action["part"]]))


def delta(state: Obj, action: Obj, _now: int) -> Obj:
    return _appended(state, action, "markdown")


def reasoning(state: Obj, action: Obj, _now: int) -> Obj:
    return _appended(state, action, "reasoning")


def _appended(state: Obj, action: Obj, kind: str) -> Obj:
    turn = active(state, action)
    if turn is None:
        return state
    parts, wanted = turn["responseParts"], action["partId"]
    index = found(parts, lambda item: _id(item) == wanted)
    # Only the first part with that id counts: calls and parts of the other kind get no text.
    if index is None or parts[index]["kind"] != kind:
        return state
    longer = changed(parts[index], content=parts[index]["content"] + action["content"])
    return changed(state, activeTurn=changed(turn, responseParts=replaced(parts, index, longer)))


def _id(item: Obj) -> object:
    return item["toolCall"]["toolCallId"] if item["kind"] == "toolCall" else item.get("id")


def usage(state: Obj, action: Obj, _now: int) -> Obj:
    turn = active(state, action)
    return state if turn is None else changed(state, activeTurn=changed(turn, usage=action["usage"]))


def completed(state: Obj, action: Obj, now: int) -> Obj:
    return _ended(state, action, now, "complete")


def cancelled(state: Obj, action: Obj, now: int) -> Obj:
    return _ended(state, action, now, "cancelled")


def failed(state: Obj, action: Obj, now: int) -> Obj:
    return _ended(state, action, now, "error", error=action["error"])


def _ended(state: Obj, action: Obj, now: int, how: str, **members: object) -> Obj:
    turn = active(state, action)
    if turn is None:
        return state
    past = {
        "id": turn["id"],
        "userMessage": turn["userMessage"],
        "responseParts": [_closed(item) for item in turn["responseParts"]],
        **picked(turn, "usage"),
        "state": how,
        **members,
    }
    over = changed(state, turns=[*state["turns"], past], activeTurn=None, inputRequests=None)
    return recomputed(over, failed=how == "error", touched=now)


def _closed(item: Obj) -> Obj:
    """A part of a turn that has ended: a call that is still open will never run."""
    if item["kind"] != "toolCall" or item["toolCall"]["status"] in ("completed", "cancelled"):
        return item
    call = item["toolCall"]
    # A call whose arguments were still streaming may have no invocation message and no complete input.
    shown = {"invocationMessage": "", **picked(call, "invocationMessage")}
    if call["status"] != "streaming":
        shown |= picked(call, "toolInput")
    return {"kind": "toolCall", "toolCall": {**picked(call, *BASE), **shown, "status": "cancelled", "reason": "skipped"}}


def truncated(state: Obj, action: Obj, now: int) -> Obj:
    last = action.get("turnId")
    kept: list[Obj] = []
    if last is not None:
        index = found(state["turns"], lambda turn: turn["id"] == last)
        if index is None:
            return state
        kept = state["turns"][: index + 1]
    return recomputed(changed(state, turns=kept, activeTurn=None, inputRequests=None), touched=now)
