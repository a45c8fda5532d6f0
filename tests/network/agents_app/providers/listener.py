"""A server that answers with bytes as they are given and remembers what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from agents_app import exact_json


@dataclass
class Heard:
    path: str
    """As it was written, query included."""
    headers: dict[str, str]
    body: Any


@dataclass
class Listener:
    url: str = ""
    heard: list[Heard] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody hung up before an answer was complete."""


@contextlib.asynccontextmanager
async def listener(
    *answers: Sequence[bytes], status: int = 200, headers: dict[str, str] | None = None, hang: bool = False
) -> AsyncIterator[Listener]:
    """Each request gets the next of ``answers``, the last one stays. ``hang``: no answer ends."""
    made = Listener()

    async def answer(request: web.Request) -> web.StreamResponse:
        heard = Heard(request.raw_path, dict(request.headers), exact_json.loads(await request.read()))
        made.heard.append(heard)
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        try:
            for piece in answers[min(len(made.heard), len(answers)) - 1]:
                await response.write(piece)
            while hang:
                await response.write(b"")
                await asyncio.sleep(3600)
        except (asyncio.CancelledError, ConnectionError):
            made.closed.set()
            raise
        return response

    app = web.Application(handler_args={"handler_cancellation": True})
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        made.url = str(server.make_url("")).rstrip("/")
        yield made
