"""Working directories of a session or a chat (V504, V524)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, replaced


def added(state: Obj, action: Obj) -> Obj:
    known = state.get("workingDirectories") or []
    return state if action["directory"] in known else changed(state, workingDirectories=[*known, action["directory"]])


def removed(state: Obj, action: Obj) -> Obj:
    known = state.get("workingDirectories") or []
    if action["directory"] not in known:
        return state
    return changed(state, workingDirectories=[each for each in known if each != action["directory"]])


def substituted(state: Obj, action: Obj) -> Obj:
    """``replacement`` takes the place of ``directory``; the list has it once."""
    known, new = state.get("workingDirectories") or [], action["replacement"]
    if action["directory"] not in known:
        return state
    index = known.index(action["directory"])
    if new in known[:index]:
        return changed(state, workingDirectories=known[:index] + known[index + 1 :])
    later = [each for each in known[index + 1 :] if each != new]
    return changed(state, workingDirectories=[*replaced(known, index, new)[: index + 1], *later])
