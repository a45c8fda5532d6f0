"""What the programs of a sandbox may connect to: lists of hosts, on top of the guard of `fetch_url`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents_app.errors import AgentError
from agents_app.outbound.guard import Admitted, Guard, Lookup, look_up
from agents_app.outbound.policy import Allowance, Policy
from agents_app.outbound.target import AddressRefused, Target

ALLOW = "AGENTHOST_SANDBOX_NETWORK_ALLOW"
PORTS = "AGENTHOST_SANDBOX_NETWORK_PORTS"


class NotReachable(AgentError):
    """The policy does not allow it. ``reason`` can be shown to programs: it names the policy, and nothing of the network."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class HostList:
    """Hosts, and ports of hosts, that may be reached. ``name``: where the operator wrote it."""

    entries: tuple[Allowance, ...]
    name: str

    def covers(self, target: Target) -> list[Allowance]:
        address = target.address
        return [
            each for each in self.entries if (each.names(target.name) if address is None else each.covers(target.name, address))
        ]


@dataclass(frozen=True, slots=True)
class Reach:
    """``policy`` is the guard's. A host must be in each of ``lists``; no list: every public host may be reached."""

    policy: Policy
    lists: tuple[HostList, ...] = ()
    lookup: Lookup = look_up

    async def admit(self, target: Target) -> Admitted:
        """The target's checked addresses; ``NotReachable`` if it may not be connected to."""
        policy = replace(self.policy, ports=self._ports(target))
        if not policy.may_use_port(target.port):
            usual = ", ".join(str(port) for port in sorted(self.policy.ports))
            raise NotReachable(f"port {target.port} may not be used, only {usual or 'none'} ({PORTS})")
        try:
            return await Guard(policy, self.lookup).admit(target)
        except AddressRefused:
            raise NotReachable(f"the host is unknown, or has an address that is not public ({ALLOW})") from None

    def _ports(self, target: Target) -> frozenset[int]:
        """The usual ports, and this one if the lists name it for this host."""
        opened: list[bool] = []
        for hosts in self.lists:
            entries = hosts.covers(target)
            if not entries:
                raise NotReachable(f"the host is not in the list of hosts that this sandbox may reach ({hosts.name})")
            named = {entry.port for entry in entries}
            if None not in named and target.port not in named:
                ports = ", ".join(str(port) for port in sorted(port for port in named if port))
                raise NotReachable(f"port {target.port} of this host may not be used, only {ports} ({hosts.name})")
            opened.append(target.port in named)
        return self.policy.ports | {target.port} if any(opened) else self.policy.ports


def host_list(entries: Sequence[str], name: str) -> HostList:
    """``ValueError`` has the reason if an entry is not valid."""
    return HostList(tuple(Allowance.read(entry) for entry in entries), name)
