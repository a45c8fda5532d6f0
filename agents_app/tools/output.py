"""Converts a tool's result to content for the model: text, blocks or JSON, within a size limit."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from agents_app import exact_json, images
from agents_app.errors import ToolFailed
from agents_app.runtime.messages import Content

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_IMAGE = re.compile(r"https://\S+|data:image/[\w.+-]+;base64,[A-Za-z0-9+/]+={0,2}")
REPLACEMENT = "\ufffd"


def as_content(value: Any, limit: int) -> Content:
    """A string unchanged, a list of text and image blocks as blocks, anything else as JSON.

    At most ``limit`` bytes; longer text ends with a note. ``ToolFailed`` for a value without a JSON form.
    """
    if isinstance(value, str):
        return cut(clean(value), limit)
    if _is_blocks(value):
        return _blocks(value, limit)
    try:
        return cut(clean(exact_json.dumps(value)), limit)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed("its result has no JSON form") from error


def clean(text: str) -> str:
    """``text`` without characters that the database cannot store."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def cut(text: str, limit: int) -> str:
    """``text``, or its beginning and a note, in at most ``limit`` bytes of UTF-8."""
    # A character has at most four bytes, so short texts need not be encoded.
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    note = f"\n[cut after {limit} bytes]".encode()
    room = limit - len(note)
    if room < 0:
        return encoded[:limit].decode(errors="ignore")
    return encoded[:room].decode(errors="ignore") + note.decode()


def collect(pieces: Iterator[Any], limit: int) -> Any:
    """The items of a generator: strings joined, read up to ``limit``; otherwise a list."""
    gathered = _Gathered(limit)
    try:
        for piece in pieces:
            if gathered.full(piece):
                break
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
    return gathered.value


async def collect_async(pieces: AsyncIterator[Any], limit: int) -> Any:
    """``collect`` for an asynchronous generator."""
    gathered = _Gathered(limit)
    try:
        async for piece in pieces:
            if gathered.full(piece):
                break
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()
    return gathered.value


class _Gathered:
    def __init__(self, limit: int) -> None:
        self._limit, self._size, self._pieces = limit, 0, list[Any]()

    def full(self, piece: Any) -> bool:
        """Add a piece; returns True when the limit is reached."""
        self._pieces.append(piece)
        # A character and a list item have at least one byte each; text beyond the limit would be cut.
        self._size += len(piece) if isinstance(piece, str) else 1
        return self._size > self._limit

    @property
    def value(self) -> Any:
        if all(isinstance(piece, str) for piece in self._pieces):
            return "".join(self._pieces)
        return self._pieces


def _is_blocks(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_block(item) for item in value)


def _is_block(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    if item.keys() == {"type", "text"}:
        return item["type"] == "text" and isinstance(item["text"], str)
    if item.keys() == {"type", "url"}:
        return item["type"] == "image" and isinstance(item["url"], str) and _IMAGE.fullmatch(item["url"]) is not None
    return False


def _check_image(url: str) -> None:
    if url.startswith("data:"):
        try:
            images.read(url)
        except images.BadImage as error:
            raise ToolFailed(f"its result holds an image that cannot be used: {error.reason}") from None


def _blocks(value: list[Mapping[str, str]], limit: int) -> Content:
    out: list[dict[str, str]] = []
    left = limit
    for item in value:
        if item["type"] == "image":
            left -= len(item["url"])
            if left < 0:
                raise ToolFailed(f"its result is larger than {limit} bytes")
            _check_image(item["url"])
            out.append({"type": "image", "url": clean(item["url"])})
            continue
        text = cut(clean(item["text"]), max(left, 0))
        left -= len(text.encode())
        if text or not item["text"]:
            out.append({"type": "text", "text": text})
    return out
