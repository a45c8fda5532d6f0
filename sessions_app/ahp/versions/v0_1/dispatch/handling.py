"""Handles one dispatched action, in the order of R81: find its resource, check rights and shape, apply it.

Synchronous: called in threads, and for hot actions on the loop.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agents_app import registry
from sessions_app.ahp.versions.v0_1.dispatch import reasons
from sessions_app.ahp.versions.v0_1.dispatch.echoes import echo_of
from sessions_app.ahp.versions.v0_1.dispatch.effects import EFFECTS
from sessions_app.ahp.versions.v0_1.dispatch.terminal_effects import TERMINAL_EFFECTS
from sessions_app.ahp.versions.v0_1.dispatch.types import Dispatch, Refusal, ValidAction, ValidTerminalAction
from sessions_app.ahp.versions.v0_1.projection import agent_settings
from sessions_app.ahp.versions.v0_1.projection.actions import PROTOCOL
from sessions_app.ahp.versions.v0_1.wire import envelopes
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import content, database
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import (
    DispatchedBefore,
    DomainError,
    InvalidInput,
    NotReady,
    SessionNotFound,
    TerminalNotFound,
)
from sessions_app.core.records import addresses, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.core.terminals import access as terminals
from sessions_app.models import Session, Terminal

log = logging.getLogger(__name__)


def handle(dispatch: Dispatch) -> None:
    uri = envelopes.resource(dispatch.action)
    if uri is None:
        return
    resource: Session | Terminal | None = None
    try:
        resource = _find(dispatch, uri)
    except (SessionNotFound, TerminalNotFound) as error:
        database.before_error_answer(error)
        return
    dispatched = _dispatched(dispatch, resource)
    try:
        _apply(dispatch, resource, dispatched)
    except Exception as error:
        database.before_error_answer(error)
        answer(dispatch.caller, dispatched, error)


def _find(dispatch: Dispatch, uri: str) -> Session | Terminal | None:
    """What the action is about; None: the root. An action of a session never finds a terminal, nor the reverse."""
    kind = dispatch.action["type"].partition("/")[0]
    if kind == "terminal" or (kind not in ("session", "root") and "session" not in dispatch.action and uri != ROOT):
        return terminals.find(dispatch.caller, uri)
    if uri != ROOT:
        return addresses.find(dispatch.caller, uri)
    if kind == "session":
        raise SessionNotFound
    return None


def answer(caller: Caller, dispatched: Dispatched, error: Exception) -> None:
    """Refuse an action because of this error, unless there is nobody to tell. Raises what cannot be stored as a refusal."""
    match error:
        case DispatchedBefore():
            return  # Sent again after a reconnect; the replay contained the echo.
        case SessionNotFound() | TerminalNotFound():
            return  # Deleted meanwhile: there are no subscribers to answer.
        case Refusal():
            _refuse(caller, dispatched, str(error))
        case DomainError() if not isinstance(error, NotReady):
            _refuse(caller, dispatched, reasons.of(error))
        case _ if database.is_away(error):
            raise error  # Not even a rejection can be stored now.
        case _:
            reference = f"err_{secrets.token_hex(6)}"
            log.error("dispatch_failed reference=%s", reference, exc_info=error)
            _refuse(caller, dispatched, f"the host failed; reference for its log: {reference}")


def _refuse(caller: Caller, dispatched: Dispatched, reason: str) -> None:
    try:
        dispatches.refuse(caller, dispatched, reason)
    except DispatchedBefore:
        return


def _apply(dispatch: Dispatch, resource: Session | Terminal | None, dispatched: Dispatched) -> None:
    dispatch.caller.require(WRITE)
    type_ = dispatch.action["type"]
    if type_ not in envelopes.TYPES:
        raise Refusal("unknown type of action")
    if type_ not in envelopes.FROM_CLIENTS:
        raise Refusal("only the host may dispatch actions of this type")
    try:
        action = envelopes.ACTION.read(dict(dispatch.action))
    except InvalidInput as error:
        raise Refusal(error.describe("action")) from None
    # Input may have any character: it is a key that was pressed.
    checked = {name: value for name, value in action.items() if (type_, name) != ("terminal/input", "data")}
    if faults := content.unstorable(checked, ("action",)):
        raise Refusal(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    if isinstance(resource, Terminal):
        # Every type of terminals that clients may dispatch is there.
        TERMINAL_EFFECTS[type_](ValidTerminalAction(dispatch.caller, resource, action, _accepted(dispatched, action)))
        return
    effect: Callable[[ValidAction], None] | None = EFFECTS.get(type_)
    if resource is None or effect is None:
        raise Refusal("this host does not support actions of this type")
    effect(ValidAction(dispatch.caller, resource, action, _accepted(dispatched, action), dispatch.files))


def _accepted(dispatched: Dispatched, action: Mapping[str, Any]) -> Dispatched:
    """With the echo for an action that is applied; a rejection contains the action as received."""
    echo = echo_of(action)
    if "config" in echo:
        echo["config"] = dispatched.action["config"]
    return replace(dispatched, action=echo, original=dispatched.action)


def _dispatched(dispatch: Dispatch, resource: Session | Terminal | None) -> Dispatched:
    action: Mapping[str, Any] = dispatch.action
    if "config" in action:
        # Neither echoes nor rejections contain values that may be secret (R235).
        spec = registry.find(resource.agent_name) if isinstance(resource, Session) else None
        action = {**action, "config": agent_settings.masked(spec, action["config"])}
    return Dispatched(dispatch.client, dispatch.connection, dispatch.life, dispatch.seq, PROTOCOL, action)
