"""Image blocks of messages, checked before they are sent."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agenthost.client.agents import Agent
from agenthost.client.errors import UsageError
from agenthost.client.safe_text import one_line

MOST_BYTES = 10 * 1024 * 1024
"""Total size of the image files of one message. Base64 makes them a third larger, and servers limit request bodies."""

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def block(agent: Agent | None, reference: str) -> dict[str, Any]:
    """An image block for a file or an https URL; raises UsageError if that is not possible.

    With an agent, also if that agent does not accept it.
    """
    if reference.startswith("https://"):
        if not urlsplit(reference).hostname:
            raise UsageError(f"{one_line(reference)} is not a valid URL")
        _require(agent, "image.http", "images by URL", "image.data", "Save the image and use the file.")
        return {"type": "image", "url": reference}
    if reference.startswith("data:image/") and ";base64," in reference:
        _require(agent, "image.data", "images as data", "image.http", "Use an https:// URL.")
        return {"type": "image", "url": reference}
    if "://" in reference:
        raise UsageError("An image must be a local file or an https:// URL")
    _require(agent, "image.data", "images from files", "image.http", "Use an https:// URL.")
    return data_block(_read(Path(reference).expanduser()), reference)


def data_block(data: bytes, name: str) -> dict[str, Any]:
    return {"type": "image", "url": f"data:{media_type(data, name)};base64,{base64.b64encode(data).decode()}"}


def check_total_size(blocks: Iterable[dict[str, Any]]) -> None:
    size = sum(len(each["url"]) * 3 // 4 for each in blocks if each["url"].startswith("data:"))
    if size > MOST_BYTES:
        raise UsageError(f"The images have {size:,} bytes; the limit per message is {MOST_BYTES:,}. Use several messages")


def media_type(data: bytes, name: str) -> str:
    """The media type by the file's signature, not by its name."""
    for signature, type_ in _SIGNATURES:
        if data.startswith(signature):
            return type_
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise UsageError(f"{name} is not a PNG, JPEG, GIF or WebP image")


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise UsageError(f"There is no file {path}")
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise UsageError(f"{path} has {size:,} bytes; the limit for an image is {MOST_BYTES:,}")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _require(agent: Agent | None, needed: str, name: str, alternative: str, advice: str) -> None:
    if agent is not None and needed not in agent.capabilities:
        raise UsageError(f"{agent.name} does not accept {name}." + (f" {advice}" if alternative in agent.capabilities else ""))
