"""The key and the subprotocol of a WebSocket upgrade (R3, R4). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

SUBPROTOCOL = "ahp"
_BEARER = "bearer."
_PARAMETERS = ("token", "tkn")


def key_of(scope: Mapping[str, Any]) -> str | None:
    """The key: from the header, or a subprotocol (browsers), or the query (some editors).

    None if there is none, or if several are not the same.
    """
    keys: set[str] = set()
    for value in (value for name, value in scope["headers"] if name == b"authorization"):
        scheme, _space, key = value.decode("latin-1").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip() or keys:
            return None
        keys.add(key.strip())
    keys |= {str(offered[len(_BEARER) :]) for offered in scope.get("subprotocols", ()) if offered.startswith(_BEARER)}
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=None)
    keys |= {value for name, value in query if name in _PARAMETERS}
    return keys.pop() if len(keys) == 1 else None


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Of repeated headers the last one."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def subprotocol_of(scope: Mapping[str, Any]) -> str | None:
    """The subprotocol that the host selects: never the one that contains the key."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
