"""The commands of AHP 0.1 that this host serves; each parses its params and makes one core call.

``handshake`` initialize, reconnect, ping · ``resources`` subscribe · ``sessions`` create, dispose, list, history ·
``configuration`` settings, completions, tokens · ``files`` resources in workspaces · ``terminals`` create, dispose.
"""

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.version import Command
from sessions_app.ahp.versions.v0_1.commands import configuration, files, handshake, resources, sessions, terminals
from sessions_app.ahp.versions.v0_1.wire.commands import COMMANDS as WIRE
from sessions_app.core.base.shapes import Shape


def _params(method: str) -> Shape[Any]:
    return WIRE[method].params


COMMANDS: Mapping[str, Command] = {
    "initialize": Command(_params("initialize"), handshake.initialize, with_states=True, is_handshake=True),
    "reconnect": Command(_params("reconnect"), handshake.reconnect, with_states=True, is_handshake=True),
    "ping": Command(_params("ping"), handshake.ping, anytime=True, params_optional=WIRE["ping"].bare),
    "subscribe": Command(_params("subscribe"), resources.subscribe, with_states=True),
    "createSession": Command(_params("createSession"), sessions.create, needs_write=True),
    "disposeSession": Command(_params("disposeSession"), sessions.dispose, needs_write=True),
    "listSessions": Command(_params("listSessions"), sessions.list_sessions),
    "fetchTurns": Command(_params("fetchTurns"), sessions.fetch_turns),
    "createTerminal": Command(_params("createTerminal"), terminals.create, needs_write=True),
    "disposeTerminal": Command(_params("disposeTerminal"), terminals.dispose, needs_write=True),
    "resourceRead": Command(_params("resourceRead"), files.read),
    "resourceWrite": Command(_params("resourceWrite"), files.write, needs_write=True),
    "resourceList": Command(_params("resourceList"), files.list_entries),
    "resourceCopy": Command(_params("resourceCopy"), files.copy, needs_write=True),
    "resourceMove": Command(_params("resourceMove"), files.move, needs_write=True),
    "resourceDelete": Command(_params("resourceDelete"), files.delete, needs_write=True),
    "resourceRequest": Command(_params("resourceRequest"), files.request),
    "authenticate": Command(_params("authenticate"), configuration.authenticate),
    "resolveSessionConfig": Command(_params("resolveSessionConfig"), configuration.resolve),
    "sessionConfigCompletions": Command(_params("sessionConfigCompletions"), configuration.values),
    "completions": Command(_params("completions"), configuration.completions),
}
