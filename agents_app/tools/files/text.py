"""Text and binary files: how the tools decode, count and show lines. Pure."""

from __future__ import annotations

import mimetypes

SNIFFED = 8 * 1024
LONGEST_LINE = 2_000
"""Characters of a line that are shown."""
BOM = "\ufeff"
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"\xff\xfe", "text/plain in UTF-16"),
    (b"\xfe\xff", "text/plain in UTF-16"),
)


def binary_type(name: str, start: bytes) -> str | None:
    """The type of a file that is not text, from its first bytes; None if it looks like text."""
    for signature, kind in _SIGNATURES:
        if start.startswith(signature):
            return kind
    if b"\0" not in start[:SNIFFED]:
        return None
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def decoded(data: bytes) -> str:
    """Text that ``encoded`` turns into exactly the same bytes, also if they are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_utf8(text: str) -> bool:
    """Whether all bytes of a decoded text were UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Decoded text without bytes that are not UTF-8."""
    return text if is_utf8(text) else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def on_one_line(name: str) -> str:
    """A file's name for a list of names: control characters, such as a line feed, are shown as their escapes."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in printable(name))


def lines_of(text: str) -> list[str]:
    """The lines with their ends; only a line feed ends a line, as in every editor's count."""
    found = text.split("\n")
    last = found.pop()
    ended = [line + "\n" for line in found]
    return [*ended, last] if last else ended


def count_lines(text: str) -> int:
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)


def uses_crlf(text: str) -> bool:
    """Whether every line of the text ends with CR LF."""
    ends = text.count("\n")
    return ends > 0 and text.count("\r\n") == ends


def numbered(number: int, line: str) -> str:
    return f"{number:>6}\t{cut(printable(line.rstrip(chr(10)).removesuffix(chr(13))))}"


def cut(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]} [{len(line) - LONGEST_LINE:,} more characters in this line]"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('ch') else 's'}"
