"""AHP 1.0 for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.versions.v0_9.client_side import channel_of
from sessions_app.ahp.versions.v0_9.wire.state import ROOT
from sessions_app.ahp.versions.v1_0.reducers import reduce


def _reduce(state: Any, action: Mapping[str, object], _now: int) -> Any:
    return reduce(state, action)


CLIENT_SIDE = ClientVersion(offers=("1.0.0",), root=ROOT, channel_of=channel_of, reduce=_reduce, has_channels=True)
