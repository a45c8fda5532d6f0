"""Addresses as people and attackers write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app.outbound.target import AddressRefused, follow, read

REFUSED = [
    # no address, or of another kind
    "", " ", "example.org", "//example.org", "/etc/passwd", "file:///etc/passwd", "ftp://example.org/", "gopher://example.org:70/_x",
    "dict://example.org:11211/", "data:text/html,hi", "javascript:alert(1)", "ws://example.org", "httpx://example.org", "http+unix://x/",
    "ldap://example.org", "jar:http://example.org!/", "view-source:http://example.org", "blob:https://example.org/x",
    # no host, or one where readers disagree
    "http:", "http:/", "http://", "http:///", "http:///example.org", "http:example.org", "http:/example.org", "http://?x", "http://#x",
    "http:\\\\example.org", "http:/\\example.org", "http://example.org\\@127.0.0.1/", "http://example.org\\.evil.org/",
    "http://127.0.0.1\\@example.org/", "https:\\/example.org/", "http://example.org/a\\b", "\\\\example.org\\x",
    # who is it
    "http://user@example.org/", "http://user:pass@example.org/", "http://example.org@127.0.0.1/", "http://:@127.0.0.1/", "http://@/",
    "http://a@b@127.0.0.1/", "http://example.org%40127.0.0.1/", "http://example.org&@127.0.0.1#@example.org/",
    # IPv4, written so that only some see it
    "http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0177.0.0.1/", "http://127.1/",
    "http://127.0.1/", "http://127.0.0.01/", "http://127.00.0.1/", "http://0x7f.1/", "http://127.0.0.1../", "http://127.0.0.256/",
    "http://127.0.0/", "http://0/", "http://1/", "http://4294967297/", "http://127.0.0.0x1/", "http://1.2.3.4.5/", "http://0x/",
    "http://example.0x7f/", "http://foo.1/", "http://00000000000000000000000000177.0.0.1/", "http://127。0。0。1/",
    "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://１２７．０．０．１/", "http://𝟏𝟐𝟕.0.0.1/", "http://127.0.0.１/",
    "http://127%2e0%2e0%2e1/", "http://%31%32%37.0.0.1/", "http://127.0.0.1%00.example.org/", "http://127.0.0.1%20/",
    "http://-127.0.0.1/", "http://+127.0.0.1/", "http://127.0.0.1\u200b.1/",
    # IPv6
    "http://[::1/", "http://::1/", "http://[::1]x/", "http://[]/", "http://[::1%25lo]/", "http://[fe80::1%25eth0]/", "http://[::1%lo]/",
    "http://[127.0.0.1]/", "http://[v1.fe80::a]/", "http://[::ffff:127.1]/", "http://[0:0:0:0:0:0:0:0:1]/", "http://[::1]:80:80/",
    "http://[::１]/", "http://[[::1]]/", "http://[example.org]/",
    # ports
    "http://example.org:0/", "http://example.org:65536/", "http://example.org:99999999999/", "http://example.org:-1/",
    "http://example.org:８０/", "http://example.org:80:81/", "http://example.org:http/", "http://example.org:0x50/",
    "http://example.org:80@127.0.0.1/", "http://example.org: 80/",
    # names
    "http://exa mple.org/", "http://example..org/", "http://.example.org/", "http://-/", "http://exam*ple.org/", "http://a_.b-/",
    "http://" + "a" * 64 + ".org/", "http://" + ".".join(["abcdefgh"] * 30) + "/", "http://example.org..", "http://%65xample.org/",
    "http://xn--/", "http://exa<mple.org/", "http://ex\u00adample.\u2025org/", "http://a.\u0660/",
    # characters that become other requests
    "http://example.org/\r\nHost: evil.org", "http://example.org\r\n/", "http://example.org/\n", "http://exam\tple.org/",
    "ht\ntp://example.org/", "http://example.org/\0", "http://example.org\0.evil.org/", "http://example.org/\x7f",
    "http://example.org/\u2028x", "http://example.org/\ud800", "\x00http://example.org/", "http://example.org/\x85",
    # too much
    "http://example.org/" + "a" * 8192,
]  # fmt: skip
# The end of the text is trimmed, as people copy addresses with what surrounds them.
REFUSED.remove("http://example.org/\n")


@pytest.mark.parametrize("text", REFUSED)
def test_an_address_with_two_readings_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        read(text)


@pytest.mark.parametrize(
    ("text", "name", "port", "url"),
    [
        ("http://example.org", "example.org", 80, "http://example.org/"),
        ("https://example.org", "example.org", 443, "https://example.org/"),
        (" https://example.org/a \n", "example.org", 443, "https://example.org/a"),
        ("HTTPS://EXAMPLE.org/A", "example.org", 443, "https://example.org/A"),
        ("https://example.org./a", "example.org", 443, "https://example.org/a"),
        ("https://example.org:443/a", "example.org", 443, "https://example.org/a"),
        ("https://example.org:/a", "example.org", 443, "https://example.org/a"),
        ("http://example.org:8080/a", "example.org", 8080, "http://example.org:8080/a"),
        ("http://example.org:00080/a", "example.org", 80, "http://example.org/a"),
        ("https://example.org/a b?c=d e#f", "example.org", 443, "https://example.org/a%20b?c=d+e"),
        ("https://example.org/ä?x=ü", "example.org", 443, "https://example.org/%C3%A4?x=%C3%BC"),
        ("https://example.org/%2e%2e/a@b:c", "example.org", 443, "https://example.org/a@b:c"),
        ("https://example.org?x=http://127.0.0.1/", "example.org", 443, "https://example.org/?x=http://127.0.0.1/"),
        ("https://example.org?x=a\\b", "example.org", 443, "https://example.org/?x=a%5Cb"),
        ("https://straße.de/", "xn--strae-oqa.de", 443, "https://xn--strae-oqa.de/"),
        ("https://Bücher.example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("https://bücher。example/", "xn--bcher-kva.example", 443, "https://xn--bcher-kva.example/"),
        ("http://_dmarc.example.org/", "_dmarc.example.org", 80, "http://_dmarc.example.org/"),
        ("http://1.2.3.4/", "1.2.3.4", 80, "http://1.2.3.4/"),
        ("http://1.2.3.4./", "1.2.3.4", 80, "http://1.2.3.4/"),
        ("http://1and1.com/", "1and1.com", 80, "http://1and1.com/"),
        ("http://[2001:DB8:0::1]:81/", "2001:db8::1", 81, "http://[2001:db8::1]:81/"),
    ],
)
def test_a_plain_address_is_read_as_its_writer_means_it(text: str, name: str, port: int, url: str) -> None:
    target = read(text)
    assert (target.name, target.port) == (name, port)
    assert str(target.url) == url
    assert (target.address is not None) == (name in ("1.2.3.4", "2001:db8::1"))


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_whatever_stands_behind_the_slashes_the_library_connects_where_we_read(rest: str) -> None:
    try:
        target = read("http://" + rest)
    except AddressRefused:
        return
    assert target.url.raw_host == target.name
    assert target.url.port == target.port
    assert target.name.isascii()
    assert read(str(target.url)) == target


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b", "https://example.org/b"),
        ("b?c", "https://example.org/x/b?c"),
        ("?c", "https://example.org/x/a?c"),
        ("//other.org/b", "https://other.org/b"),
        ("https://other.org:444/", "https://other.org:444/"),
        ("http://other.org/", "http://other.org/"),
        (" /b ", "https://example.org/b"),
        ("https:b", "https://example.org/x/b"),
        ("#top", "https://example.org/x/a"),
    ],
)
def test_a_redirect_leads_on_from_where_it_was_given(location: str, url: str) -> None:
    assert str(follow(read("https://example.org/x/a"), location).url) == url


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "javascript:1", "//user@other.org/", "//[::1", "http://127.1/", "/\\other.org", "\\\\other.org",
     "//other.org\\@x/", "/a\r\nX: y", "/\0", "x" * 9_000, "https:///x"],
)  # fmt: skip
def test_a_redirect_is_read_as_strictly(location: str) -> None:
    with pytest.raises(AddressRefused):
        follow(read("http://example.org/x/a"), location)
