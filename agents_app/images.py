"""Validates images: format, size and complete structure, without decoding pixels. Pure.

A vendor refuses a whole request for one broken image, and an image stays in a session's history: once stored, it would
break every later turn.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_SIDE = 8_000
MAX_PIXELS = 40_000_000

FORMATS: Mapping[str, str] = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WebP"}
"""Media types that every vendor with image input accepts, with the format's name."""

# Only a format's signature: clients send it to find out whether images are accepted.
# It has no content that could be broken.
_BARE: Mapping[str, int] = {"image/png": 8, "image/jpeg": 4, "image/gif": 6, "image/webp": 12}
# A common spelling, which the providers replace by the usual one.
_OTHER_NAMES = {"image/jpg": "image/jpeg"}
_DATA = re.compile(r"data:(image/[A-Za-z0-9][A-Za-z0-9.+-]*)(?:;[A-Za-z0-9.+-]+=[A-Za-z0-9.+-]*)*;base64,")
_most_bytes = 5 * 1024 * 1024


class BadImage(Exception):
    """The image is not valid for models; ``reason`` is for the client that sent it."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Image:
    """``media_type`` is the actual type of the bytes, in its usual spelling. A bare signature has no size."""

    media_type: str
    data: bytes
    width: int
    height: int


def set_most_bytes(count: int) -> None:
    """Set the operator's limit of one image, in decoded bytes."""
    global _most_bytes
    _most_bytes = count


def media_type(name: str) -> str:
    """The usual spelling of a media type; an unknown one in lower case."""
    small = name.strip().lower()
    return _OTHER_NAMES.get(small, small)


def read(url: str) -> Image:
    """The image of a ``data:`` address; ``BadImage`` if it is broken, too large or of another type than declared."""
    start = _DATA.match(url)
    if start is None:
        raise BadImage("an image's data must be written as data:image/…;base64,…")
    if (len(url) - start.end()) // 4 * 3 > _most_bytes + 2:
        raise BadImage(f"the image is larger than {_most_bytes} bytes")
    try:
        data = base64.b64decode(url[start.end() :], validate=True)
    except (ValueError, binascii.Error):
        data = b""
    if not data:
        raise BadImage("the image's base64 is broken")
    return check(start[1], data)


def check(declared: str, data: bytes) -> Image:
    """The image in ``data``; ``BadImage`` unless it is valid and of the declared media type."""
    if len(data) > _most_bytes:
        raise BadImage(f"the image is larger than {_most_bytes} bytes")
    wanted = media_type(declared)
    if wanted not in FORMATS:
        raise BadImage("an image must be PNG, JPEG, GIF or WebP")
    found = _sniffed(data)
    if found is None:
        raise BadImage(f"the image is broken: it does not begin like a {FORMATS[wanted]}")
    if found != wanted:
        raise BadImage(f"the image says that it is {wanted}, but it is {found}")
    if len(data) <= _BARE[found]:
        return Image(found, data, 0, 0)
    try:
        width, height = _READERS[found](data)
    except (struct.error, IndexError):
        raise BadImage(f"the image is broken: its {FORMATS[found]} data ends too early") from None
    except _BrokenError as error:
        raise BadImage(f"the image is broken: {error}") from None
    if not width or not height:
        raise BadImage("the image is broken: it has no width or no height")
    if max(width, height) > MAX_SIDE or width * height > MAX_PIXELS:
        raise BadImage(
            f"the image is too large: {width} x {height} pixels; at most {MAX_SIDE} a side and {MAX_PIXELS} together are taken"
        )
    return Image(found, data, width, height)


class _BrokenError(Exception):
    """A fault of the bytes, worded to follow a colon."""


def _sniffed(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


# --- PNG: chunks. Checksums are not compared: decoders differ in what they accept, and truncation is found without them ---

_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def _png(data: bytes) -> tuple[int, int]:
    at, drawn, palette = 8, False, False
    kind, width, height, colours = b"", 0, 0, 0
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise IndexError
        if (at == 8) != (kind == b"IHDR"):
            raise _BrokenError("its PNG header is missing or in the wrong place")
        if kind == b"IHDR":
            width, height, depth, colours, compression, filtering, interlace = struct.unpack_from(">IIBBBBB", data, at + 8)
            if length != 13 or depth not in _PNG_DEPTHS.get(colours, ()) or compression or filtering or interlace > 1:
                raise _BrokenError("its PNG header has invalid values")
        palette = palette or kind == b"PLTE"
        drawn = drawn or (kind == b"IDAT" and length > 0)
        at = end
    if not drawn:
        raise _BrokenError("there are no pixels in the PNG")
    if colours == 3 and not palette:
        raise _BrokenError("the PNG has no palette")
    return width, height


# --- JPEG: segments, and between them coded pixels up to the next marker ---

_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg(data: bytes) -> tuple[int, int]:
    at, size, drawn = 2, (0, 0), False
    while True:
        # Any number of fill bytes may come before a marker.
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if data[at] != 0xFF:
            raise _BrokenError("a JPEG marker is missing")
        marker = data[at + 1]
        at += 2
        if marker == 0xD9:
            break
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if length < 2:
            raise _BrokenError("a JPEG segment has an impossible length")
        if at + length > len(data):
            raise IndexError
        if marker in _FRAMES:
            height, width, components = struct.unpack_from(">xxxHHB", data, at)
            if length != 8 + 3 * components or not components:
                raise _BrokenError("its JPEG header has invalid values")
            size = (width, height)
        at += length
        if marker == 0xDA:
            if size == (0, 0):
                raise _BrokenError("the JPEG has no header before its pixels")
            following = _MARKER.search(data, at)
            if following is None:
                raise IndexError
            drawn = drawn or following.start() > at
            at = following.start()
    if not drawn:
        raise _BrokenError("there are no pixels in the JPEG")
    return size


# --- GIF: blocks, whose content comes in pieces of up to 255 bytes ---


def _gif(data: bytes) -> tuple[int, int]:
    width, height, packed = struct.unpack_from("<HHB", data, 6)
    at, drawn = 13 + _gif_colours(packed), False
    while data[at] != 0x3B:
        if data[at] == 0x21:
            at = _gif_end(data, at + 2)
        elif data[at] == 0x2C:
            left, top, own_width, own_height, packed = struct.unpack_from("<HHHHB", data, at + 1)
            # Some encoders write no canvas size; the first frame's size counts then.
            width, height = max(width, left + own_width), max(height, top + own_height)
            at += 10 + _gif_colours(packed)
            if not 1 <= data[at] <= 11:
                raise _BrokenError("the GIF's pixels have an unknown code size")
            drawn = drawn or (data[at + 1] > 0 and own_width > 0 and own_height > 0)
            at = _gif_end(data, at + 1)
        else:
            raise _BrokenError("a GIF block has an unknown type")
    if not drawn:
        raise _BrokenError("there are no pixels in the GIF")
    return width, height


def _gif_colours(packed: int) -> int:
    return 3 << (packed & 7) + 1 if packed & 0x80 else 0


def _gif_end(data: bytes, at: int) -> int:
    while piece := data[at]:
        at += piece + 1
    return at + 1


# --- WebP: RIFF chunks; the plain form has one, the extended form several ---


def _webp(data: bytes) -> tuple[int, int]:
    (length,) = struct.unpack_from("<I", data, 4)
    end = 8 + length
    if end > len(data):
        raise IndexError
    at, canvas, drawn = 12, (0, 0), (0, 0)
    while at < end and drawn == (0, 0):
        kind, length = struct.unpack_from("<4sI", data, at)
        if at + 8 + length > end:
            raise IndexError
        if kind == b"VP8X":
            canvas = (_three(data, at + 12) + 1, _three(data, at + 15) + 1)
        elif kind == b"ANMF":
            drawn = (_three(data, at + 14) + 1, _three(data, at + 17) + 1)
        elif kind in (b"VP8 ", b"VP8L"):
            drawn = _webp_pixels(kind, data[at + 8 : at + 8 + length])
        at += 8 + length + (length & 1)
    if drawn == (0, 0):
        raise _BrokenError("there are no pixels in the WebP")
    return max(canvas[0], drawn[0]), max(canvas[1], drawn[1])


def _webp_pixels(kind: bytes, pixels: bytes) -> tuple[int, int]:
    if kind == b"VP8L":
        mark, bits = struct.unpack_from("<BI", pixels)
        if mark != 0x2F or bits >> 29:
            raise _BrokenError("its WebP header has invalid values")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    tag, code, width, height = struct.unpack_from("<3s3sHH", pixels)
    if tag[0] & 1 or code != b"\x9d\x01\x2a":
        raise _BrokenError("its WebP header has invalid values")
    # The first partition, whose length is in the tag, must be complete.
    if 10 + (int.from_bytes(tag, "little") >> 5) > len(pixels):
        raise IndexError
    return width & 0x3FFF, height & 0x3FFF


def _three(data: bytes, at: int) -> int:
    if at + 3 > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + 3], "little")


_READERS: Mapping[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}
