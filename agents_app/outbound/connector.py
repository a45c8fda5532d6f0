"""Connects only to addresses that were checked.

There are three checks, because none covers all cases: the resolver returns checked addresses only (the library does not
use it for hosts written as addresses); sockets are created only for checked addresses; and the peer's address is compared
before a request is sent.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from agents_app.outbound.addresses import Address
from agents_app.outbound.guard import Admitted


class _Pinned(AbstractResolver):
    def __init__(self, admitted: Admitted) -> None:
        self._admitted = admitted

    # The family would narrow a lookup; the checked addresses need none.
    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[ResolveResult]:
        if (host.removesuffix("."), port) != (self._admitted.target.name, self._admitted.target.port):
            raise OSError(None, "this host was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._admitted.addresses
        ]

    async def close(self) -> None:
        return


class PinnedConnector(aiohttp.TCPConnector):
    """A connector for one request to one target; keeps no connection open."""

    def __init__(self, admitted: Admitted) -> None:
        super().__init__(
            resolver=_Pinned(admitted), use_dns_cache=False, force_close=True, limit=1, socket_factory=self._socket_for
        )
        self._checked = frozenset(admitted.addresses)
        self._port = admitted.target.port

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*args, **kwargs)
        peer = connection.transport.get_extra_info("peername") if connection.transport is not None else None
        if not self._is_checked(peer):
            connection.close()
            raise aiohttp.ClientConnectionError("connected to an address that was not checked")
        return connection

    def _socket_for(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, where = info
        if not self._is_checked(where):
            raise PermissionError("this address was not checked")
        return socket.socket(family, kind, protocol)

    def _is_checked(self, where: Any) -> bool:
        if not isinstance(where, tuple) or where[1] != self._port:
            return False
        found: Address = ip_address(where[0])
        return found in self._checked
