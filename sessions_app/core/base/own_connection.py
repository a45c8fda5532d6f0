"""Parameters of a connection to Postgres outside Django's pool, for work that needs a session of its own."""

from __future__ import annotations

from typing import Any

from django.db import connections


def connection_parameters(*extra: str) -> dict[str, Any]:
    """Django's connection parameters for the default database, with further ``-c`` settings, without Django's adapters."""
    parameters = dict(connections["default"].get_connection_params())
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    settings = " ".join(f"-c {each}" for each in extra)
    parameters["options"] = f"{parameters.get('options', '')} {settings}".strip()
    return parameters
