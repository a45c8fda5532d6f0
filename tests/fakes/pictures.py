"""Small real pictures of each format that models take, made here byte by byte."""

from __future__ import annotations

import base64
import struct
import zlib


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int = 1, height: int = 1, *, pixels: bytes | None = None, header: bytes = b"\x08\x02\x00\x00\x00") -> bytes:
    """Black, in true colours. Of a large one the pixels are left out, nobody unpacks them here."""
    drawn = zlib.compress(pixels if pixels is not None else bytes((1 + 3 * min(width, 64)) * min(height, 64)))
    start = png_chunk(b"IHDR", struct.pack(">II", width, height) + header)
    return b"\x89PNG\r\n\x1a\n" + start + png_chunk(b"IDAT", drawn) + png_chunk(b"IEND", b"")


def jpeg_segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def jpeg(width: int = 1, height: int = 1, *, frame: int = 0xC0) -> bytes:
    """One grey component, each block by one code of the shortest table."""
    table = bytes([1]) + bytes(15) + b"\x00"
    return b"".join(
        [
            b"\xff\xd8",
            jpeg_segment(0xE0, b"JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"),
            jpeg_segment(0xDB, b"\x00" + bytes([16] * 64)),
            jpeg_segment(frame, struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"),
            jpeg_segment(0xC4, b"\x00" + table),
            jpeg_segment(0xC4, b"\x10" + table),
            jpeg_segment(0xDA, b"\x01\x01\x00\x00\x3f\x00"),
            b"\x3f",
            b"\xff\xd9",
        ]
    )


def gif(width: int = 1, height: int = 1, *, version: bytes = b"GIF89a", frames: int = 1) -> bytes:
    screen = version + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\x00\x00\x00\xff\xff\xff"
    control = b"\x21\xf9\x04\x00\x00\x00\x00\x00"
    # Clear, one pixel of colour 0, end: three codes of three bits.
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\x00"
    return screen + (control + frame) * frames + b"\x3b"


def webp_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\x00" * (len(data) & 1)


def riff(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_lossless(width: int = 1, height: int = 1) -> bytes:
    """The bits after the header are those of one opaque black pixel."""
    return webp_chunk(b"VP8L", struct.pack("<BI", 0x2F, width - 1 | height - 1 << 14) + bytes.fromhex("1007111188880800"))


def webp_lossy(width: int = 1, height: int = 1) -> bytes:
    first = bytes.fromhex("0034 2500 b002 74 00".replace(" ", ""))
    tag = (len(first) << 5 | 1 << 4).to_bytes(3, "little")
    return webp_chunk(b"VP8 ", tag + b"\x9d\x01\x2a" + struct.pack("<HH", width, height) + first + bytes(4))


def webp_canvas(width: int, height: int) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp_chunk(b"VP8X", b"\x10\x00\x00\x00" + sides)


def webp_frame(picture: bytes, width: int = 1, height: int = 1) -> bytes:
    sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return webp_chunk(b"ANMF", bytes(6) + sides + bytes(4) + picture)


def webp(width: int = 1, height: int = 1) -> bytes:
    return riff(webp_lossless(width, height))


def data_url(picture: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(picture).decode()}"


PIXEL = data_url(png())
