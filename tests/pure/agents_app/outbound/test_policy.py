"""What the operator's list opens, and what it cannot."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from agents_app.outbound.policy import Allowance, Policy, port_number


def admits(allow: list[str], name: str, address: str, port: int = 443) -> bool:
    return Policy.of(allow, [80, 443]).admits(name, ip_address(address), port)


@pytest.mark.parametrize(
    ("entry", "name", "address", "port", "admitted"),
    [
        ("wiki.example", "wiki.example", "10.0.0.1", 443, True),
        ("Wiki.Example.", "wiki.example", "10.0.0.1", 80, True),
        ("wiki.example", "wiki.example", "10.0.0.1", 8080, False),
        ("wiki.example:8080", "wiki.example", "10.0.0.1", 8080, True),
        ("wiki.example:8080", "wiki.example", "10.0.0.1", 443, False),
        ("wiki.example", "other.example", "10.0.0.1", 443, False),
        ("wiki.example", "a.wiki.example", "10.0.0.1", 443, False),
        ("wiki.example", "notwiki.example", "10.0.0.1", 443, False),
        ("wiki.example", "wiki.example", "127.0.0.1", 443, True),
        ("wiki", "wiki", "10.0.0.1", 443, True),
        ("localhost:9000", "localhost", "::1", 9000, True),
        ("*.example", "a.example", "10.0.0.1", 443, True),
        ("*.example", "a.b.example", "10.0.0.1", 443, True),
        ("*.example", "example", "10.0.0.1", 443, False),
        ("*.example", "badexample", "10.0.0.1", 443, False),
        ("*.docs.example:8443", "a.docs.example", "10.0.0.1", 8443, True),
        ("10.0.0.0/8", "10.1.2.3", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "any.name.org", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "10.1.2.3", "10.1.2.3", 8080, False),
        ("10.0.0.0/8:8080", "10.1.2.3", "10.1.2.3", 8080, True),
        ("10.0.0.0/8", "11.1.2.3", "192.168.0.1", 443, False),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7", 443, True),
        ("10.0.0.7", "10.0.0.8", "10.0.0.8", 443, False),
        ("10.0.0.7/8", "10.9.9.9", "10.9.9.9", 443, True),
        ("10.0.0.0/8", "::ffff:a00:1", "::ffff:10.0.0.1", 443, True),
        ("fd00::/8", "fd00::1", "fd00::1", 443, True),
        ("[fd00::/8]:8080", "fd00::1", "fd00::1", 8080, True),
        ("[::1]", "::1", "::1", 443, True),
        ("::1", "::1", "::1", 443, True),
        ("64:ff9b:1::/48", "a.example.org", "64:ff9b:1::10.0.0.1", 443, True),
        # A port opened for one host opens it for no other.
        ("wiki.example:8080", "example.org", "93.184.216.34", 8080, False),
        ("wiki.example:8080", "example.org", "93.184.216.34", 443, True),
        # What stays closed.
        ("0.0.0.0/0", "x", "169.254.169.254", 80, False),
        ("169.254.169.254", "169.254.169.254", "169.254.169.254", 80, False),
        ("metadata.google.internal", "metadata.google.internal", "169.254.169.254", 80, False),
        ("::/0", "x", "fd00:ec2::254", 80, False),
        ("0.0.0.0/0", "x", "0.0.0.0", 80, False),
        ("::/0", "x", "ff02::1", 80, False),
        ("0.0.0.0/0", "x", "::ffff:169.254.169.254", 80, False),
    ],
)
def test_an_entry_opens_just_what_it_says(entry: str, name: str, address: str, port: int, admitted: bool) -> None:
    assert admits([entry], name, address, port) is admitted


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "*.*.example", "http://x.org", "x.org/path", "a b", "x.org:0", "x.org:65536", "x.org:port", "[x.org]:80",
     "1.2.3", "10.0.0.0/33", "x..org", "-", "a@b.org", "*.10.0.0.1", "fd00::/8:443", "0x7f.1", "exämple.org"],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"an entry is|a port is"):
        Allowance.read(entry)


@pytest.mark.parametrize(
    "name",
    ["localhost", "foo.localhost", "localhost.localdomain", "router.local", "metadata.google.internal", "db.internal", "nas.lan",
     "printer.home", "x.home.arpa", "wiki", "intranet", "mail.corp", "hidden.onion", "host.docker.internal", "a.private"],
)  # fmt: skip
def test_names_of_one_house_are_not_asked_for_unless_the_operator_opened_a_part_of_it(name: str) -> None:
    assert not Policy().may_ask_for(name)
    assert not Policy.of(["other.example"], [80]).may_ask_for(name)
    assert Policy.of([name], [80]).may_ask_for(name)
    assert Policy.of(["10.0.0.0/8"], [80]).may_ask_for(name)


@pytest.mark.parametrize(
    "name", ["example.org", "local.example", "internal.example.org", "localhost.example", "xn--strae-oqa.de"]
)
def test_other_names_may_be_asked_for(name: str) -> None:
    assert Policy().may_ask_for(name)


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "80x", "８０", "1e3", " "])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a port is"):
        port_number(text)
    assert port_number("65535") == 65535
