"""Guard against requests into the operator's network: checks an address that a model wrote.

A name is looked up once. All its addresses must be allowed, and the connection is made to one of these addresses
(connector.py), without a second lookup. The refusal is the same for unknown names and for names with internal addresses,
so that it does not reveal which internal names exist.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from agents_app.fair.threads import FairPool
from agents_app.outbound.addresses import Address
from agents_app.outbound.policy import USUAL_PORTS, Policy
from agents_app.outbound.target import AddressRefused, Target
from agents_app.tools.caller import fair_key

Lookup = Callable[[str, int], Awaitable[Sequence[Address]]]
"""Returns all addresses of (name, port); ``OSError`` if there are none."""

LOOKUP_SECONDS = 10.0
MAX_TRIED = 3
"""Per address family, so that many addresses of one family do not hide the only one of the other."""
NOT_PUBLIC = "the address's host is not a public one"
UNKNOWN = "the address's host is unknown, or not a public one"

# A pool of its own: dead name servers block threads for long, and connections to models need the loop's threads.
_pool = FairPool(16)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A target with its checked addresses, the only ones that are connected to."""

    target: Target
    addresses: tuple[Address, ...]


async def look_up(name: str, port: int) -> Sequence[Address]:
    """Look a name up with the system's resolver."""
    found = await _pool.run(fair_key.get(), lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), LOOKUP_SECONDS)
    return [ip_address(entry[4][0]) for entry in found]


class Guard:
    def __init__(self, policy: Policy, lookup: Lookup = look_up) -> None:
        self.policy, self._lookup = policy, lookup

    async def admit(self, target: Target) -> Admitted:
        """The target's checked addresses; ``AddressRefused`` if one of them is not allowed."""
        if target.address is not None and not self.policy.opens(target.name, target.address):
            raise AddressRefused(NOT_PUBLIC)
        if not self.policy.may_use_port(target.port):
            usual = ", ".join(str(port) for port in sorted(self.policy.ports))
            raise AddressRefused(f"the port {target.port} may not be fetched from, only {usual}")
        addresses = await self._addresses(target)
        if not addresses or not all(self.policy.admits(target.name, address, target.port) for address in addresses):
            raise AddressRefused(
                UNKNOWN if target.address is None else f"the port {target.port} of this host may not be fetched from"
            )
        return Admitted(target, _tried(addresses))

    async def _addresses(self, target: Target) -> Sequence[Address]:
        if target.address is not None:
            return (target.address,)
        if not self.policy.may_ask_for(target.name):
            raise AddressRefused(UNKNOWN)
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._lookup(target.name, target.port)
        # UnicodeError: the system cannot encode the name.
        except (OSError, UnicodeError, ValueError):
            raise AddressRefused(UNKNOWN) from None


def _tried(addresses: Sequence[Address]) -> tuple[Address, ...]:
    kept: dict[Address, None] = {}
    for address in addresses:
        if sum(other.version == address.version for other in kept) < MAX_TRIED:
            kept[address] = None
    return tuple(kept)


_guard = Guard(Policy(ports=USUAL_PORTS))


def set_policy(policy: Policy) -> None:
    """Set the operator's policy for this process. Called at the start."""
    global _guard
    _guard = Guard(policy)


def current() -> Guard:
    return _guard
