"""The HTTP response of a streamed answer, whatever the words in it."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any

from tests.fakes.steps import Step


class Speech(ABC):
    """The HTTP response of one streamed answer. ``cut_every``: so many bytes a piece, wherever that cuts."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._opened = False
        self.cut_every = 0

    @abstractmethod
    async def begin(self) -> None:
        """What stands before the first word."""

    @abstractmethod
    async def say(self, step: Step) -> None: ...

    @abstractmethod
    async def fail(self, message: str, code: str) -> None:
        """An error in the middle of the stream."""

    @abstractmethod
    async def finish(self) -> None:
        """What an answer that was not cut short still lacks."""

    async def open(self) -> None:
        if not self._opened:
            self._opened = True
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
            self._writer.write(head.encode())
            await self.begin()

    async def raw(self, data: bytes) -> None:
        await self.open()
        size = self.cut_every or len(data) or 1
        for at in range(0, len(data), size):
            piece = data[at : at + size]
            self._writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await self._writer.drain()
            if self.cut_every:
                # The other side's turn: pieces that arrive together would be one again.
                await asyncio.sleep(0)

    async def end_response(self) -> None:
        await self.open()
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()


def pieces_of(text: str, count: int) -> list[str]:
    """The text in so many pieces (fewer if it is short), at least one."""
    size = -(-len(text) // max(1, count)) or 1
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def written(document: Any) -> bytes:
    """JSON with every character as it is: what is cut may be cut inside one."""
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
