"""Content as it comes: unpacked, bounded, broken, endless."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib

import pytest

from agents_app.outbound import body, request
from agents_app.outbound.guard import Guard
from agents_app.outbound.policy import Policy
from agents_app.outbound.request import FetchFailed
from tests.network.agents_app.outbound.site import Writer, answer, running

TEXT = b"".join(b"line %d\n" % number for number in range(2_000))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


async def read(page: object, limit: int = 100_000) -> tuple[bytes, bool]:
    async with running() as site:
        site.pages = {"/": page}  # type: ignore[dict-item]
        guard = Guard(Policy.of([f"127.0.0.1:{site.port}"], [80]))
        async with request.get(site.url(), guard) as got:
            return await body.read(got, limit)


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("GZIP", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:500]) + gzip.compress(TEXT[500:])),
        ("gzip", gzip.compress(TEXT) + bytes(512)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
    ],
)
@pytest.mark.parametrize("limit", [len(TEXT), len(TEXT) - 1, 1])
async def test_content_is_unpacked_up_to_the_limit(encoding: str, packed: bytes, limit: int) -> None:
    assert await read(answer(packed, f"Content-Encoding: {encoding}"), limit) == (TEXT[:limit], limit < len(TEXT))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_content_that_comes_byte_by_byte_is_the_same(encoding: str) -> None:
    packed = gzip.compress(TEXT) if encoding == "gzip" else raw_deflate(TEXT)

    async def drip(reader: asyncio.StreamReader, writer: Writer) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(packed)}\r\n\r\n".encode())
        for at in range(len(packed)):
            writer.write(packed[at : at + 1])
            await writer.drain()

    assert await read(drip) == (TEXT, False)


@pytest.mark.parametrize("encoding", ["", "none", "br", "zstd", "compress", "gzip, gzip", "gzip,deflate", "x"])
async def test_another_compression_than_asked_for_is_not_guessed_at(encoding: str) -> None:
    page = answer(TEXT, f"Content-Encoding: {encoding}")
    if not encoding:
        assert await read(page) == (TEXT, False)
        return
    with pytest.raises(FetchFailed, match="compressed in an unsupported way"):
        await read(page)


@pytest.mark.parametrize(
    "packed",
    [b"plain after all", gzip.compress(TEXT)[:-300], gzip.compress(TEXT)[:-4] + b"\0\0\0\0", gzip.compress(TEXT) + b"rubbish"],
    ids=["not packed", "cut", "wrong length", "rubbish behind"],
)
async def test_broken_compression_is_said(packed: bytes) -> None:
    with pytest.raises(FetchFailed, match="compressed content is broken"):
        await read(answer(packed, "Content-Encoding: gzip"))


async def test_a_bomb_is_never_unpacked_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0
    real = zlib.decompressobj

    class Watched:
        def __init__(self, window: int) -> None:
            self.stream = real(window)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal largest
            piece = self.stream.decompress(data, most)
            largest = max(largest, len(piece))
            return piece

        def __getattr__(self, name: str) -> object:
            return getattr(self.stream, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(300)) + packer.flush()
    assert len(bomb) < 400_000
    assert await read(answer(bomb, "Content-Encoding: gzip"), 50_000) == (bytes(50_000), True)
    assert largest == 50_001


async def test_an_endless_answer_is_read_to_the_limit_and_closed() -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 10_000)
                await writer.drain()
        except ConnectionError:
            gone.set()

    async with asyncio.timeout(60):
        assert await read(endless, 30_000) == (b"x" * 30_000, True)
        await gone.wait()


@pytest.mark.parametrize(
    ("start", "unit"),
    [(b"", gzip.compress(b"")), (b"\x1f\x8b\x08\x08\0\0\0\0\0\0", b"a name that never ends "), (b"", gzip.compress(b"x"))],
    ids=["empty streams", "a name", "tiny streams"],
)
@pytest.mark.timeout(60)
async def test_compressed_content_that_says_nothing_for_ever_is_given_up(start: bytes, unit: bytes) -> None:
    async def endless(reader: asyncio.StreamReader, writer: Writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + start)
        while True:
            writer.write(unit * 1_000)
            await writer.drain()

    with pytest.raises(FetchFailed, match="compressed content is broken"):
        await read(endless)


async def test_noise_as_compressed_content_is_content_or_a_failure() -> None:
    chance = random.Random(7)
    for _ in range(60):
        packed = bytearray(gzip.compress(TEXT[: chance.randrange(1, 3_000)]))
        packed[chance.randrange(len(packed))] = chance.randrange(256)
        try:
            content, _more = await read(answer(bytes(packed), "Content-Encoding: gzip"))
        except FetchFailed:
            continue
        assert TEXT.startswith(content)
