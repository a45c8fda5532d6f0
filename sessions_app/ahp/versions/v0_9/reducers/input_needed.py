"""The session's list of what waits for a person or a client (V525)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_9.reducers.status import of_attention
from sessions_app.ahp.versions.v0_9.reducers.steps import place, put


def added(session: Obj, action: Obj) -> Obj:
    return of_attention(changed(session, inputNeeded=put(session.get("inputNeeded"), "id", action["request"])))


def removed(session: Obj, action: Obj) -> Obj:
    entries = session.get("inputNeeded") or []
    index = place(entries, "id", action["id"])
    if index is None:
        return session
    return of_attention(changed(session, inputNeeded=entries[:index] + entries[index + 1 :] or None))
