"""What a client has to know of a version of AHP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClientVersion:
    """``offers``: the versions for the handshake. ``root``: the root's URI. ``channel_of``: the URI of the state that an envelope
    changes. ``reduce``: a state, an action and the time in Unix milliseconds give the next state."""

    offers: tuple[str, ...]
    root: str
    channel_of: Callable[[Mapping[str, Any]], str | None]
    reduce: Callable[[Any, Mapping[str, object], int], Any]
