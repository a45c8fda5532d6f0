"""Open input requests, with the answers so far (R436-R438)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, found, replaced
from sessions_app.ahp.versions.v0_1.reducers.status import recomputed, summarized


def requested(state: Obj, action: Obj, now: int) -> Obj:
    request, open_ = action["request"], state.get("inputRequests") or []
    index = _place(open_, request["id"])
    if index is None:
        everything = [*open_, request]
    else:
        # A user may be typing: an updated request keeps the answers.
        answers = request.get("answers")
        kept = changed(request, answers=open_[index].get("answers") if answers is None else answers)
        everything = replaced(open_, index, kept)
    return recomputed(changed(state, inputRequests=everything), unread=True, touched=now)


def answer_changed(state: Obj, action: Obj, now: int) -> Obj:
    open_ = state.get("inputRequests") or []
    index = _place(open_, action["requestId"])
    if index is None:
        return state
    answers = dict(open_[index].get("answers") or {})
    answers.pop(action["questionId"], None)
    if action.get("answer") is not None:
        answers[action["questionId"]] = action["answer"]
    request = changed(open_[index], answers=answers or None)
    return summarized(changed(state, inputRequests=replaced(open_, index, request)), now)


def completed(state: Obj, action: Obj, now: int) -> Obj:
    open_ = state.get("inputRequests") or []
    index = _place(open_, action["requestId"])
    if index is None:
        return state
    rest = open_[:index] + open_[index + 1 :]
    return recomputed(changed(state, inputRequests=rest or None), touched=now)


def _place(open_: list[Obj], request_id: str) -> int | None:
    return found(open_, lambda request: request["id"] == request_id)
