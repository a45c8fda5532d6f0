"""Pending messages: the steering message and the queue (R439, R440)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, replaced


def message_set(state: Obj, action: Obj, _now: int) -> Obj:
    message = {"id": action["id"], "userMessage": action["userMessage"]}
    if action["kind"] == "steering":
        return changed(state, steeringMessage=message)
    if action["kind"] != "queued":
        return state
    queue = state.get("queuedMessages") or []
    index = found(queue, lambda item: item["id"] == message["id"])
    return changed(state, queuedMessages=[*queue, message] if index is None else replaced(queue, index, message))


def message_removed(state: Obj, action: Obj, _now: int) -> Obj:
    if action["kind"] == "queued":
        return without_queued(state, action["id"])
    steering = state.get("steeringMessage")
    if action["kind"] != "steering" or steering is None or steering["id"] != action["id"]:
        return state
    return changed(state, steeringMessage=None)


def without_queued(state: Obj, message_id: str) -> Obj:
    queue = state.get("queuedMessages") or []
    rest = [item for item in queue if item["id"] != message_id]
    return state if len(rest) == len(queue) else changed(state, queuedMessages=rest or None)


def reordered(state: Obj, action: Obj, _now: int) -> Obj:
    queue = state.get("queuedMessages")
    if queue is None:
        return state
    rank = {message_id: place for place, message_id in enumerate(dict.fromkeys(action["order"]))}
    # Sorting keeps the old order of messages that are not named.
    return changed(state, queuedMessages=sorted(queue, key=lambda item: rank.get(item["id"], len(rank))))
