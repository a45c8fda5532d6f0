"""The chats that a session lists (V521)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, replaced
from sessions_app.ahp.versions.v0_9.reducers.steps import place, put, same


def added(session: Obj, action: Obj) -> Obj:
    return changed(session, chats=put(session["chats"], "resource", action["summary"]))


def removed(session: Obj, action: Obj) -> Obj:
    chats = session["chats"]
    index = place(chats, "resource", action["chat"])
    if index is None:
        return session
    rest = changed(session, chats=chats[:index] + chats[index + 1 :])
    return changed(rest, defaultChat=None) if same(session.get("defaultChat"), action["chat"]) else rest


def updated(session: Obj, action: Obj) -> Obj:
    chats = session["chats"]
    index = place(chats, "resource", action["chat"])
    if index is None:
        return session
    changes = {name: value for name, value in action["changes"].items() if name != "resource"}
    return changed(session, chats=replaced(chats, index, changed(chats[index], **changes)))


def default_changed(session: Obj, action: Obj) -> Obj:
    return changed(session, defaultChat=action.get("defaultChat"))


def reordered(session: Obj, action: Obj) -> Obj:
    """Only to a permutation of the chats that are listed."""
    chats, order = session["chats"], action["chats"]
    if len(order) != len(chats) or len(set(order)) != len(order):
        return session
    by_uri = {chat["resource"]: chat for chat in chats}
    return changed(session, chats=[by_uri[uri] for uri in order]) if set(order) == by_uri.keys() else session
