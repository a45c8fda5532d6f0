"""Trusted proxies (AGENTHOST_PROXIES), and per-address limits on concurrent requests."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from django.conf import settings

# Private in uvicorn. Used so that both treat the same peers as trusted proxies.
from uvicorn.middleware.proxy_headers import _TrustedHosts

from agenthost.edge.addresses import Slots
from sessions_app.core.base.client_networks import group_of

_in_flight = Slots(lambda: int(settings.AGENTHOST_CONNECTIONS_PER_ADDRESS))


@functools.lru_cache(maxsize=8)
def _trusted(proxies: str) -> _TrustedHosts:
    return _TrustedHosts(proxies)


def is_proxy(host: str | None) -> bool:
    """Whether the peer of a connection is a trusted proxy, which forwards requests of many clients."""
    return host in _trusted(settings.AGENTHOST_PROXIES)


def client_of(scope: Mapping[str, Any]) -> str:
    """The client's address, as reported by a trusted proxy; uvicorn has written it into the scope."""
    client = scope.get("client")
    return group_of(client[0]) if client else ""


class counted:  # noqa: N801 - used as a function: a class takes less memory than a generator
    """Count a request or WebSocket for its address; False if the address has reached its limit.

    A proxy's own address is not counted, because it may stand for many clients.
    """

    __slots__ = ("_address", "_client")

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._client = scope.get("client")
        self._address: str | None = None

    def __enter__(self) -> bool:
        trusted = _trusted(settings.AGENTHOST_PROXIES)
        if self._client is None or (self._client[0] in trusted and not trusted.always_trust):
            return True
        address = group_of(self._client[0])
        if not _in_flight.take(address):
            return False
        self._address = address
        return True

    def __exit__(self, *_error: object) -> None:
        if self._address is not None:
            _in_flight.give_back(self._address)
