"""A dispatched action on its way: as it came, and once it is known to fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sessions_app.core.base.caller import Caller
from sessions_app.core.records.dispatches import Dispatched
from sessions_app.models import Session


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Who said what, as it came."""

    caller: Caller
    client: str
    connection: str
    life: str
    seq: Any
    action: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """An action that fits its shape, about a session that exists. ``action`` is as the host understands it."""

    caller: Caller
    session: Session
    action: Mapping[str, Any] = field(repr=False)
    dispatched: Dispatched = field(repr=False)


class Refusal(Exception):
    """The action cannot be taken; the text is for people."""
