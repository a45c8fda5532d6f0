"""What AHP 1.0 adds to the reducers of a chat (V513)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_9.reducers.status import is_archived, is_read
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, assigned, place, put


def _work_set(chat: Obj, action: Obj) -> Obj:
    return changed(chat, backgroundWork=put(chat.get("backgroundWork"), "id", action["work"]))


def _work_removed(chat: Obj, action: Obj) -> Obj:
    work = chat.get("backgroundWork") or []
    index = place(work, "id", action["id"])
    return chat if index is None else changed(chat, backgroundWork=work[:index] + work[index + 1 :])


def _movable(chat: Obj, action: Obj) -> Obj:
    return changed(chat, movable=action["movable"])


CHAT: Steps = {
    "chat/isReadChanged": is_read,
    "chat/isArchivedChanged": is_archived,
    "chat/backgroundWorkSet": _work_set,
    "chat/backgroundWorkRemoved": _work_removed,
    "chat/movableChanged": _movable,
    "chat/changesetsChanged": assigned("changesets"),
    "chat/canvasesChanged": assigned("canvases"),
}
