"""The check between an address that a model wrote and a connection to it.

A name is looked up once. Every address it leads to must be allowed, and a connection is made to one of these very
addresses (connector.py): what the name says a moment later is not asked. What a refusal says is the same whether a name
is unknown or leads where nobody may go, so that nobody learns what names there are inside.
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
"""(name, port) -> all addresses of the name; ``OSError`` if it has none."""

LOOKUP_SECONDS = 10.0
MAX_TRIED = 3
"""Of each family: a host that has but one of them must not lose it behind many of the other."""
NOT_PUBLIC = "the address's host is not a public one"
UNKNOWN = "the address's host is unknown, or not a public one"

# Threads of its own: dead name servers hold them for long, and the models' own connections need the loop's.
_pool = FairPool(16)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A target with the addresses that were checked for it; nothing else is connected to."""

    target: Target
    addresses: tuple[Address, ...]


async def look_up(name: str, port: int) -> Sequence[Address]:
    """Asks the system."""
    found = await _pool.run(fair_key.get(), lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM), LOOKUP_SECONDS)
    return [ip_address(entry[4][0]) for entry in found]


class Guard:
    def __init__(self, policy: Policy, lookup: Lookup = look_up) -> None:
        self.policy, self._lookup = policy, lookup

    async def admit(self, target: Target) -> Admitted:
        """The target's checked addresses. ``AddressRefused`` if even one of them may not be connected to."""
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
        # UnicodeError: a name that the system's own encoding does not take.
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
    """The operator's policy, for this process. Called at start."""
    global _guard
    _guard = Guard(policy)


def current() -> Guard:
    return _guard
