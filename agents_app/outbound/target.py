"""Strict URL parser for addresses that models write.

URL parsers disagree about unusual spellings, and each disagreement is a way around a check. So nothing is corrected here:
an ambiguous address is refused, and the HTTP library must parse the same host and port.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urljoin

import idna
from yarl import URL

from agents_app.errors import AgentError
from agents_app.outbound.addresses import Address
from agents_app.outbound.policy import is_name, is_number

MAX_LENGTH = 8192

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.ASCII | re.DOTALL)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_AUTHORITY = re.compile(r"//([^/?#\\]+)(.*)", re.DOTALL)
_BRACKETED = re.compile(r"\[([^\[\]]*)\](?::([0-9]*))?", re.ASCII)
_PLAIN = re.compile(r"([^:\[\]]+)(?::([0-9]*))?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


class AddressRefused(AgentError):
    """The address may not be fetched. ``reason`` can be shown to a model: it reveals nothing beyond the address."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a request. ``name``: the host in lower-case ASCII. ``address``: the same, if the host is an IP address."""

    url: URL
    name: str
    port: int
    address: Address | None = None

    @property
    def secure(self) -> bool:
        return self.url.scheme == "https"


def read(text: str) -> Target:
    """The target of an absolute http or https address; ``AddressRefused`` has the reason."""
    text = text.strip(" \t\r\n\f")
    if len(text) > MAX_LENGTH:
        raise AddressRefused(f"the address is longer than {MAX_LENGTH} characters")
    if _CONTROL.search(text):
        raise AddressRefused("the address holds a control character")
    scheme, rest = _scheme(text)
    match = _AUTHORITY.fullmatch(rest)
    if match is None:
        raise AddressRefused("the address names no host: write it as https://host/path")
    authority, path = match[1], match[2]
    # Some parsers read it as a slash, and so find another host.
    if "\\" in re.split(r"[?#]", path, maxsplit=1)[0]:
        raise AddressRefused("the address holds a backslash")
    if "@" in authority:
        raise AddressRefused("the address holds a user name or password")
    name, address, port = _host(authority, _DEFAULT_PORTS[scheme])
    written = f"[{name}]" if isinstance(address, IPv6Address) else name
    suffix = "" if port == _DEFAULT_PORTS[scheme] else f":{port}"
    try:
        url = URL(f"{scheme}://{written}{suffix}{path if path.startswith('/') else '/' + path}").with_fragment(None)
    except ValueError:
        raise AddressRefused("the address cannot be read") from None
    if (url.scheme, url.raw_host, url.port, url.raw_user) != (scheme, name, port, None):
        raise AddressRefused("the address can be read in two ways")
    return Target(url, name, port, address)


def follow(target: Target, location: str) -> Target:
    """The target of a redirect."""
    if len(location) > MAX_LENGTH or _CONTROL.search(location):
        raise AddressRefused("it cannot be read")
    try:
        return read(urljoin(str(target.url), location.strip(" ")))
    except ValueError:
        raise AddressRefused("it cannot be read") from None


def _scheme(text: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(text)
    if match is None or match[1].lower() not in _DEFAULT_PORTS:
        raise AddressRefused("only addresses that begin with http:// or https:// can be fetched")
    return match[1].lower(), match[2]


def _host(authority: str, usual: int) -> tuple[str, Address | None, int]:
    """The name, the IP address if the name is one, and the port. Only the usual spelling of an address is accepted."""
    bracketed = authority.startswith("[")
    match = (_BRACKETED if bracketed else _PLAIN).fullmatch(authority)
    if match is None:
        raise AddressRefused("the address's host or port cannot be read")
    port = usual if not match[2] else int(match[2]) if len(match[2]) <= 5 else 0
    if not 0 < port < 65536:
        raise AddressRefused("the address's port is not a number from 1 to 65535")
    name, address = _six(match[1]) if bracketed else _named(match[1])
    return name, address, port


def _six(host: str) -> tuple[str, Address]:
    if "%" in host:
        raise AddressRefused("the address names an interface of this machine")
    try:
        address = IPv6Address(host)
    except ValueError:
        raise AddressRefused("the address's host is not an IPv6 address") from None
    return str(address), address


def _named(host: str) -> tuple[str, Address | None]:
    name = _ascii(host).lower().removesuffix(".")
    if not is_number(name.rpartition(".")[2]):
        if not is_name(name):
            raise AddressRefused("the address's host is not a host's name")
        return name, None
    try:
        if not host.isascii():
            raise ValueError("digits of another script")
        return name, IPv4Address(name)
    except ValueError:
        raise AddressRefused("the address's host is a number, but not an IPv4 address as it is usually written") from None


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise AddressRefused("the address's host is not a host's name") from None
