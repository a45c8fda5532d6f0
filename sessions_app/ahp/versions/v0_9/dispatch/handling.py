"""Handles one dispatched action, in the order of V92: find its channel, check rights and shape, apply it.

Synchronous: called in threads, and for hot actions on the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from agents_app import registry
from sessions_app.ahp.versions.v0_1.dispatch.handling import answer
from sessions_app.ahp.versions.v0_1.dispatch.types import Dispatch, Refusal, ValidAction, ValidTerminalAction
from sessions_app.ahp.versions.v0_1.projection import agent_settings
from sessions_app.ahp.versions.v0_9 import addresses
from sessions_app.ahp.versions.v0_9.addresses import Found
from sessions_app.ahp.versions.v0_9.dispatch.echoes import echo_of
from sessions_app.ahp.versions.v0_9.dispatch.effects import EFFECTS
from sessions_app.ahp.versions.v0_9.dispatch.terminal_effects import TERMINAL_EFFECTS
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.messages import BadMessage
from sessions_app.ahp.versions.v0_9.projection.actions import PROTOCOL
from sessions_app.ahp.versions.v0_9.wire import envelopes as envelopes_0_9
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.ahp.versions.v1_0.wire import envelopes as envelopes_1_0
from sessions_app.core.base import content, database
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import InvalidInput, SessionNotFound
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.terminals import access as terminals
from sessions_app.models import Terminal


def handle(dispatch: Dispatch, channel: str, face: Face, *, is_watch: bool = False) -> None:
    """``is_watch``: the channel is a watch of this connection."""
    found: Found | Terminal | None = None
    if channel != ROOT and not is_watch:
        found = addresses.find(dispatch.caller, channel) or _terminal(dispatch.caller, channel)
        if found is None:
            database.before_error_answer(SessionNotFound())
            return
    dispatched = _dispatched(dispatch, channel, found)
    try:
        _apply(dispatch, found, dispatched, face, is_watch=is_watch)
    except Exception as error:
        database.before_error_answer(error)
        refused = Refusal(str(error)) if isinstance(error, BadMessage) else error
        answer(dispatch.caller, dispatched, refused)


def _terminal(caller: Caller, uri: str) -> Terminal | None:
    """Also one of which only the end of its output is kept: its channel exists."""
    return terminals.find_all(caller, [uri]).get(uri) or terminals.find_kept(caller, [uri]).get(uri)


def _apply(dispatch: Dispatch, found: Found | Terminal | None, dispatched: Dispatched, face: Face, *, is_watch: bool) -> None:
    dispatch.caller.require(WRITE)
    wire: ModuleType = envelopes_0_9 if face.family == "0.9" else envelopes_1_0
    type_ = dispatch.action["type"]
    if type_ not in wire.KNOWN:
        raise Refusal("unknown type of action")
    if type_ not in wire.FROM_CLIENTS:
        raise Refusal("only the host may dispatch actions of this type")
    kind = "terminal" if isinstance(found, Terminal) else found.kind if found is not None else "watch" if is_watch else "root"
    renames_chat = bool(face.dialect) and kind == "chat" and type_ == "session/titleChanged"
    if type_.partition("/")[0] != kind and not renames_chat:
        raise Refusal(f"this channel is a {kind}, which takes no actions of this type")
    try:
        action = wire.ACTION.read(dict(dispatch.action))
    except InvalidInput as error:
        raise Refusal(error.describe("action")) from None
    # Input may have any character: it is a key that was pressed.
    checked = {name: value for name, value in action.items() if (type_, name) != ("terminal/input", "data")}
    if faults := content.unstorable(checked, ("action",)):
        raise Refusal(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    if isinstance(found, Terminal):
        if found.disposed_at is not None:
            raise Refusal("this terminal is gone; only the end of its output is kept")
        TERMINAL_EFFECTS[type_](ValidTerminalAction(dispatch.caller, found, action, _accepted(dispatched, action, None)))
        return
    effect = EFFECTS.get(type_)
    if found is None or effect is None:
        raise Refusal("this host has no settings of its own" if found is None else "this host does not support this")
    session = found.canonical(by_provider=face.by_provider) if renames_chat else None
    effect(ValidAction(dispatch.caller, found.session, action, _accepted(dispatched, action, session), dispatch.files))


def _accepted(dispatched: Dispatched, action: Mapping[str, Any], session: str | None) -> Dispatched:
    """With the echo for an action that is applied; a rejection contains the action as received.

    ``session``: the channel of the echo, if it is another one.
    """
    echo = echo_of(action)
    if "config" in echo:
        echo["config"] = dispatched.action["config"]
    return replace(dispatched, action=echo, original=dispatched.action, echo_channel=session)


def _dispatched(dispatch: Dispatch, channel: str, found: Found | Terminal | None) -> Dispatched:
    action: Mapping[str, Any] = dispatch.action
    if channel == ROOT and "config" in action:
        # Editors send their own settings at each connect: nothing of them is stored, not even in the rejection.
        action = {**action, "config": {}}
    elif "config" in action:
        # Neither echoes nor rejections contain values that may be secret.
        spec = registry.find(found.session.agent_name) if isinstance(found, Found) else None
        action = {**action, "config": agent_settings.masked(spec, action["config"])}
    return Dispatched(dispatch.client, dispatch.connection, dispatch.life, dispatch.seq, PROTOCOL, action, channel=channel)
