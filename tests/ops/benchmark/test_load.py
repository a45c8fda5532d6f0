"""The benchmark's load generator: what it counts, and what it refuses to count."""

from __future__ import annotations

import asyncio
import json

import pytest

from ops.benchmark import load
from ops.benchmark.installation import model_server
from ops.benchmark.load import Aap, Address, Connection, DeltaCount, LoadError, Watched, floor
from ops.benchmark.paced_model import model


class Heard(asyncio.Transport):
    """Takes what is written and says nothing."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def test_the_model_server_keeps_the_pace_it_is_named_for() -> None:
    with model_server() as port:
        lines = await floor(port).lines(2, model(6, 50))
        watched = await load.crowd(lines, 2, 0.0)
        load.close(lines)
    load.check(watched, 6)
    assert len(watched) == 4
    assert all(each.first >= 0.019 for each in watched)
    assert all(each.ended - each.asked >= 6 / 50 - 0.001 for each in watched)


async def test_an_unpaced_answer_brings_all_its_tokens() -> None:
    with model_server() as port:
        lines = await floor(port).lines(3, model(1234, 0))
        watched = await load.crowd(lines, 1, 0.0)
        load.close(lines)
    load.check(watched, 1234)


async def test_tokens_are_counted_however_the_stream_is_cut() -> None:
    head, body = b"HTTP/1.1 200 OK\r\n\r\n", b'7\r\n{" token token"}\r\n' * 3 + b"0\r\n\r\n"
    for size in (1, 2, 5, 7, 11, len(body)):
        connection = Connection()
        connection.connection_made(Heard())
        watching = asyncio.ensure_future(connection.watch(b""))
        await asyncio.sleep(0)
        for piece in (head, *(body[at : at + size] for at in range(0, len(body), size))):
            connection.data_received(piece)
        assert (await asyncio.wait_for(watching, 5)).tokens == 6, size


async def test_a_refusal_is_no_figure() -> None:
    with model_server() as port:
        lines = await floor(port).lines(1, "unknown")
        with pytest.raises(LoadError, match="404"):
            await load.crowd(lines, 1, 0.0)
        load.close(lines)


def test_a_stream_that_lost_tokens_is_no_figure() -> None:
    with pytest.raises(LoadError, match="4 tokens instead of 5"):
        load.check([Watched(0.0, tokens=5), Watched(0.0, tokens=4)], 5)


async def test_a_start_that_waits_for_a_free_line_counts_its_wait() -> None:
    with model_server() as port:
        lines = await floor(port).lines(1, model(5, 50))
        watched = await load.open_loop(lines, 3, 1000)
        load.close(lines)
    began = watched[0].asked
    assert [round((each.asked - began) * 1000) for each in watched] == [0, 1, 2]
    # Each stream takes 100 ms, and the only line is free for the third start after two of them.
    assert watched[2].first >= 0.2


def test_each_line_of_several_tenants_has_its_own_key() -> None:
    target = Aap([Address("127.0.0.1", 1, "/aap/v3")], "first", "second")
    heads = [target.turn("s", number).split(b"\r\n\r\n")[0] for number in range(3)]
    assert [b"Bearer first" in head for head in heads] == [True, False, True]
    assert b"POST /aap/v3/sessions/s/turns HTTP/1.1" in heads[0]


def test_a_request_states_its_body_and_no_key_without_one() -> None:
    head, body = load.request("POST", load.local(1, "/v1"), "/x", "", {"a": 1}).split(b"\r\n\r\n")
    assert json.loads(body) == {"a": 1}
    assert f"content-length: {len(body)}".encode() in head
    assert b"authorization" not in head


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_text_of_an_unknown_model_is_counted_in_both_protocols_and_an_empty_piece_is_none(size: int) -> None:
    stream = (
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
        b'data: {"choices":[{"delta":{"content": "Hello"}}]}\n\n'
        b'event: text_delta\ndata: {"delta":" you"}\n\n'
        b'data: {"choices":[{"delta":{}}],"usage":{}}\n\n'
    )
    counter = DeltaCount()
    assert sum(counter.feed(stream[at : at + size]) for at in range(0, len(stream), size)) == 2


async def ask(*pieces: bytes) -> bytes:
    connection = Connection()
    connection.connection_made(Heard())
    asking = asyncio.ensure_future(connection.ask(b""))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    return await asyncio.wait_for(asking, 5)


async def test_a_body_may_have_a_length_or_come_in_chunks() -> None:
    assert await ask(b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nab", b"cd") == b"abcd"
    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", b"2\r\ncd\r", b"\n0\r\n\r\n"
    assert await ask(*chunked) == b"abcd"
    with pytest.raises(LoadError, match="401"):
        await ask(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno")


async def test_a_stream_without_chunks_ends_with_its_connection() -> None:
    connection = Connection()
    connection.connection_made(Heard())
    watching = asyncio.ensure_future(connection.watch(b""))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: token token\n\n")
    connection.connection_lost(None)
    assert (await asyncio.wait_for(watching, 5)).tokens == 2


async def test_a_stream_that_is_cut_off_is_no_figure() -> None:
    connection = Connection()
    connection.connection_made(Heard())
    watching = asyncio.ensure_future(connection.watch(b""))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\n token\r\n")
    connection.connection_lost(None)
    with pytest.raises(LoadError, match="lost"):
        await asyncio.wait_for(watching, 5)


async def test_a_connection_that_the_server_closed_while_idle_is_opened_again() -> None:
    with model_server() as port:
        (line,) = await floor(port).lines(1, model(2, 0))
        line.connection.close()
        line.connection.connection_lost(None)
        assert (await line.connection.watch(line.asked)).tokens == 2
        line.connection.close()
