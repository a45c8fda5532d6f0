"""Which addresses are public: one of each kind, and the edges of each range."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from agents_app.outbound.addresses import is_never, is_public

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0",
    "93.184.216.34", "100.63.255.255", "100.128.0.0", "126.255.255.255",
    "128.0.0.0", "168.63.129.15", "169.253.255.255",
    "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
    "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0",
    "198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.114.0",
    "223.255.255.255", "2000::1", "2001:200::1",
    "2001:4860:4860::8888", "2001:db9::1", "2606:4700::1111", "2a00:1450:4001::1",
    "3ffd::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
]  # fmt: skip
NOT_PUBLIC = [
    # private, loopback, link-local, shared
    "10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255",
    "192.168.0.0", "192.168.255.255", "127.0.0.0", "127.0.0.1",
    "127.255.255.255", "169.254.0.0", "169.254.255.255", "100.64.0.0", "100.127.255.255",
    # protocol assignments, documentation, benchmarking, relays, reserved
    "192.0.0.0", "192.0.0.8", "192.0.0.255", "192.0.2.0",
    "192.0.2.255", "198.51.100.7", "203.0.113.7", "198.18.0.0",
    "198.19.255.255", "192.88.99.1", "192.31.196.1",
    "192.52.193.1", "192.175.48.1", "240.0.0.0", "255.255.255.254",
    # IPv6
    "::2", "::7f00:1", "::8.8.8.8", "100::1", "100:0:0:1::1",
    "5f00::1", "fc00::1", "fd12:3456::1", "fdff::1", "fe80::1",
    "fe80::1%lo", "febf::1", "fec0::1", "2001::1", "2001::8.8.8.8",
    "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff::1",
    "2001:db8::1", "2001:db8:ffff::1", "2002:808:808::1", "2002:7f00:1::",
    "3ffe::1", "3fff::1", "3fff:fff::1", "4000::1",
    "2620:4f:8000::1",
    # IPv4 in IPv6
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:192.168.1.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "2606:4700::1%lo",
    "64:ff9b:0:1::8.8.8.8", "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:8.8.8.8",
]  # fmt: skip
NEVER = [
    "0.0.0.0", "0.0.0.1", "0.255.255.255", "224.0.0.1",
    "239.255.255.255", "255.255.255.255", "::", "ff02::1", "ff0e::1",
    "169.254.169.254", "169.254.170.2", "169.254.170.23",
    "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254",
    "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe",
    "::ffff:169.254.169.254", "::ffff:0.0.0.0", "64:ff9b::169.254.169.254",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))
    assert not is_never(ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_addresses_with_a_meaning_of_their_own_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))
    assert not is_never(ip_address(text))


@pytest.mark.parametrize("text", NEVER)
def test_some_addresses_no_operator_can_open(text: str) -> None:
    assert not is_public(ip_address(text))
    assert is_never(ip_address(text))
