"""Trusted proxies (AGENTHOST_PROXIES), and per-address limits on concurrent requests."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


@contextmanager
def counted(scope: Mapping[str, Any]) -> Iterator[bool]:
    """Count a request or WebSocket for its address; False if the address has reached its limit.

    A proxy's own address is not counted, because it may stand for many clients.
    """
    client = scope.get("client")
    trusted = _trusted(settings.AGENTHOST_PROXIES)
    if client is None or (client[0] in trusted and not trusted.always_trust):
        yield True
        return
    address = group_of(client[0])
    if not _in_flight.take(address):
        yield False
        return
    try:
        yield True
    finally:
        _in_flight.give_back(address)
