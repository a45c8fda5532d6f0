"""Amazon's binary event stream: frames out of bytes as they arrive. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from agents_app.providers.faults import Unreadable
from agents_app.providers.sse import MAX_EVENT_BYTES, EventTooLong

_PRELUDE = 12
_CHECKSUM = 4
# Sizes of headers' values by their kind; None: two bytes tell it.
_SIZES: Mapping[int, int | None] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16}
_TEXT = 7


@dataclass(frozen=True, slots=True)
class Frame:
    headers: Mapping[str, str]
    """Those with a text."""
    payload: bytes


class FrameSplitter:
    """Fed with chunks cut anywhere, gives each complete frame. ``Unreadable`` for what is none."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, chunk: bytes) -> list[Frame]:
        self._held += chunk
        frames: list[Frame] = []
        while len(self._held) >= _PRELUDE:
            size, headers_size, checksum = struct.unpack_from("!III", self._held)
            if zlib.crc32(self._held[: _PRELUDE - _CHECKSUM]) != checksum or size < _PRELUDE + headers_size + _CHECKSUM:
                raise Unreadable
            if size > MAX_EVENT_BYTES:
                raise EventTooLong
            if len(self._held) < size:
                break
            frame = bytes(self._held[:size])
            del self._held[:size]
            if zlib.crc32(frame[:-_CHECKSUM]) != struct.unpack_from("!I", frame, size - _CHECKSUM)[0]:
                raise Unreadable
            at = _PRELUDE + headers_size
            frames.append(Frame(_headers(frame[_PRELUDE:at]), frame[at:-_CHECKSUM]))
        return frames

    def finish(self) -> list[Frame]:
        """Half a frame is none."""
        return []


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            length = data[at]
            name = data[at + 1 : at + 1 + length].decode()
            at += 1 + length
            kind, at = data[at], at + 1
            size = _SIZES[kind]
            if size is None:
                (size,) = struct.unpack_from("!H", data, at)
                at += 2
            if kind == _TEXT:
                found[name] = data[at : at + size].decode()
            at += size
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        raise Unreadable from None
    return found
