"""The version that this project's own client uses."""

from sessions_app.ahp.versions.v0_1.client_side import CLIENT_SIDE as CURRENT

__all__ = ["CURRENT"]
