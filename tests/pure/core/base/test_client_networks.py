"""Client addresses as limits count them; pure."""

from __future__ import annotations

import pytest

from sessions_app.core.base.client_networks import group_of


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:50432", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:443", "fe80::/64"),
        ("999.0.2.7:1", "999.0.2.7:1"),
        ("unknown", "unknown"),
        ("[]:1", "[]:1"),
        ("x" * 5000, "x" * 64),
    ],
)
def test_one_client_has_one_name(host: str, group: str) -> None:
    assert group_of(host) == group
