"""Client addresses: how they are grouped, and how much one of them may use at the same time."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable

_IPV6_NETWORK = 64
_LONGEST_NAME = 64


@functools.lru_cache(maxsize=4096)
def group_of(host: str) -> str:
    """The name under which an address is counted: an IPv4 address, or the /64 network of an IPv6 address.

    One IPv6 client usually has a whole /64. A value that is no address (a proxy may report anything) counts as written.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:_LONGEST_NAME]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))


class Slots:
    """At most ``most()`` for each name at the same time. Keeps nothing about names that have none."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Take a slot; False if the name has all of its slots."""
        taken = self._taken.get(name, 0)
        if taken >= self._most():
            return False
        self._taken[name] = taken + 1
        return True

    def give_back(self, name: str) -> None:
        left = self._taken[name] - 1
        if left:
            self._taken[name] = left
        else:
            del self._taken[name]

    def __len__(self) -> int:
        """How many names have slots."""
        return len(self._taken)
