"""Dispatched actions of terminals, as calls of the core (R85, R90, R303-R310)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions_app.ahp.versions.v0_1.dispatch.types import ValidTerminalAction
from sessions_app.ahp.versions.v0_1.projection.terminals import claim_from
from sessions_app.core.terminals import changing


def _input(valid: ValidTerminalAction) -> None:
    changing.type_into(valid.caller, valid.terminal, valid.action["data"], dispatched=valid.dispatched)


def _resized(valid: ValidTerminalAction) -> None:
    action = valid.action
    changing.resize(valid.caller, valid.terminal, action["cols"], action["rows"], dispatched=valid.dispatched)


def _claimed(valid: ValidTerminalAction) -> None:
    wanted = claim_from(valid.action["claim"])
    changing.claim(valid.caller, valid.terminal, wanted, valid.dispatched.client, dispatched=valid.dispatched)


def _title(valid: ValidTerminalAction) -> None:
    changing.rename(valid.caller, valid.terminal, valid.action["title"], dispatched=valid.dispatched)


def _cleared(valid: ValidTerminalAction) -> None:
    changing.clear(valid.caller, valid.terminal, dispatched=valid.dispatched)


TERMINAL_EFFECTS: Mapping[str, Callable[[ValidTerminalAction], None]] = {
    "terminal/input": _input,
    "terminal/resized": _resized,
    "terminal/claimed": _claimed,
    "terminal/titleChanged": _title,
    "terminal/cleared": _cleared,
}
