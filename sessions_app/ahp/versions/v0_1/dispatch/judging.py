"""One dispatched action, in the order of R81: is its resource here, may clients dispatch it, does it fit, is it possible.

Synchronous: whoever calls is in a thread.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agents_app import registry
from sessions_app.ahp.shapes import Misfit
from sessions_app.ahp.versions.v0_1.dispatch import reasons
from sessions_app.ahp.versions.v0_1.dispatch.echoes import echo_of
from sessions_app.ahp.versions.v0_1.dispatch.effects import EFFECTS
from sessions_app.ahp.versions.v0_1.dispatch.facts import Dispatch, Judged, Refusal
from sessions_app.ahp.versions.v0_1.projection import agents as words
from sessions_app.ahp.versions.v0_1.projection.actions import PROTOCOL
from sessions_app.ahp.versions.v0_1.wire import envelopes
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import content, database
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import DispatchedBefore, DomainError, NotReady, SessionNotFound
from sessions_app.core.records import addresses, dispatches
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.models import Session

log = logging.getLogger(__name__)


def judge(dispatch: Dispatch) -> None:
    uri = envelopes.resource(dispatch.action)
    if uri is None:
        return
    kind = dispatch.action["type"].partition("/")[0]
    if kind == "terminal" or (kind == "session" and uri == ROOT):
        return  # There is no terminal here, and the root is no session: whatever has that URI is something else.
    session: Session | None = None
    if uri != ROOT:
        try:
            session = addresses.find(dispatch.caller, uri)
        except SessionNotFound:
            return
    dispatched = _dispatched(dispatch, session)
    try:
        _take(dispatch, session, dispatched)
    except DispatchedBefore:
        return  # The echo is in what the client was replayed.
    except SessionNotFound:
        return  # It went meanwhile, and nobody hears of it any more.
    except NotReady:
        raise
    except (Refusal, DomainError) as error:
        _refuse(dispatch.caller, dispatched, str(error) if isinstance(error, Refusal) else reasons.of(error))
    except Exception as error:
        if database.is_away(error):
            raise  # Nothing can be stored now, not even a refusal.
        reference = f"err_{secrets.token_hex(6)}"
        log.exception("a dispatched action failed (%s)", reference, exc_info=error)
        _refuse(dispatch.caller, dispatched, f"the host failed; its log has more under {reference}")


def _refuse(caller: Caller, dispatched: Dispatched, reason: str) -> None:
    try:
        dispatches.refuse(caller, dispatched, reason)
    except DispatchedBefore:
        return


def _take(dispatch: Dispatch, session: Session | None, dispatched: Dispatched) -> None:
    dispatch.caller.require(WRITE)
    word = dispatch.action["type"]
    if word not in envelopes.TYPES:
        raise Refusal("there is no action of this type")
    if word not in envelopes.FROM_CLIENTS:
        raise Refusal("only the host may dispatch this")
    try:
        action = envelopes.ACTION.read(dict(dispatch.action))
    except Misfit as misfit:
        raise Refusal(misfit.describe("action")) from None
    if faults := content.unstorable(action, ("action",)):
        raise Refusal(f"{'.'.join(map(str, faults[0].path))} {faults[0].detail}")
    effect: Callable[[Judged], None] | None = EFFECTS.get(word)
    if session is None or effect is None:
        raise Refusal("this host has nothing that this action could change")
    effect(Judged(dispatch.caller, session, action, _accepted(dispatched, action)))


def _accepted(dispatched: Dispatched, action: Mapping[str, Any]) -> Dispatched:
    """What is said again if the action is taken; a refusal says it just as it came."""
    said = echo_of(action)
    if "config" in said:
        said["config"] = dispatched.said["config"]
    return replace(dispatched, said=said, came=dispatched.said)


def _dispatched(dispatch: Dispatch, session: Session | None) -> Dispatched:
    said: Mapping[str, Any] = dispatch.action
    if "config" in said:
        # What may be a secret is not said again, in no echo and in no refusal (R235).
        spec = registry.find(session.agent_name) if session is not None else None
        said = {**said, "config": words.masked(spec, said["config"])}
    return Dispatched(dispatch.client, dispatch.connection, dispatch.life, dispatch.seq, PROTOCOL, said)
