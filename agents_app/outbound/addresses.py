"""Classifies network addresses as public or not.

The table is written out from the registries of special-purpose addresses, because ``ipaddress.is_global`` differs between
releases of Python. For IPv6 only global unicast counts, without the ranges that have a special purpose.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NEVER: tuple[Network, ...] = (
    # "This host": Linux treats all of it as local.
    IPv4Network("0.0.0.0/8"),
    IPv4Network("224.0.0.0/4"),
    IPv4Network("255.255.255.255/32"),
    IPv6Network("::/128"),
    IPv6Network("ff00::/8"),
    # Metadata services of clouds, which return credentials: EC2, GCP, Azure (also its agent), Oracle, containers, Alibaba.
    IPv4Network("169.254.169.254/32"),
    IPv4Network("169.254.170.2/32"),
    IPv4Network("169.254.170.23/32"),
    IPv4Network("168.63.129.16/32"),
    IPv4Network("192.0.0.192/32"),
    IPv4Network("100.100.100.200/32"),
    IPv6Network("fd00:ec2::/32"),
    IPv6Network("fd20:ce::254/128"),
    IPv6Network("fe80::a9fe:a9fe/128"),
)

_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
    )
)
_UNICAST_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    IPv6Network(text)
    for text in (
        # Protocol assignments: Teredo, benchmarking, ORCHID and others.
        "2001::/23",
        "2001:db8::/32",
        # 6to4: contains an IPv4 address, reached through an unknown relay.
        "2002::/16",
        "2620:4f:8000::/48",
        "3ffe::/16",
        "3fff::/20",
    )
)
_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
# Interface ids that contain an IPv4 address (ISATAP), with and without the bit for "globally unique".
_ISATAP = (0x00005EFE, 0x02005EFE)


def forms(address: Address) -> tuple[Address, ...]:
    """The address, and the IPv4 address that it contains if the network translates it."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64):
        return address, IPv4Address(int(address) & 0xFFFFFFFF)
    return (address,)


def is_never(address: Address) -> bool:
    """Whether it is never allowed, whatever the operator lists: metadata services, multicast, "this host"."""
    return any(form in network for form in forms(address) for network in _NEVER)


def is_public(address: Address) -> bool:
    """Whether it is an address of the public internet."""
    if is_never(address):
        return False
    meant = forms(address)[-1]
    if isinstance(meant, IPv4Address):
        return not any(meant in network for network in _SPECIAL_V4)
    if meant.scope_id is not None or meant not in _UNICAST_V6 or any(meant in network for network in _SPECIAL_V6):
        return False
    return (int(meant) >> 32) & 0xFFFFFFFF not in _ISATAP
