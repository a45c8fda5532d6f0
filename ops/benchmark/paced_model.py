"""A scripted model server: chat completions with the number and rate of tokens that the model's name gives.

`paced-200-20` sends 200 tokens at 20 a second, the first after one interval; with a rate of 0, as fast as they can be written.
Each token is its own event, chunk and write, as models send them. It must be cheap: its cost is part of every figure, of the
floor's and of ours. `python -m ops.benchmark.paced_model [PORT]` prints its port and serves until it is
stopped.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import cast

import uvloop

TOKEN = b" token"
_NAMED = re.compile(rb'"model":\s*"paced-(\d+)-(\d+(?:\.\d+)?)"')
_LENGTH = re.compile(rb"content-length:\s*(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
_AT_ONCE = 10
"""Tokens that an unpaced answer writes before it lets others write theirs."""


def model(tokens: int, rate: float) -> str:
    return f"paced-{tokens}-{rate:g}"


def tokens_of(name: str) -> int:
    """The number of tokens in a model's name."""
    return int(name.split("-")[1])


def _chunk(delta: bytes, reason: bytes = b"null") -> bytes:
    event = (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"paced",'
        b'"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n' % (delta, reason)
    )
    return b"%x\r\n%b\r\n" % (len(event), event)


def _tail() -> bytes:
    usage = b'data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10}}\n\n'
    done = b"data: [DONE]\n\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (usage, done))
    return _chunk(b"{}", b'"stop"') + chunks + b"0\r\n\r\n"


_ROLE = _chunk(b'{"role":"assistant","content":""}')
_TEXT = _chunk(b'{"content":"%b"}' % TOKEN)
_TAIL = _tail()


class _Model(asyncio.Protocol):
    """One connection; a request at a time, as clients of this protocol send them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._timer: asyncio.Handle | None = None
        self._left = 0
        self._next = self._interval = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(rest) < (int(length[1]) if length else 0):
            return
        self._received.clear()
        asked = _NAMED.search(rest)
        if asked is None:
            self._transport.write(_NOT_FOUND)
            return
        self._left, rate = int(asked[1]), float(asked[2])
        self._transport.write(_HEAD + _ROLE)
        if rate:
            self._interval = 1 / rate
            self._next = self._loop.time() + self._interval
            self._timer = self._loop.call_at(self._next, self._say_one)
        else:
            self._say_some()

    def _say_one(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._transport.write(_TEXT + _TAIL)
            return
        self._transport.write(_TEXT)
        self._next += self._interval
        self._timer = self._loop.call_at(self._next, self._say_one)

    def _say_some(self) -> None:
        for _ in range(min(_AT_ONCE, self._left)):
            self._transport.write(_TEXT)
        self._left -= _AT_ONCE
        if self._left <= 0:
            self._transport.write(_TAIL)
        else:
            self._timer = self._loop.call_soon(self._say_some)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Model, "127.0.0.1", port, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))


if __name__ == "__main__":
    main()
