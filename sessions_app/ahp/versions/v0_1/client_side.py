"""AHP 0.1 for clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.versions.v0_1.negotiation import CURRENT
from sessions_app.ahp.versions.v0_1.reducers import reduce
from sessions_app.ahp.versions.v0_1.wire.envelopes import resource
from sessions_app.ahp.versions.v0_1.wire.state import ROOT


def _channel_of(envelope: Mapping[str, Any]) -> str | None:
    return resource(envelope["action"])


CLIENT_SIDE = ClientVersion(offers=(CURRENT,), root=ROOT, channel_of=_channel_of, reduce=reduce)
