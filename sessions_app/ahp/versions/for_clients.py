"""The versions that this project's own client speaks. ``CURRENT``: the one that it offers by default."""

from sessions_app.ahp.versions.v0_1.client_side import CLIENT_SIDE as V0_1
from sessions_app.ahp.versions.v0_9.client_side import CLIENT_SIDE as V0_9
from sessions_app.ahp.versions.v1_0.client_side import CLIENT_SIDE as V1_0

CURRENT = V0_1
ALL = (V1_0, V0_9, V0_1)

__all__ = ["ALL", "CURRENT", "V0_1", "V0_9", "V1_0"]
