"""Active clients and their plugins as the core's values (V252, V254)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.ahp.versions.v0_1.projection import values
from sessions_app.core.records import clients


def entry_of(client: Mapping[str, Any] | None) -> clients.Entry | None:
    """An active client. Of a plugin the core keeps its URI, its name and the client's own id."""
    if client is None:
        return None
    plugins = client.get("customizations")
    kept = None
    if plugins is not None:
        kept = [{"uri": each["uri"], "displayName": each["name"], "id": each["id"]} for each in plugins]
    return clients.Entry(
        client["clientId"], client.get("displayName"), [values.tool_from(tool) for tool in client["tools"]], kept
    )
