"""Which peers are proxies of the operator (AGENTHOST_PROXIES), and whom a request counts for behind them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from django.conf import settings

# Private there, but whom uvicorn's middleware believes and whom we do not limit must be the same peers.
from uvicorn.middleware.proxy_headers import _TrustedHosts

from agenthost.edge.addresses import group_of


@functools.lru_cache(maxsize=8)
def _trusted(proxies: str) -> _TrustedHosts:
    return _TrustedHosts(proxies)


def is_proxy(host: str | None) -> bool:
    """Whether the peer of a connection is a proxy, which speaks for many clients."""
    return host in _trusted(settings.AGENTHOST_PROXIES)


def client_of(scope: Mapping[str, Any]) -> str:
    """The address that a request comes from, as far as it is known; uvicorn has put in what a proxy reports."""
    client = scope.get("client")
    return group_of(client[0]) if client else ""


def is_limited(scope: Mapping[str, Any]) -> bool:
    """Whether a request counts for its address. A proxy's own address stands for clients that it does not report."""
    client = scope.get("client")
    trusted = _trusted(settings.AGENTHOST_PROXIES)
    return client is not None and (trusted.always_trust or client[0] not in trusted)
