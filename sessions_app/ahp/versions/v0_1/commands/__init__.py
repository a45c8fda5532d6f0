"""The commands of AHP 0.1, each a parse away from one core call. Importing this registers them.

``handshake`` initialize, reconnect, ping · ``resources`` subscribe · ``sessions`` create, dispose, list, history ·
``configuration`` settings, completions, tokens. Files and terminals are not served: MethodNotFound.
"""

from sessions_app.ahp.version import Answer, Handler, register
from sessions_app.ahp.versions.v0_1.commands import configuration, handshake, resources, sessions
from sessions_app.ahp.versions.v0_1.wire.commands import COMMANDS

VERSION = "0.1"


def _register(method: str, answer: Answer, *, holds: bool = False, opens: bool = False, changes: bool = False) -> None:
    command = COMMANDS[method]
    register(VERSION, method, Handler(command.params, answer, holds=holds, opens=opens, bare=command.bare, changes=changes))


_register("initialize", handshake.initialize, holds=True, opens=True)
_register("reconnect", handshake.reconnect, holds=True, opens=True)
_register("ping", handshake.ping)
_register("subscribe", resources.subscribe, holds=True)
_register("createSession", sessions.create, changes=True)
_register("disposeSession", sessions.dispose, changes=True)
_register("listSessions", sessions.listed)
_register("fetchTurns", sessions.fetch_turns)
_register("authenticate", configuration.authenticate)
_register("resolveSessionConfig", configuration.resolve)
_register("sessionConfigCompletions", configuration.values)
_register("completions", configuration.completions)
