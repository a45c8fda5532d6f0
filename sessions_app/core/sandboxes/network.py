"""The network of sandboxes: which of them have one, and the proxy that is their only way to it.

A sandbox never shares the network of this machine, unless the operator sets a variable whose name says so. With network, its
programs reach public hosts through a proxy of this process, under the operator's lists of hosts and ports.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from django.conf import settings

from agents_app.outbound.policy import Policy
from agents_app.outbound.proxy.reach import HostList, Reach, host_list
from agents_app.outbound.proxy.server import Connection, Limits, Proxy, Shared

log = logging.getLogger(__name__)

MODES = ("off", "agents", "all")
"""Of ``AGENTHOST_SANDBOX_NETWORK``: no sandbox; those of agents and MCP servers whose definition asks for it; clients' terminals
too."""
ANY_HOST = ("*",)
"""An agent's list of hosts that names every public one."""
HOSTS = "AGENTHOST_SANDBOX_NETWORK_HOSTS"
OFF = "sandboxes have no network on this server (AGENTHOST_SANDBOX_NETWORK)"
_LOGGED_LINES, _LOGGED_SECONDS = 20, 10.0

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Shared] = WeakKeyDictionary()


def is_machines() -> bool:
    """Whether sandboxes share the network of this machine."""
    return bool(settings.AGENTHOST_UNSAFE_SANDBOX_MACHINE_NETWORK)


def is_off() -> bool:
    return settings.AGENTHOST_SANDBOX_NETWORK == "off" and not is_machines()


def of_terminal(tenant: int, terminal: str, hosts: Sequence[str] | None, *, is_clients: bool) -> Proxy | None:
    """The proxy of a terminal's sandbox; None if it has no network. ``hosts``: its agent's list."""
    mode = settings.AGENTHOST_SANDBOX_NETWORK
    if is_machines() or mode == "off" or (hosts is None and not (is_clients and mode == "all")):
        return None
    return _proxy(tenant, f"terminal={terminal}", ANY_HOST if hosts is None else hosts)


def of_program(tenant: int | None, server: str) -> Proxy | None:
    """The proxy of an MCP server's sandbox whose definition asks for network. ``tenant`` None: it lists its tools for all."""
    if is_machines() or is_off():
        return None
    return _proxy(tenant, f"mcp={server}", ANY_HOST)


def _proxy(tenant: int | None, what: str, hosts: Sequence[str]) -> Proxy:
    lists: list[HostList] = []
    if settings.AGENTHOST_SANDBOX_NETWORK_HOSTS:
        lists.append(HostList(settings.AGENTHOST_SANDBOX_NETWORK_HOSTS, HOSTS))
    if tuple(hosts) != ANY_HOST:
        lists.append(host_list(hosts, "workspace.network of the agent"))
    policy: Policy = settings.AGENTHOST_SANDBOX_NETWORK_POLICY
    limits = Limits(bytes=settings.AGENTHOST_SANDBOX_NETWORK_BYTES)
    return Proxy(Reach(policy, tuple(lists)), _shared_of_loop, tenant, limits=limits, report=_Report(what))


def _shared_of_loop() -> Shared:
    loop = asyncio.get_running_loop()
    found = _shared.get(loop)
    if found is None:
        found = _shared[loop] = Shared(
            settings.AGENTHOST_SANDBOX_NETWORK_CONNECTIONS, settings.AGENTHOST_SANDBOX_NETWORK_BYTES_PER_SECOND
        )
    return found


class _Report:
    """Logs the connections of one sandbox: host, port and bytes, never a path or header. At most 20 lines in ten seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since, self._left, self._dropped = time.monotonic(), _LOGGED_LINES, 0

    def __call__(self, connection: Connection) -> None:
        now = time.monotonic()
        if now - self._since >= _LOGGED_SECONDS:
            if self._dropped:
                log.info("sandbox_network_not_logged %s connections=%d", self._what, self._dropped)
            self._since, self._left, self._dropped = now, _LOGGED_LINES, 0
        if not self._left:
            self._dropped += 1
            return
        self._left -= 1
        target = connection.target
        where = "" if target is None else f" host={target.name} port={target.port}"
        amount = f"sent={connection.sent} received={connection.received} ms={round(connection.seconds * 1000)}"
        if connection.refused:
            log.info("sandbox_network_refused %s%s %s: %s", self._what, where, amount, connection.refused)
        else:
            log.info("sandbox_network_used %s%s %s", self._what, where, amount)
