"""The table of a session's reducers, and the short ones (V520, V522, V523)."""

from __future__ import annotations

from sessions_app.ahp.versions.v0_1.reducers.config import overlaid
from sessions_app.ahp.versions.v0_1.reducers.copies import Obj, changed
from sessions_app.ahp.versions.v0_9.reducers import catalogue, customizations, input_needed, working_directories
from sessions_app.ahp.versions.v0_9.reducers.status import is_archived, is_read
from sessions_app.ahp.versions.v0_9.reducers.steps import Steps, assigned, clockless, place, put


def _ready(session: Obj, _action: Obj) -> Obj:
    return changed(session, lifecycle="ready")


def _creation_failed(session: Obj, action: Obj) -> Obj:
    return changed(session, lifecycle="failed", creationError=action["error"])


def _title(session: Obj, action: Obj) -> Obj:
    return changed(session, title=action["title"])


def _client_set(session: Obj, action: Obj) -> Obj:
    return changed(session, activeClients=put(session.get("activeClients"), "clientId", action["activeClient"]))


def _client_removed(session: Obj, action: Obj) -> Obj:
    clients = session.get("activeClients") or []
    index = place(clients, "clientId", action["clientId"])
    return session if index is None else changed(session, activeClients=clients[:index] + clients[index + 1 :])


SESSION: Steps = {
    "session/ready": _ready,
    "session/creationFailed": _creation_failed,
    "session/chatAdded": catalogue.added,
    "session/chatRemoved": catalogue.removed,
    "session/chatUpdated": catalogue.updated,
    "session/defaultChatChanged": catalogue.default_changed,
    "session/titleChanged": _title,
    "session/isReadChanged": is_read,
    "session/isArchivedChanged": is_archived,
    "session/activityChanged": assigned("activity"),
    "session/changesetsChanged": assigned("changesets"),
    "session/serverToolsChanged": assigned("serverTools", "tools"),
    "session/activeClientSet": _client_set,
    "session/activeClientRemoved": _client_removed,
    "session/workingDirectorySet": working_directories.added,
    "session/workingDirectoryRemoved": working_directories.removed,
    "session/workingDirectoryReplaced": working_directories.substituted,
    "session/inputNeededSet": input_needed.added,
    "session/inputNeededRemoved": input_needed.removed,
    "session/customizationsChanged": assigned("customizations"),
    "session/customizationToggled": customizations.toggled,
    "session/customizationUpdated": customizations.updated,
    "session/customizationRemoved": customizations.removed,
    "session/mcpServerStateChanged": customizations.server_state_changed,
    "session/mcpServerStartRequested": customizations.server_start_requested,
    "session/mcpServerStopRequested": customizations.server_stop_requested,
    "session/configChanged": clockless(overlaid),
    "session/metaChanged": assigned("_meta"),
}
