"""Reads a response's body, decompressed, up to a size limit.

The limit counts decompressed bytes, and memory never holds more than one piece beyond it, so a small body that expands to
gigabytes stops at the limit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from agents_app.outbound.request import Answer, FetchFailed

_GZIP, _ZLIB, _RAW = 31, 15, -15
# Limit of concatenated streams in one body: some compressors write a few, and many empty ones are an attack.
_MAX_STREAMS = 1_000
# Compressed content is rarely larger than its result; a body that yields nothing for long is an attack.
_OVERHEAD = 256 * 1024
_BROKEN = "its compressed content is broken"


async def read(answer: Answer, limit: int) -> tuple[bytes, bool]:
    """The content, and whether it is longer than ``limit`` bytes."""
    unpack = _unpacker(answer.headers.get("Content-Encoding", ""))
    pieces: list[bytes] = []
    room, came = limit + 1, 0
    async for chunk in answer.content.iter_any():
        piece = chunk if unpack is None else unpack(chunk, room)
        pieces.append(piece[:room])
        room -= len(pieces[-1])
        if room <= 0:
            return b"".join(pieces)[:limit], True
        came += len(chunk)
        if came > limit + _OVERHEAD:
            raise FetchFailed(_BROKEN)
    if unpack is not None and unpack.unfinished:
        raise FetchFailed(_BROKEN)
    return b"".join(pieces), False


def _unpacker(header: str) -> _Unpacker | None:
    match header.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Unpacker(lambda _: _GZIP)
        case "deflate":
            # Many servers send "deflate" without the zlib wrapper.
            return _Unpacker(lambda first: _ZLIB if first & 0x0F == 8 else _RAW)
    raise FetchFailed("its content is compressed in an unsupported way")


class _Unpacker:
    def __init__(self, window: Callable[[int], int]) -> None:
        self._window = window
        self._stream: zlib._Decompress | None = None
        self._begun = 0

    def __call__(self, chunk: bytes, room: int) -> bytes:
        """At most ``room`` decompressed bytes of the chunk; the caller stops at its limit."""
        out: list[bytes] = []
        while chunk and room > 0:
            if self._stream is None:
                # Another stream or padding follows a complete stream.
                if self._begun and not chunk.strip(b"\0"):
                    break
                self._begun += 1
                if self._begun > _MAX_STREAMS:
                    raise FetchFailed(_BROKEN)
                self._stream = zlib.decompressobj(self._window(chunk[0]))
            try:
                piece = self._stream.decompress(chunk, room)
            except zlib.error:
                raise FetchFailed(_BROKEN) from None
            out.append(piece)
            room -= len(piece)
            if self._stream.eof:
                chunk, self._stream = self._stream.unused_data, None
            else:
                chunk = self._stream.unconsumed_tail
        return b"".join(out)

    @property
    def unfinished(self) -> bool:
        return self._stream is not None
