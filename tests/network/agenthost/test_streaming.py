"""Sending bodies that are produced over time: the client's end, the server's end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from agenthost import streaming
from agenthost.guard import DISCONNECT
from sessions_app.aap.views import Stream
from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota

WAIT = 60


class Body:
    """A body of one chunk, which then waits for events that never come."""

    def __init__(self) -> None:
        self.is_waiting, self.is_over = asyncio.Event(), False
        self.stream = Stream(Slot(Quota.STREAMS_AT_ONCE, Caller(7, 1, "", frozenset({"*"}))), self._chunks())

    async def _chunks(self) -> AsyncGenerator[bytes]:
        try:
            yield b"first"
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            self.is_over = True


class Client:
    """The server's side of a connection, with or without the extension for disconnects."""

    def __init__(self, *, with_extension: bool) -> None:
        self.sent: list[bytes] = []
        self._gone = asyncio.Event()
        self._calls: list[Callable[[], object]] = []
        self.scope: dict[str, Any] = {"extensions": {DISCONNECT: {"call": self._calls.append}} if with_extension else {}}

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message["body"])

    def disconnect(self) -> None:
        self._gone.set()
        for call in self._calls:
            call()


@pytest.mark.parametrize("with_extension", [True, False])
async def test_a_body_ends_when_its_client_disconnects(with_extension: bool) -> None:
    body, client = Body(), Client(with_extension=with_extension)
    sending = asyncio.create_task(streaming.send_body(body.stream, client.receive, client.send, client.scope))
    await asyncio.wait_for(body.is_waiting.wait(), WAIT)
    client.disconnect()
    await asyncio.wait_for(sending, WAIT)
    assert (client.sent, body.is_over) == ([b"first"], True)


async def test_a_disconnect_ends_nothing_that_the_task_does_later() -> None:
    body, client = Body(), Client(with_extension=True)

    async def serve() -> str:
        await streaming.send_body(body.stream, client.receive, client.send, client.scope)
        client.disconnect()
        await asyncio.sleep(0)
        return "finished"

    serving = asyncio.create_task(serve())
    await asyncio.wait_for(body.is_waiting.wait(), WAIT)
    client.disconnect()
    assert await asyncio.wait_for(serving, WAIT) == "finished"


async def test_a_server_that_stops_cancels_the_request_and_its_body() -> None:
    body, client = Body(), Client(with_extension=True)
    sending = asyncio.create_task(streaming.send_body(body.stream, client.receive, client.send, client.scope))
    await asyncio.wait_for(body.is_waiting.wait(), WAIT)
    sending.cancel()
    client.disconnect()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(sending, WAIT)
    assert body.is_over
