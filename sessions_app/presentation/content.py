"""Message content for the transcript: shortened and safe to display. Pure.

It returns plain text and checked values; templates escape them.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agents_app import exact_json

TEXT_SHOWN = 20_000
IMAGE_SHOWN = 150_000
"""Characters of a text, and of an inline image's URL, that are shown unless the whole message is requested."""

# No SVG: it is a document, with its own links and styles.
_INLINE_IMAGE = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")
_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


_DIFF_KINDS = {"@": "place", "+": "added", "-": "removed"}


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The start of a text, and the number of characters that are not shown."""

    text: str
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a message. ``image``: a checked data URL, or "" if ``excerpt`` describes the image instead.

    ``diff``: a text that ends with a unified diff.
    """

    kind: Literal["text", "thinking", "call", "image", "unreadable", "diff"]
    excerpt: Excerpt
    call_id: str = ""
    name: str = ""
    image: str = ""

    @property
    def diff_lines(self) -> list[tuple[str, str]]:
        """The lines of a diff, each with what it is: ``note``, ``head``, ``place``, ``added``, ``removed``, ``same``."""
        lines: list[tuple[str, str]] = []
        kind = "note"
        for line in self.excerpt.text.split("\n"):
            if kind == "note" and line.startswith("--- "):
                kind = "head"
            elif kind != "note":
                kind = "head" if kind == "head" and line.startswith("+++ ") else _DIFF_KINDS.get(line[:1], "same")
            lines.append((kind, line))
        return lines


def cut(text: str, most: int | None = TEXT_SHOWN) -> Excerpt:
    if most is None or len(text) <= most:
        return Excerpt(text)
    return Excerpt(text[:most], len(text) - most)


def pretty(text: str) -> str:
    """Indented JSON with the same order of members and the same numbers; other text unchanged."""
    try:
        value = exact_json.loads(text)
        return json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, dict | list) else text
    except (exact_json.NotJSON, RecursionError, ValueError):
        return text


def blocks(content: str, *, most: int | None = TEXT_SHOWN) -> list[Block]:
    """The blocks of a message's content (JSON text), in order. ``most`` None: nothing is cut."""
    try:
        value = exact_json.loads(content)
    except exact_json.NotJSON:
        return [Block("unreadable", cut(content, most))]
    if isinstance(value, str):
        return [Block("text", cut(value, most))] if value else []
    if isinstance(value, list):
        return [_block(item, most) for item in value]
    return [Block("unreadable", cut(content, most))]


def _block(item: Any, most: int | None) -> Block:
    match item:
        case {"type": "text", "text": str(text)}:
            return Block("text", cut(text, most))
        case {"type": "thinking", "thinking": str(text)}:
            return Block("thinking", cut(text, most))
        case {"type": "tool_use", "toolCallId": str(call_id), "name": str(name)}:
            return Block("call", cut(pretty(exact_json.dumps(item.get("input", {}))), most), call_id=call_id, name=name)
        case {"type": "image", "url": str(url)}:
            return _image(url, most)
        case _:
            return Block("unreadable", cut(exact_json.dumps(item), most))


def _image(url: str, most: int | None) -> Block:
    """Small inline images are shown. Other URLs are shown as text: loading one reveals the reader's IP address to its host."""
    match = _INLINE_IMAGE.fullmatch(url) if most is None or len(url) <= IMAGE_SHOWN else None
    if match is not None and _is_picture(match[1], match[2]):
        return Block("image", Excerpt(f"{match[1]}, {_size(len(match[2]) * 3 // 4)}"), image=url)
    if url.startswith("data:"):
        kind = url[len("data:") :].partition(",")[0].partition(";")[0][:40]
        return Block("image", Excerpt(f"inline {kind or 'data'}, {_size(len(url) * 3 // 4)}, not shown"))
    return Block("image", cut(url, 2000))


def _is_picture(kind: str, data: str) -> bool:
    try:
        start = base64.b64decode(data[:64], validate=True)
    except binascii.Error:
        return False
    return start.startswith(_SIGNATURES[kind])


def _size(count: int) -> str:
    return f"{count / 1_000_000:.1f} MB" if count >= 1_000_000 else f"{max(1, count // 1000)} KB"


def tool_names(refs: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{ref.get('name', '?')}{' (trusted)' if ref.get('trust') else ''}" for ref in refs]
