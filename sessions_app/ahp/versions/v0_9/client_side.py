"""AHP 0.9 for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.versions.v0_9.reducers import reduce
from sessions_app.ahp.versions.v0_9.wire.state import ROOT


def channel_of(envelope: Mapping[str, Any]) -> str | None:
    channel: str | None = envelope.get("channel")
    return channel


def _reduce(state: Any, action: Mapping[str, object], _now: int) -> Any:
    """Reducers of this version have no clock: times come with the actions."""
    return reduce(state, action)


CLIENT_SIDE = ClientVersion(offers=("0.9.0",), root=ROOT, channel_of=channel_of, reduce=_reduce, has_channels=True)
