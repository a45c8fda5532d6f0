"""AHP connections of the load generator."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import aiohttp
import orjson

from ops.benchmark.load import LoadError

_VERSIONS = ["0.1.0"]
_ROOT = "agenthost:/root"
_ANSWER_SECONDS = 60.0
_LAST = 200
"""Characters of a terminal's output that are kept."""


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


@dataclass(slots=True)
class Screen:
    """What a terminal has printed since it was subscribed to."""

    size: int = 0
    """Characters. What the rows print is ASCII, so these are bytes."""
    last: str = ""
    """The end of it."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, text: str) -> None:
        self.size += len(text)
        self.last = (self.last + text)[-_LAST:]
        self.changed.set()


class AhpClient:
    """One connection that makes requests and watches terminals."""

    def __init__(self, origin: str, key: str) -> None:
        self._origin, self._key = origin, key
        self.client_id = f"bench-{secrets.token_hex(6)}"
        self._ids, self._actions = count(1), count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._screens: dict[str, Screen] = {}
        self._ended = ""

    async def __aenter__(self) -> AhpClient:
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._key}"})
        try:
            self._socket = await self._session.ws_connect(f"{self._origin}/ahp", compress=0, max_msg_size=0)
        except aiohttp.ClientError as error:
            await self._session.close()
            raise LoadError(f"an AHP connection was refused: {error}") from None
        self._reading = asyncio.create_task(self._read())
        await self.request("initialize", {"protocolVersions": _VERSIONS, "clientId": self.client_id})
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()
        await self._session.close()

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result. Raises LoadError if the request is refused or the connection ends."""
        if self._ended:
            raise LoadError(self._ended)
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        async with asyncio.timeout(_ANSWER_SECONDS):
            message = await answer
        if "error" in message:
            raise LoadError(f"{method} was refused: {message['error'].get('message')}")
        return message["result"]

    # --- terminals ---

    async def create_terminal(self) -> str:
        """The URI of a new terminal in the tenant's default workspace, subscribed to."""
        uri = f"bench-terminal:/{secrets.token_hex(6)}"
        await self.request("createTerminal", {"terminal": uri, "claim": {"kind": "client", "clientId": self.client_id}})
        screen = self._screens[uri] = Screen()
        found = await self.request("subscribe", {"resource": uri})
        for part in found["snapshot"]["state"]["content"]:
            screen.add(part["value"] if part["type"] == "unclassified" else part["output"])
        return uri

    def screen(self, terminal: str) -> Screen:
        return self._screens[terminal]

    async def type_into(self, terminal: str, text: str) -> None:
        action = {"type": "terminal/input", "terminal": terminal, "data": text}
        params = {"clientSeq": next(self._actions), "action": action}
        await self._socket.send_str(json.dumps({"jsonrpc": "2.0", "method": "dispatchAction", "params": params}))

    async def until_shown(self, terminal: str, text: str) -> None:
        """Wait until the last output contains a text."""
        screen = self._screens[terminal]
        async with asyncio.timeout(_ANSWER_SECONDS):
            while text not in screen.last:
                if self._ended:
                    raise LoadError(self._ended)
                screen.changed.clear()
                await screen.changed.wait()

    async def _read(self) -> None:
        try:
            async for frame in self._socket:
                self._take(orjson.loads(frame.data))
        finally:
            self._ended = f"an AHP connection ended with {self._socket.close_code}"
            for answer in self._asked.values():
                answer.set_exception(LoadError(self._ended))
            for screen in self._screens.values():
                screen.changed.set()

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            if (asked := self._asked.pop(message["id"], None)) is not None and not asked.done():
                asked.set_result(message)
        elif message.get("method") == "action":
            action = message["params"]["action"]
            if action["type"] == "terminal/data" and (screen := self._screens.get(action["terminal"])) is not None:
                screen.add(action["data"])
