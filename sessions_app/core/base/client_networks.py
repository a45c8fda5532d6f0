"""Groups of client addresses that share a rate limit. Pure."""

from __future__ import annotations

import functools
import ipaddress
import re

_IPV6_NETWORK = 64
_LONGEST_NAME = 64
_LONGEST_READ = 100
"""Longer than any address with its zone and port."""
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.%\w]+)\](?::\d{1,5})?|(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}", re.ASCII)


def group_of(host: str) -> str:
    """The group that an address is counted in: an IPv4 address, or the /64 network of an IPv6 address.

    One IPv6 client usually has a whole /64. A port that a proxy reports with the address is ignored. A value that is not an
    address (a proxy may report anything) is its own group.
    """
    return _group_of(host[:_LONGEST_READ])


@functools.lru_cache(maxsize=4096)
def _group_of(host: str) -> str:
    match = _WITH_PORT.fullmatch(host)
    try:
        address = ipaddress.ip_address((match[1] or match[2] if match else host).partition("%")[0])
    except ValueError:
        return host[:_LONGEST_NAME]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))
