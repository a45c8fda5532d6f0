"""The reducers of a changeset's state. This host has no changesets; clients of others do."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, replaced
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, place, put


def _status(changeset: Obj, action: Obj) -> Obj:
    return changed(changeset, status=action["status"], error=action.get("error"))


def _file_set(changeset: Obj, action: Obj) -> Obj:
    return changed(changeset, files=put(changeset["files"], "id", action["file"]))


def _file_removed(changeset: Obj, action: Obj) -> Obj:
    files = changeset["files"]
    index = place(files, "id", action["fileId"])
    return changeset if index is None else changed(changeset, files=files[:index] + files[index + 1 :])


def _reviewed(changeset: Obj, action: Obj) -> Obj:
    files = changeset["files"]
    indexes = {place(files, "id", each) for each in action["files"]} - {None}
    if not indexes:
        return changeset
    marked = [changed(file, reviewed=action["reviewed"]) if index in indexes else file for index, file in enumerate(files)]
    return changed(changeset, files=marked)


def _content(changeset: Obj, action: Obj) -> Obj:
    return changed(changeset, files=action["files"], operations=action.get("operations"))


def _operations(changeset: Obj, action: Obj) -> Obj:
    return changed(changeset, operations=action.get("operations"))


def _operation_status(changeset: Obj, action: Obj) -> Obj:
    operations = changeset.get("operations") or []
    index = place(operations, "id", action["operationId"])
    if index is None:
        return changeset
    after = changed(operations[index], status=action["status"], error=action.get("error"))
    return changed(changeset, operations=replaced(operations, index, after))


def _cleared(changeset: Obj, _action: Obj) -> Obj:
    return changed(changeset, files=[])


CHANGESET: Steps = {
    "changeset/statusChanged": _status,
    "changeset/fileSet": _file_set,
    "changeset/fileRemoved": _file_removed,
    "changeset/filesReviewChanged": _reviewed,
    "changeset/contentChanged": _content,
    "changeset/operationsChanged": _operations,
    "changeset/operationStatusChanged": _operation_status,
    "changeset/cleared": _cleared,
}
