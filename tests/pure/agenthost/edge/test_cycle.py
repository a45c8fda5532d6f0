"""The heads of responses, as bytes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from agenthost.edge.cycle import Cycle


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    @property
    def data(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def cycle(transport: Written, *, method: str = "GET", keep_alive: bool = True, expects_continue: bool = False) -> Cycle:
    flow = FlowControl(cast(asyncio.Transport, transport))
    date = [(b"date", b"today")]
    return Cycle(
        {"method": method},
        cast(asyncio.Transport, transport),
        flow,
        date,
        lambda: None,
        expects_continue=expects_continue,
        keep_alive=keep_alive,
    )


async def respond(headers: list[tuple[bytes, bytes]], body: bytes = b"ok", *, status: int = 200, **options: Any) -> Written:
    transport = Written()
    made = cycle(transport, **options)
    await made.send({"type": "http.response.start", "status": status, "headers": headers})
    await made.send({"type": "http.response.body", "body": body, "more_body": False})
    return transport


async def test_a_response_with_a_length() -> None:
    written = await respond([(b"Content-Length", b"2"), (b"X-Some", b"a\tb")])
    assert written.data == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\nx-some: a\tb\r\n\r\nok"
    assert not written.closed


async def test_a_response_without_a_length_is_sent_in_chunks() -> None:
    written = await respond([])
    assert written.data == b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


@pytest.mark.parametrize("length", [0, 2, 1_000_000])
async def test_a_head_and_its_body_are_written_together(length: int) -> None:
    for headers in ([], [(b"content-length", b"%d" % length)]):
        written = await respond(headers, b"x" * length)
        assert len(written.writes) == 1
        assert written.data.count(b"x") == length


async def test_a_head_does_not_wait_for_a_body_that_comes_later() -> None:
    transport = Written()
    made = cycle(transport)
    await made.send({"type": "http.response.start", "status": 200, "headers": []})
    await asyncio.sleep(0)
    assert transport.data.endswith(b"\r\n\r\n")
    await made.send({"type": "http.response.body", "body": b"late", "more_body": True})
    assert transport.writes[1:] == [b"4\r\nlate\r\n"]


async def test_a_response_that_is_broken_off_before_its_body_sends_nothing() -> None:
    transport = Written()
    made = cycle(transport)
    await made.send({"type": "http.response.start", "status": 200, "headers": []})
    transport.close()
    await asyncio.sleep(0)
    assert transport.writes == []


@pytest.mark.parametrize(("status", "method"), [(204, "GET"), (304, "GET"), (200, "HEAD")])
async def test_a_response_without_a_body_has_no_framing(status: int, method: str) -> None:
    written = await respond([], b"", status=status, method=method)
    assert written.data.partition(b"\r\n")[2] == b"date: today\r\n\r\n"


async def test_the_last_response_of_a_connection_announces_that_it_closes() -> None:
    written = await respond([(b"content-length", b"2")], keep_alive=False)
    assert b"connection: close\r\n" in written.data
    assert written.closed


@pytest.mark.parametrize("value", [b"close", b"Keep-Alive, Close"])
async def test_an_application_can_close_the_connection(value: bytes) -> None:
    written = await respond([(b"content-length", b"2"), (b"Connection", value)])
    assert written.data.lower().count(b"close") == 1
    assert written.closed


@pytest.mark.parametrize("header", [(b"x-a", b"1\r\nx-b: 2"), (b"x-a", b"1\x00"), (b"x-a: 1\r\nx-b", b"2"), (b"x a", b"1")])
async def test_a_header_cannot_contain_another(header: tuple[bytes, bytes]) -> None:
    transport = Written()
    with pytest.raises(RuntimeError):
        await cycle(transport).send({"type": "http.response.start", "status": 200, "headers": [header]})
    assert transport.data == b""


async def test_a_body_has_arrived_when_receive_would_return_at_once() -> None:
    made = cycle(Written())
    assert not made.has_body()
    made.body += b"x"
    made.message_event.set()
    assert made.has_body()
    await made.receive()
    assert not made.has_body()


async def test_a_body_that_waits_to_be_requested_has_not_arrived() -> None:
    made = cycle(Written(), expects_continue=True)
    made.message_event.set()
    assert not made.has_body()


async def test_a_chunk_is_written_at_once_only_between_the_parts_of_a_chunked_body() -> None:
    transport = Written()
    made = cycle(transport)
    assert not made.write_now(b"early")
    await made.send({"type": "http.response.start", "status": 200, "headers": []})
    assert not made.write_now(b"before the head")
    await made.send({"type": "http.response.body", "body": b"one", "more_body": True})
    assert made.write_now(b"two")
    await made.send({"type": "http.response.body", "body": b"three", "more_body": False})
    assert not made.write_now(b"late")
    assert transport.data.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n")


async def test_no_chunk_is_written_at_once_while_the_client_has_to_read_or_has_gone() -> None:
    transport = Written()
    made = cycle(transport)
    await made.send({"type": "http.response.start", "status": 200, "headers": []})
    await made.send({"type": "http.response.body", "body": b"one", "more_body": True})
    written = transport.data
    made.flow.pause_writing()
    assert not made.write_now(b"two")
    made.flow.resume_writing()
    made.disconnected = True
    assert not made.write_now(b"two")
    made.disconnected, transport.closed = False, True
    assert not made.write_now(b"two")
    assert transport.data == written


@pytest.mark.parametrize(("method", "headers"), [("HEAD", []), ("GET", [(b"content-length", b"9")])])
async def test_no_chunk_is_written_at_once_into_a_body_without_chunks(method: str, headers: list[tuple[bytes, bytes]]) -> None:
    transport = Written()
    made = cycle(transport, method=method)
    await made.send({"type": "http.response.start", "status": 200, "headers": headers})
    await made.send({"type": "http.response.body", "body": b"one", "more_body": True})
    assert not made.write_now(b"two")
