"""Dispatched actions of terminals, as calls of the core: those of 0.1, but for claims, which name sessions in other ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.dispatch.terminal_effects import TERMINAL_EFFECTS as OF_0_1
from sessions_app.ahp.versions.v0_1.dispatch.types import Refusal, ValidTerminalAction
from sessions_app.ahp.versions.v0_9 import claims
from sessions_app.core.base.errors import SessionNotFound
from sessions_app.core.terminals import changing


def _claimed(valid: ValidTerminalAction) -> None:
    try:
        wanted = claims.read(valid.caller, valid.action["claim"])
    except SessionNotFound:
        raise Refusal("there is no session with the URI in the claim") from None
    except claims.BadClaim as fault:
        raise Refusal(str(fault)) from None
    changing.claim(valid.caller, valid.terminal, wanted, valid.dispatched.client, dispatched=valid.dispatched)


TERMINAL_EFFECTS: Mapping[str, Callable[[ValidTerminalAction], None]] = {**OF_0_1, "terminal/claimed": _claimed}
