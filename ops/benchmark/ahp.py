"""AHP connections of the load generator."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import aiohttp

from ops.benchmark.load import LoadError

_VERSIONS = ["0.1.0"]
_ROOT = "agenthost:/root"
_ANSWER_SECONDS = 60.0


class AhpConnections:
    """Open connections, whose frames are read and dropped. Spread over the server's addresses."""

    def __init__(self, origins: Sequence[str], key: str) -> None:
        self._origins, self._key = origins, key
        self._reading: list[asyncio.Task[None]] = []
        self._ids = count(1)

    async def __aenter__(self) -> AhpConnections:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {self._key}"})
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        await self._session.close()

    async def open(self, client_id: str, agent: str) -> None:
        """Open a connection that watches the agents and a new session with this agent."""
        origin = self._origins[len(self._reading) % len(self._origins)]
        try:
            socket = await self._session.ws_connect(f"{origin}/ahp", compress=0, max_msg_size=0)
        except aiohttp.ClientError as error:
            raise LoadError(f"an AHP connection was refused: {error}") from None
        params = {"protocolVersions": _VERSIONS, "clientId": client_id, "initialSubscriptions": [_ROOT]}
        await self._request(socket, "initialize", params)
        uri = f"{agent}:/{secrets.token_hex(6)}"
        await self._request(socket, "createSession", {"session": uri, "provider": agent})
        await self._request(socket, "subscribe", {"resource": uri})
        self._reading.append(asyncio.create_task(_drop(socket)))

    async def _request(self, socket: aiohttp.ClientWebSocketResponse, method: str, params: Mapping[str, Any]) -> None:
        number = next(self._ids)
        await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        async with asyncio.timeout(_ANSWER_SECONDS):
            while True:
                frame = await socket.receive()
                if frame.type is not aiohttp.WSMsgType.TEXT:
                    raise LoadError(f"an AHP connection ended before the answer to {method}: {frame.type.name} {frame.data}")
                message = json.loads(frame.data)
                if message.get("id") == number:
                    break
        if "error" in message:
            raise LoadError(f"{method} was refused: {message['error'].get('message')}")


async def _drop(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Read until the connection ends, which also answers pings."""
    try:
        async for _ in socket:
            pass
    finally:
        await socket.close()
