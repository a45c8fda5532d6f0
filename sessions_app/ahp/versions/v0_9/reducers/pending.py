"""Pending messages of a chat: the steering message and the queue (V512)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_9.reducers.steps import put, same


def message_set(chat: Obj, action: Obj) -> Obj:
    message = {"id": action["id"], "message": action["message"]}
    if action["kind"] == "steering":
        return changed(chat, steeringMessage=message)
    if action["kind"] != "queued":
        return chat
    return changed(chat, queuedMessages=put(chat.get("queuedMessages"), "id", message))


def message_removed(chat: Obj, action: Obj) -> Obj:
    if action["kind"] == "queued":
        return without_queued(chat, action["id"])
    steering = chat.get("steeringMessage")
    if action["kind"] != "steering" or steering is None or not same(steering["id"], action["id"]):
        return chat
    return changed(chat, steeringMessage=None)


def without_queued(chat: Obj, message_id: object) -> Obj:
    queue = chat.get("queuedMessages") or []
    rest = [item for item in queue if not same(item["id"], message_id)]
    return chat if len(rest) == len(queue) else changed(chat, queuedMessages=rest or None)


def reordered(chat: Obj, action: Obj) -> Obj:
    queue = chat.get("queuedMessages")
    if queue is None:
        return chat
    rank = {message_id: index for index, message_id in enumerate(dict.fromkeys(action["order"]))}
    # Sorting keeps the old order of messages that are not named.
    return changed(chat, queuedMessages=sorted(queue, key=lambda item: rank.get(item["id"], len(rank))))
