"""An answer's content, decompressed and bounded while it is read.

The limit holds for what comes out of the decompression, never more than a piece beyond it is in memory: a few kilobytes
that unpack to gigabytes end at the limit like anything else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from agents_app.outbound.request import Answer, FetchFailed

_GZIP, _ZLIB, _RAW = 31, 15, -15
# Streams one after the other in one content: some packers make a few, nobody needs many empty ones.
_MAX_STREAMS = 1_000
# Packed content is hardly ever larger than what is in it; whoever sends more for nothing only wants to be listened to.
_OVERHEAD = 256 * 1024
_BROKEN = "its compressed content is broken"


async def read(answer: Answer, limit: int) -> tuple[bytes, bool]:
    """(the content, whether it goes on beyond ``limit`` bytes)."""
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
            # Half of the world's servers leave out the wrapper that the name promises.
            return _Unpacker(lambda first: _ZLIB if first & 0x0F == 8 else _RAW)
    raise FetchFailed("its content is compressed in a way that was not asked for")


class _Unpacker:
    def __init__(self, window: Callable[[int], int]) -> None:
        self._window = window
        self._stream: zlib._Decompress | None = None
        self._begun = 0

    def __call__(self, chunk: bytes, room: int) -> bytes:
        """At most ``room`` bytes of what is in the chunk; whoever takes that much asks no more."""
        out: list[bytes] = []
        while chunk and room > 0:
            if self._stream is None:
                # What follows a complete stream is another one, or padding.
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
