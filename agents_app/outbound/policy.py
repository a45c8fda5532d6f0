"""Fetch policy: public addresses on the usual ports, and exceptions that the operator lists. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from agents_app.outbound.addresses import Address, Network, forms, is_never, is_public

USUAL_PORTS = frozenset({80, 443})

# Names with a local meaning only: of one machine, one home, one company.
_PRIVATE_SUFFIXES = frozenset(
    {"corp", "home", "home.arpa", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "onion"}
    | {"private"}
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_ENTRY = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<plain>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.ASCII)


def is_name(text: str) -> bool:
    """Whether it is a DNS host name: lower case, no number as the last label, no dot at the end."""
    labels = text.split(".")
    return len(text) <= 253 and all(_LABEL.fullmatch(label) for label in labels) and not is_number(labels[-1])


def is_number(label: str) -> bool:
    """Whether lenient parsers read a name that ends with this label as an IPv4 address."""
    return _NUMERIC.fullmatch(label) is not None


@dataclass(frozen=True, slots=True)
class Allowance:
    """One entry of the operator's list: a host, all hosts below a domain, or a network; on one port or the usual ones."""

    host: str | None = None
    network: Network | None = None
    below: bool = False
    port: int | None = None

    @classmethod
    def read(cls, entry: str) -> Allowance:
        """``wiki.example``, ``*.example``, ``10.0.0.0/8``, ``fd00::/8``, each with ``:8080`` or without; IPv6 with a port in
        brackets. ``ValueError`` has the reason."""
        text = entry.strip().lower()
        try:
            # An IPv6 network without brackets is full of colons.
            return cls(network=ip_network(text, strict=False))
        except ValueError:
            pass
        match = _ENTRY.fullmatch(text)
        if match is None:
            raise ValueError("an entry is a host, *.domain, an address or a network, each with :port or without")
        port = int(match["port"]) if match["port"] else None
        if port is not None and not 0 < port < 65536:
            raise ValueError("a port is a number from 1 to 65535")
        where = (match["v6"] or match["plain"]).removesuffix(".")
        try:
            return cls(network=ip_network(where, strict=False), port=port)
        except ValueError:
            pass
        host = where.removeprefix("*.")
        if match["v6"] or not is_name(host):
            raise ValueError("an entry is a host, *.domain, an address or a network, each with :port or without")
        return cls(host=host, below=host != where, port=port)

    def names(self, name: str) -> bool:
        if self.host is None:
            return False
        return name.endswith("." + self.host) if self.below else name == self.host

    def covers(self, name: str, address: Address) -> bool:
        network = self.network
        if network is None:
            return self.names(name)
        return any(form.version == network.version and form in network for form in forms(address))


@dataclass(frozen=True, slots=True)
class Policy:
    allowances: tuple[Allowance, ...] = ()
    ports: frozenset[int] = USUAL_PORTS

    @classmethod
    def of(cls, allow: Sequence[str], ports: Sequence[int]) -> Policy:
        return cls(tuple(Allowance.read(entry) for entry in allow), frozenset(ports))

    def may_ask_for(self, name: str) -> bool:
        """Whether a name may be looked up. Local names may not, unless the operator allows hosts of that domain."""
        if any(entry.network is not None or entry.names(name) for entry in self.allowances):
            return True
        labels = name.split(".")
        return len(labels) > 1 and labels[-1] not in _PRIVATE_SUFFIXES and ".".join(labels[-2:]) not in _PRIVATE_SUFFIXES

    def may_use_port(self, port: int) -> bool:
        """Whether the port is allowed for any host."""
        return port in self.ports or any(entry.port == port for entry in self.allowances)

    def opens(self, name: str, address: Address) -> bool:
        """Whether the address may be connected to on some port."""
        return not is_never(address) and (is_public(address) or any(entry.covers(name, address) for entry in self.allowances))

    def admits(self, name: str, address: Address, port: int) -> bool:
        """Whether this address may be connected to. ``name``: the host of the request, or the address itself."""
        if is_never(address):
            return False
        for entry in self.allowances:
            if entry.covers(name, address) and (port == entry.port or (entry.port is None and port in self.ports)):
                return True
        return port in self.ports and is_public(address)


def port_number(text: str) -> int:
    """The port; ``ValueError`` if it is not valid."""
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 0 < int(text) < 65536:
        raise ValueError("a port is a number from 1 to 65535")
    return int(text)
