"""A dispatched action: as received, and after validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessions_app.core.base.caller import Caller
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.models import Session, Terminal


@dataclass(frozen=True, slots=True)
class Dispatch:
    """An action as received, with its sender. ``seq``: the client's number. ``files``: attached ones that were read, by URI."""

    caller: Caller
    client: str
    connection: str
    life: str
    seq: Any
    action: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ValidAction:
    """A valid action for a session that exists. ``action``: as read by its shape. ``dispatched``: for the core's events."""

    caller: Caller
    session: Session
    action: Mapping[str, Any] = field(repr=False)
    dispatched: Dispatched = field(repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ValidTerminalAction:
    """The same for a terminal that exists."""

    caller: Caller
    terminal: Terminal
    action: Mapping[str, Any] = field(repr=False)
    dispatched: Dispatched = field(repr=False)


class Refusal(Exception):
    """The action is rejected; the text is the reason, for people."""
