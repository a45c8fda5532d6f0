"""What a client has to know of a version of AHP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ClientVersion:
    """``offers``: the versions for the handshake. ``root``: the root's URI. ``channel_of``: the URI of the state that an envelope
    changes. ``reduce``: a state, an action and the time in Unix milliseconds give the next state.

    ``has_channels``: requests, notifications and dispatched actions name their channel beside their other params (0.9, 1.0); in
    0.1 an action contains the URI of what it changes.
    """

    offers: tuple[str, ...]
    root: str
    channel_of: Callable[[Mapping[str, Any]], str | None]
    reduce: Callable[[Any, Mapping[str, object], int], Any]
    has_channels: bool = False

    @property
    def of_root(self) -> dict[str, Any]:
        """Params of every request about the root."""
        return {"channel": self.root} if self.has_channels else {}

    def of(self, uri: str) -> dict[str, Any]:
        """Params of a request about a channel."""
        return {"channel" if self.has_channels else "resource": uri}
