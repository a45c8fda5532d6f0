"""Images as blocks of a message: checked here, before a server has to refuse them."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agenthost.chat.agents import Agent
from agenthost.chat.errors import WrongUse
from agenthost.chat.safe_text import one_line

MOST_BYTES = 10 * 1024 * 1024
"""Of the files of one message: written as text they are a third longer, and servers bound what they take."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def block(agent: Agent, reference: str) -> dict[str, Any]:
    """An image block from a file or an https address; WrongUse says why not."""
    if reference.startswith("https://"):
        if not urlsplit(reference).hostname:
            raise WrongUse(f"{one_line(reference)} is not an address")
        _require(agent, "image.http", "images by address", "image.data", "Save it, and give the file.")
        return {"type": "image", "url": reference}
    if reference.startswith("data:image/") and ";base64," in reference:
        _require(agent, "image.data", "images as data", "image.http", "Give an https address.")
        return {"type": "image", "url": reference}
    if "://" in reference:
        raise WrongUse("An image is a file here, or an https:// address")
    _require(agent, "image.data", "images from files", "image.http", "Give an https address.")
    data = _read(Path(reference).expanduser())
    return {"type": "image", "url": f"data:{kind_of(data, reference)};base64,{base64.b64encode(data).decode()}"}


def check_together(blocks: Iterable[dict[str, Any]]) -> None:
    size = sum(len(each["url"]) * 3 // 4 for each in blocks if each["url"].startswith("data:"))
    if size > MOST_BYTES:
        raise WrongUse(f"The images come to {size:,} bytes; a message takes {MOST_BYTES:,}. Send them one by one")


def kind_of(data: bytes, name: str) -> str:
    """The media type, by what the file begins with and not by what it is called."""
    for beginning, kind in _BEGINNINGS:
        if data.startswith(beginning):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise WrongUse(f"{name} is not a PNG, JPEG, GIF or WebP image")


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise WrongUse(f"There is no file {path}")
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise WrongUse(f"{path} has {size:,} bytes; an image may have {MOST_BYTES:,}")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise WrongUse(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _require(agent: Agent, needed: str, what: str, other: str, instead: str) -> None:
    if needed not in agent.can:
        raise WrongUse(f"{agent.name} takes no {what}." + (f" {instead}" if other in agent.can else ""))
