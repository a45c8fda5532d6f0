"""The commands of AHP 0.9 and 1.0 that this host serves; each parses its params and makes one core call.

``handshake`` initialize, reconnect · ``channels`` subscribe, unsubscribe · ``sessions`` create, dispose, list · ``chats`` create,
dispose, move, turns, completions · ``files`` in workspaces, and their ``watches`` · ``terminals`` create, dispose. Settings and
tokens are those of 0.1.
"""

from collections.abc import Mapping
from functools import partial

from sessions_app.ahp.version import Command
from sessions_app.ahp.versions.v0_1.commands import configuration
from sessions_app.ahp.versions.v0_1.commands.handshake import ping
from sessions_app.ahp.versions.v0_9.commands import channels, chats, files, handshake, sessions, terminals, watches
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.wire.commands import COMMANDS as WIRE_0_9
from sessions_app.ahp.versions.v1_0.wire.commands import COMMANDS as WIRE_1_0
from sessions_app.core.workspaces import places


def commands(face: Face) -> Mapping[str, Command]:
    wire = WIRE_0_9 if face.family == "0.9" else WIRE_1_0
    served = {
        "initialize": Command(wire["initialize"].params, handshake.initialize, with_states=True, is_handshake=True),
        "reconnect": Command(wire["reconnect"].params, handshake.reconnect, with_states=True, is_handshake=True),
        "ping": Command(wire["ping"].params, ping, anytime=True, params_optional=True),
        "subscribe": Command(wire["subscribe"].params, channels.subscribe, with_states=True),
        "createSession": Command(wire["createSession"].params, sessions.create, needs_write=True),
        "disposeSession": Command(wire["disposeSession"].params, sessions.dispose, needs_write=True),
        "listSessions": Command(wire["listSessions"].params, partial(sessions.list_sessions, face=face), params_optional=True),
        "createChat": Command(wire["createChat"].params, chats.create, needs_write=True),
        "disposeChat": Command(wire["disposeChat"].params, chats.dispose, needs_write=True),
        "fetchTurns": Command(wire["fetchTurns"].params, chats.fetch_turns),
        "completions": Command(wire["completions"].params, chats.completions),
        "createTerminal": Command(
            wire["createTerminal"].params, terminals.create, needs_write=True, is_served=terminals.are_served
        ),
        "disposeTerminal": Command(
            wire["disposeTerminal"].params, terminals.dispose, needs_write=True, is_served=terminals.are_served
        ),
        "authenticate": Command(wire["authenticate"].params, configuration.authenticate),
        "resolveSessionConfig": Command(wire["resolveSessionConfig"].params, configuration.resolve),
        "sessionConfigCompletions": Command(wire["sessionConfigCompletions"].params, configuration.values),
    }
    served |= {
        # Contents of sessions are read without workspaces too.
        "resourceRead": Command(wire["resourceRead"].params, files.read),
        "resourceResolve": Command(wire["resourceResolve"].params, files.resolve),
        "resourceRequest": Command(wire["resourceRequest"].params, files.request),
        "resourceList": Command(wire["resourceList"].params, files.list_entries, is_served=places.are_there),
        "createResourceWatch": Command(wire["createResourceWatch"].params, watches.create, is_served=places.are_there),
    }
    changing = {
        "resourceWrite": files.write,
        "resourceCopy": files.copy,
        "resourceMove": files.move,
        "resourceDelete": files.delete,
        "resourceMkdir": files.make_directory,
    }
    for method, answer in changing.items():
        served[method] = Command(wire[method].params, answer, needs_write=True, is_served=places.are_there)
    if face.family != "0.9":
        served["moveChat"] = Command(wire["moveChat"].params, chats.move, needs_write=True)
    return served
