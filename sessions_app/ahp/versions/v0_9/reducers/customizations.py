"""Customizations of a session, among them its MCP servers (V526, V527). A top-level entry may have children."""

from __future__ import annotations

from collections.abc import Callable

from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed, replaced
from sessions_app.ahp.versions.v0_9.reducers.steps import place, put

_WITH_DECISIONS = ("plugin", "mcpServer")
"""The types that keep the list of decisions; others keep its result."""


def _edited(session: Obj, entry_id: object, edit: Callable[[Obj], Obj | None]) -> Obj:
    """The session with the first entry of this id changed, top level before children; ``edit`` returns None for "no match"."""
    entries = session.get("customizations") or []
    index = place(entries, "id", entry_id)
    if index is not None:
        after = edit(entries[index])
        return session if after is None else changed(session, customizations=replaced(entries, index, after))
    for parent_index, parent in enumerate(entries):
        children = parent.get("children") or []
        index = place(children, "id", entry_id)
        if index is None:
            continue
        after = edit(children[index])
        if after is None:
            return session
        parent_after = changed(parent, children=replaced(children, index, after))
        return changed(session, customizations=replaced(entries, parent_index, parent_after))
    return session


def toggled(session: Obj, action: Obj) -> Obj:
    decisions = action["enablement"]

    def edit(entry: Obj) -> Obj:
        if entry["type"] in _WITH_DECISIONS:
            return changed(entry, enablement=decisions or None)
        return changed(entry, enabled=decisions[0]["enabled"] if decisions else True)

    return _edited(session, action["id"], edit)


def updated(session: Obj, action: Obj) -> Obj:
    return changed(session, customizations=put(session.get("customizations"), "id", action["customization"]))


def removed(session: Obj, action: Obj) -> Obj:
    entries = session.get("customizations") or []
    index = place(entries, "id", action["id"])
    if index is not None:
        return changed(session, customizations=entries[:index] + entries[index + 1 :])
    for parent_index, parent in enumerate(entries):
        children = parent.get("children") or []
        index = place(children, "id", action["id"])
        if index is not None:
            rest = changed(parent, children=children[:index] + children[index + 1 :])
            return changed(session, customizations=replaced(entries, parent_index, rest))
    return session


def _server(session: Obj, server_id: object, edit: Callable[[Obj], Obj | None]) -> Obj:
    return _edited(session, server_id, lambda entry: edit(entry) if entry["type"] == "mcpServer" else None)


def server_state_changed(session: Obj, action: Obj) -> Obj:
    return _server(session, action["id"], lambda server: changed(server, state=action["state"], channel=action.get("channel")))


def server_start_requested(session: Obj, action: Obj) -> Obj:
    return _server(session, action["id"], lambda server: changed(server, state={"kind": "starting"}, channel=None))


def server_stop_requested(session: Obj, action: Obj) -> Obj:
    return _server(session, action["id"], lambda server: changed(server, state={"kind": "stopped"}, channel=None))


def server_background_requested(session: Obj, action: Obj) -> Obj:
    def edit(server: Obj) -> Obj | None:
        state = server["state"]
        if state["kind"] != "starting" or state.get("blocking") is not True:
            return None
        return changed(server, state=changed(state, blocking=False))

    return _server(session, action["id"], edit)
