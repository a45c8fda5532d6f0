"""Turns of a chat: start, parts, end, resuming, truncation (V500-V503, V510)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, picked, replaced
from sessions_app.ahp.versions.v0_9.reducers.pending import without_queued
from sessions_app.ahp.versions.v0_9.reducers.status import recomputed
from sessions_app.ahp.versions.v0_9.reducers.steps import place, same
from sessions_app.ahp.versions.v0_9.reducers.times import later

BASE = ("toolCallId", "toolName", "displayName", "intention", "contributor", "_meta")
"""The members that a call has in all states (V161)."""

_OVER = ("completed", "cancelled")


def active(chat: Obj, action: Obj) -> Obj | None:
    """The active turn, if the action names it."""
    turn: Obj | None = chat.get("activeTurn")
    return turn if turn is not None and same(turn["id"], action["turnId"]) else None


def with_parts(chat: Obj, turn: Obj, parts: list[Obj]) -> Obj:
    return changed(chat, activeTurn=changed(turn, responseParts=parts))


def started(chat: Obj, action: Obj) -> Obj:
    turn = {"id": action["turnId"], **picked(action, "startedAt"), "message": action["message"], "responseParts": []}
    begun = changed(chat, activeTurn=turn, modifiedAt=action["startedAt"])
    queued = action.get("queuedMessageId")
    if queued is not None:
        steering = chat.get("steeringMessage")
        if steering is not None and same(steering["id"], queued):
            begun = changed(begun, steeringMessage=None)
        begun = without_queued(begun, queued)
    return recomputed(begun, unread=True)


def part(chat: Obj, action: Obj) -> Obj:
    turn = active(chat, action)
    # An error part comes with the turn's end only (V145).
    if turn is None or action["part"]["kind"] == "error":
        return chat
    return with_parts(chat, turn, [*turn["responseParts"], action["part"]])


def delta(chat: Obj, action: Obj) -> Obj:
    return _appended(chat, action, "markdown")


def reasoning(chat: Obj, action: Obj) -> Obj:
    return _appended(chat, action, "reasoning")


def _appended(chat: Obj, action: Obj, kind: str) -> Obj:
    turn = active(chat, action)
    if turn is None:
        return chat
    parts, wanted = turn["responseParts"], action["partId"]
    index = found(parts, lambda item: same(_id(item), wanted))
    # Only the first part with that id counts: calls and parts of the other kind get no text.
    if index is None or parts[index]["kind"] != kind:
        return chat
    longer = changed(parts[index], content=parts[index]["content"] + action["content"])
    return with_parts(chat, turn, replaced(parts, index, longer))


def _id(item: Obj) -> object:
    return item["toolCall"]["toolCallId"] if item["kind"] == "toolCall" else item.get("id")


def usage(chat: Obj, action: Obj) -> Obj:
    turn = active(chat, action)
    return chat if turn is None else changed(chat, activeTurn=changed(turn, usage=action["usage"]))


def completed(chat: Obj, action: Obj) -> Obj:
    return _ended(chat, action, "complete")


def cancelled(chat: Obj, action: Obj) -> Obj:
    return _ended(chat, action, "cancelled")


def failed(chat: Obj, action: Obj) -> Obj:
    return _ended(chat, action, "error", action["part"])


def _ended(chat: Obj, action: Obj, state: str, *last: Obj) -> Obj:
    turn = active(chat, action)
    if turn is None:
        return chat
    duration = max(0, action["duration"])
    past = {
        "id": turn["id"],
        **picked(turn, "startedAt"),
        "duration": duration,
        "message": turn["message"],
        "responseParts": [*(_closed(item) for item in turn["responseParts"]), *last],
        **picked(turn, "usage"),
        "state": state,
    }
    over = changed(chat, turns=[*chat["turns"], past], activeTurn=None, modifiedAt=later(turn["startedAt"], duration))
    return recomputed(over, failed=state == "error")


def _closed(item: Obj) -> Obj:
    """A part of a turn that has ended: a call that is still open will never run. An unanswered question stays (V192)."""
    if item["kind"] != "toolCall" or item["toolCall"]["status"] in _OVER:
        return item
    call = item["toolCall"]
    # A call whose arguments were still streaming may have no invocation message and no complete input.
    shown = {"invocationMessage": "", **picked(call, "invocationMessage")}
    if call["status"] != "streaming":
        shown |= picked(call, "toolInput")
    return {"kind": "toolCall", "toolCall": {**picked(call, *BASE), **shown, "status": "cancelled", "reason": "skipped"}}


def resumed(chat: Obj, action: Obj) -> Obj:
    """Only the latest turn can continue, if its last part is an error that allows it (V146)."""
    turns = chat["turns"]
    if chat.get("activeTurn") is not None or not turns or not same(turns[-1]["id"], action["turnId"]):
        return chat
    turn = turns[-1]
    last = turn["responseParts"][-1] if turn["responseParts"] else {}
    if turn["state"] != "error" or last.get("kind") != "error" or last.get("resumable") is not True:
        return chat
    again = {
        "id": turn["id"],
        "startedAt": turn.get("startedAt") or chat["modifiedAt"],
        "message": turn["message"],
        "responseParts": turn["responseParts"],
        **picked(turn, "usage"),
    }
    return recomputed(changed(chat, turns=turns[:-1], activeTurn=again), unread=True)


def truncated(chat: Obj, action: Obj) -> Obj:
    last = action.get("turnId")
    if last is None:
        return recomputed(changed(chat, turns=[], activeTurn=None, turnsNextCursor=None))
    index = place(chat["turns"], "id", last)
    if index is None:
        return chat
    return recomputed(changed(chat, turns=chat["turns"][: index + 1], activeTurn=None))


def loaded(chat: Obj, action: Obj) -> Obj:
    """Older turns, in front of those that are known."""
    older = [turn for turn in action["turns"] if place(chat["turns"], "id", turn["id"]) is None]
    return changed(chat, turns=[*older, *chat["turns"]], turnsNextCursor=action.get("turnsNextCursor"))
