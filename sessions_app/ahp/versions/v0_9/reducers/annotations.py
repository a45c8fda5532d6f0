"""The reducers of a session's annotations. This host has none; clients of others do."""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, picked, replaced
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, place, put


def _edited(state: Obj, action: Obj, edit: Callable[[Obj], Obj]) -> Obj:
    known = state["annotations"]
    index = place(known, "id", action["annotationId"])
    return state if index is None else changed(state, annotations=replaced(known, index, edit(known[index])))


def _set(state: Obj, action: Obj) -> Obj:
    return changed(state, annotations=put(state["annotations"], "id", action["annotation"]))


def _updated(state: Obj, action: Obj) -> Obj:
    news = picked(action, "turnId", "resource", "range", "resolved")
    return _edited(state, action, lambda annotation: {**annotation, **news})


def _removed(state: Obj, action: Obj) -> Obj:
    known = state["annotations"]
    index = place(known, "id", action["annotationId"])
    return state if index is None else changed(state, annotations=known[:index] + known[index + 1 :])


def _entry_set(state: Obj, action: Obj) -> Obj:
    return _edited(state, action, lambda each: changed(each, entries=put(each["entries"], "id", action["entry"])))


def _entry_removed(state: Obj, action: Obj) -> Obj:
    def edit(annotation: Obj) -> Obj:
        entries = annotation["entries"]
        index = place(entries, "id", action["entryId"])
        return annotation if index is None else changed(annotation, entries=entries[:index] + entries[index + 1 :])

    return _edited(state, action, edit)


ANNOTATIONS: Steps = {
    "annotations/set": _set,
    "annotations/updated": _updated,
    "annotations/removed": _removed,
    "annotations/entrySet": _entry_set,
    "annotations/entryRemoved": _entry_removed,
}
