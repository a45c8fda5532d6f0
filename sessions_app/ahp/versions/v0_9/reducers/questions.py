"""Questions to a person, which are parts of the active turn (V511)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, replaced
from sessions_app.ahp.versions.v0_9.reducers.status import is_unanswered, recomputed
from sessions_app.ahp.versions.v0_9.reducers.steps import same
from sessions_app.ahp.versions.v0_9.reducers.turns import with_parts


def requested(chat: Obj, action: Obj) -> Obj:
    turn, request = chat.get("activeTurn"), action["request"]
    if turn is None:
        return chat
    parts, index = turn["responseParts"], _place(turn, request["id"])
    if index is None:
        everything = [*parts, {"kind": "inputRequest", "request": request}]
    else:
        # A person may be typing: a replaced request keeps the drafts, unless it brings answers.
        answers = request.get("answers")
        kept = changed(request, answers=parts[index]["request"].get("answers") if answers is None else answers)
        everything = replaced(parts, index, {"kind": "inputRequest", "request": kept})
    return recomputed(with_parts(chat, turn, everything), unread=True)


def answer_changed(chat: Obj, action: Obj) -> Obj:
    turn = chat.get("activeTurn")
    index = None if turn is None else _place(turn, action["requestId"])
    if turn is None or index is None:
        return chat
    item = turn["responseParts"][index]
    answers = dict(item["request"].get("answers") or {})
    answers.pop(action["questionId"], None)
    if action.get("answer") is not None:
        answers[action["questionId"]] = action["answer"]
    request = changed(item["request"], answers=answers or None)
    return with_parts(chat, turn, replaced(turn["responseParts"], index, changed(item, request=request)))


def completed(chat: Obj, action: Obj) -> Obj:
    turn = chat.get("activeTurn")
    index = None if turn is None else _place(turn, action["requestId"])
    if turn is None or index is None:
        return chat
    item = turn["responseParts"][index]
    answers = {**(item["request"].get("answers") or {}), **(action.get("answers") or {})}
    request = changed(item["request"], answers=answers or None)
    answered = changed(item, request=request, response=action["response"])
    return recomputed(with_parts(chat, turn, replaced(turn["responseParts"], index, answered)))


def _place(turn: Obj, request_id: object) -> int | None:
    return found(turn["responseParts"], lambda part: is_unanswered(part) and same(part["request"]["id"], request_id))
