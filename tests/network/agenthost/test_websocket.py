"""Limits on buffered bytes and frames of WebSocket peers."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import websockets.sync.client
from pytest_django import Settings
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from agenthost.edge import bodies
from agenthost.guard import Receive, Scope, Send
from agenthost.websocket import DONE, OWNER, WRITE_TEXT, WebSocket
from tests.serving import Connection, serving

TEXT, CONTINUATION, PING, PONG = 1, 0, 9, 10
HUGE = "aé漢😀" * 1_500_000
HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def frame(kind: int, content: bytes = b"", *, last: bool = True, size: int | None = None) -> bytes:
    """A frame masked with zeros. ``size`` is the announced size, if less data follows."""
    size = len(content) if size is None else size
    length = struct.pack("!B", 128 | size) if size < 126 else struct.pack("!BQ", 128 | 127, size)
    return bytes([kind | 128 * last]) + length + bytes(4) + content


class Watched(WebSocket):
    """Records what was done with the bytes of its peer."""

    reads: list[int]
    most_pieces: int
    rested: threading.Event
    full: threading.Event
    most_unread: int

    def pause_writing(self) -> None:
        Watched.most_unread = max(Watched.most_unread, self.transport.get_write_buffer_size())
        super().pause_writing()
        Watched.full.set()

    def data_received(self, data: bytes) -> None:
        Watched.reads.append(len(data))
        super().data_received(data)

    def handle_cont(self, event: Any) -> None:
        super().handle_cont(event)
        Watched.most_pieces = max(Watched.most_pieces, len(self.frames))

    def _end_throttle(self) -> None:
        Watched.rested.set()
        super()._end_throttle()


class Echo:
    """Lets a peer in when ``admit`` is set; serves while ``serve`` is set. ``large``: more than the kernel buffers."""

    def __init__(self) -> None:
        self.asked, self.admit, self.serve, self.got, self.done = (threading.Event() for _ in range(5))
        self.at_once: list[bool] = []
        self.reads_before = 0
        self.admit.set()
        self.serve.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        write = scope["extensions"][WRITE_TEXT]["call"]
        self.at_once.append(write("before the handshake is complete"))
        self.asked.set()
        assert await asyncio.to_thread(self.admit.wait, 20)
        # Turns of the loop in which it would read what has come.
        for _ in range(20):
            await asyncio.sleep(0)
        self.reads_before = len(Watched.reads)
        await send({"type": "websocket.accept", OWNER: 7})
        writing: set[asyncio.Task[None]] = set()
        while (message := await receive())["type"] == "websocket.receive":
            text = message["text"]
            self.got.set()
            await asyncio.to_thread(self.serve.wait, 20)
            if text == "large":
                writing.add(asyncio.ensure_future(cast(Any, send({"type": "websocket.send", "text": "x" * 24_000_000}))))
            elif text == "fill":
                while self.at_once[-1:] != [False] or len(self.at_once) == 1:
                    self.at_once.append(len(self.at_once) < 10_000 and write(f"{len(self.at_once):1000}"))
                self.done.set()
            elif text == "fragments":
                # Held while a long text is sent.
                async with write.__self__._sending_text:
                    self.at_once.append(write("between them"))
                self.done.set()
            elif text == "close":
                await send({"type": "websocket.close", "code": 1000})
                self.at_once.append(write("late"))
                self.done.set()
            elif text == "huge":
                await send({"type": "websocket.send", "text": HUGE})
            elif text != "nothing":
                await send({"type": "websocket.send", "text": text})
            message[DONE]()


@pytest.fixture
def echo() -> Echo:
    Watched.reads, Watched.most_pieces, Watched.rested = [], 0, threading.Event()
    Watched.full, Watched.most_unread = threading.Event(), 0
    return Echo()


@pytest.fixture
def port(echo: Echo) -> Iterator[int]:
    with serving(echo, ws=Watched, ws_per_message_deflate=False) as port:
        yield port


def connected(port: int) -> ClientConnection:
    return websockets.sync.client.connect(f"ws://127.0.0.1:{port}/ahp", proxy=None, compression=None, close_timeout=1)


def send_raw(client: ClientConnection, *data: bytes) -> None:
    client.socket.sendall(b"".join(data))


def code_of_end(client: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed) as ended:
        client.recv(timeout=20)
    return ended.value.rcvd.code if ended.value.rcvd else None


def until(true: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(12_000):
        if true():
            return
        pause.wait(0.005)
    raise AssertionError("it did not come")


def test_nothing_is_read_before_the_handshake_is_accepted(port: int, echo: Echo) -> None:
    echo.admit.clear()
    with Connection(port) as client:
        client.head("GET", "/ahp", **HANDSHAKE)
        assert echo.asked.wait(10)
        client.send(frame(TEXT, b"x" * 60_000, size=1_000_000))
        echo.admit.set()
        client.send(b"x" * 940_000)
        answer = b""
        while len(answer) < 1_000_000:
            answer += client._socket.recv(65536)
    assert answer.startswith(b"HTTP/1.1 101")
    # The handshake itself.
    assert echo.reads_before == 1


def test_empty_fragments_take_no_memory(port: int) -> None:
    with connected(port) as client:
        send_raw(client, frame(TEXT, b"he", last=False), *[frame(CONTINUATION, last=False)] * 1000, frame(CONTINUATION, b"llo"))
        assert client.recv(timeout=20) == "hello"
    assert Watched.most_pieces == 1


def test_a_peer_that_reads_nothing_gets_one_pong_for_many_pings(port: int, echo: Echo) -> None:
    with Connection(port) as client:
        client.head("GET", "/ahp", **HANDSHAKE)
        while b"\r\n\r\n" not in client._read:
            client._more()
        client.send(frame(TEXT, b"large"))
        assert Watched.full.wait(10)
        pings = [frame(PING, b"%4d" % number) for number in range(1000)]
        assert echo.got.wait(10)
        echo.got.clear()
        client.send(frame(TEXT, b"nothing"))
        assert echo.got.wait(10)
        echo.got.clear()
        client.send(b"".join([*pings, frame(TEXT, b"nothing")]))
        assert echo.got.wait(10)
        read = b""
        while b"\x8a\x04 999" not in read:
            more = client._socket.recv(1_000_000)
            assert more
            read += more
    assert read.count(b"\x8a\x04") == 1


def test_a_flood_of_small_frames_is_read_slowly_and_completely(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # So slowly that a machine under pressure is faster.
    monkeypatch.setattr("agenthost.websocket._FRAMES_PER_SECOND", 30)
    with connected(port) as client:
        send_raw(client, frame(PONG) * 2100, frame(TEXT, b"after it"))
        assert client.recv(timeout=60) == "after it"
    assert Watched.rested.is_set()


def test_buffered_messages_are_limited_per_tenant(port: int, echo: Echo, settings: Settings) -> None:
    settings.AGENTHOST_BODIES_BYTES = 400_000
    held = bodies.BUDGET.held
    with connected(port) as first, connected(port) as second:
        send_raw(first, frame(TEXT, b"x" * 119_999, size=120_000))
        until(lambda: bodies.BUDGET.held >= held + 119_999)
        send_raw(second, frame(TEXT, b"x" * 119_999, size=120_000))
        assert code_of_end(second) == 1013
        # What is complete counts until it is served.
        echo.serve.clear()
        send_raw(first, b"x")
        assert echo.got.wait(10)
        with connected(port) as third:
            send_raw(third, frame(TEXT, b"x" * 119_999, size=120_000))
            assert code_of_end(third) == 1013
        echo.serve.set()
        assert len(first.recv(timeout=20)) == 120_000
        for _ in range(5):
            first.send("y" * 120_000)
            assert len(first.recv(timeout=20)) == 120_000
    until(lambda: bodies.BUDGET.held == held)


def test_an_incomplete_message_times_out_but_an_idle_connection_does_not(port: int, settings: Settings) -> None:
    settings.AGENTHOST_BODY_SECONDS = 0.2
    with connected(port) as quiet, connected(port) as late, connected(port) as fragments:
        quiet.send("one")
        assert quiet.recv(timeout=20) == "one"
        send_raw(late, frame(TEXT, b"x", size=10))
        send_raw(fragments, frame(TEXT, b"x", last=False))
        assert (code_of_end(late), code_of_end(fragments)) == (1013, 1013)
        quiet.send("two")
        assert quiet.recv(timeout=20) == "two"


@pytest.mark.rule("R6")
def test_a_large_text_is_written_as_the_peer_reads_it_and_arrives_whole(port: int) -> None:
    address = f"ws://127.0.0.1:{port}/ahp"
    with websockets.sync.client.connect(address, proxy=None, compression=None, close_timeout=1, max_size=None) as client:
        client.send("huge")
        assert Watched.full.wait(20)
        text = client.recv(timeout=60)
        # Not in an assert that would show the difference.
        is_whole = text == HUGE
        assert is_whole
        for size in (0, 1, 65_535, 65_536, 65_537, 131_072):
            client.send("y" * size)
            assert client.recv(timeout=20) == "y" * size
    assert Watched.most_unread < 500_000


def test_a_text_is_written_at_once_unless_the_peer_has_to_read_first(port: int, echo: Echo) -> None:
    with connected(port) as client:
        client.send("fill")
        assert echo.done.wait(20)
        assert (echo.at_once[:2], len(echo.at_once) < 10_000) == ([False, True], True)
        # Within one turn of the loop, in which the transport asks for no pause.
        assert Watched.most_unread < 100_000
        count = len(echo.at_once) - 2
        assert [client.recv(timeout=20) for _ in range(count)] == [f"{number:1000}" for number in range(1, count + 1)]
        echo.done.clear()
        client.send("é")
        assert client.recv(timeout=20) == "é"
        client.send("close")
        assert code_of_end(client) == 1000
        assert echo.done.wait(20)
        assert not echo.at_once[-1]


def test_nothing_is_written_into_a_text_that_is_sent_in_fragments(port: int, echo: Echo) -> None:
    with connected(port) as client:
        client.send("fragments")
        assert echo.done.wait(20)
        assert not echo.at_once[-1]
        client.send("whole")
        assert client.recv(timeout=20) == "whole"
