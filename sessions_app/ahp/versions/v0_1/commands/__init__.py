"""The commands of AHP 0.1 that this host serves; each parses its params and makes one core call.

``handshake`` initialize, reconnect, ping · ``resources`` subscribe · ``sessions`` create, dispose, list, history ·
``terminals`` create, dispose · ``configuration`` settings, completions, tokens. Files are not served: MethodNotFound.
"""

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.version import Command
from sessions_app.ahp.versions.v0_1.commands import configuration, handshake, resources, sessions, terminals
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
    "authenticate": Command(_params("authenticate"), configuration.authenticate),
    "resolveSessionConfig": Command(_params("resolveSessionConfig"), configuration.resolve),
    "sessionConfigCompletions": Command(_params("sessionConfigCompletions"), configuration.values),
    "completions": Command(_params("completions"), configuration.completions),
}
