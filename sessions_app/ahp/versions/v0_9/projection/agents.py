"""Agents in AHP 0.9 and 1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.projection import agent_settings


def agent_info(card: Mapping[str, Any]) -> dict[str, Any]:
    """``protectedResources``: some editors take an agent without the member for one that needs their own account."""
    return {**agent_settings.agent_info(card), "protectedResources": []}
