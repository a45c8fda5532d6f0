"""Who asks to speak AHP: the key and the subprotocol of a WebSocket's upgrade (R3, R4).

Pure: reads what the handshake brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

SUBPROTOCOL = "ahp"
_BEARER = "bearer."
_PARAMETERS = ("token", "tkn")


def key_of(scope: Mapping[str, Any]) -> str | None:
    """The key, from the one place that a client can use: a header, a subprotocol (browsers), the query (some editors)."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if given:
        scheme, _space, key = given[0].decode("latin-1").strip().partition(" ")
        return key.strip() if len(given) == 1 and scheme.lower() == "bearer" else None
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(_BEARER):
            return str(offered[len(_BEARER) :])
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), max_num_fields=None)
    return next((value for name, value in query if name in _PARAMETERS), None)


def subprotocol_of(scope: Mapping[str, Any]) -> str | None:
    """What the host selects: never the one that carries the key."""
    return SUBPROTOCOL if SUBPROTOCOL in scope.get("subprotocols", ()) else None
