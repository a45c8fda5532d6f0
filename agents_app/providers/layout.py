"""Restores the original order of blocks in a model's message, with the vendor's signatures. Pure.

A history message has its thinking first, then its text, then its calls. Vendors that sign their thinking require the
original blocks, so a provider records the order while it reads (``Layout``) and rebuilds the message from its content
and that record (``arranged``). Text and calls are not stored twice: the record has the length of each text and the
index of each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents_app.runtime import opaque
from agents_app.runtime.interface import Opaque
from agents_app.runtime.messages import Block, Message, calls_of, text_of


class Layout:
    """The recorded layout of one answer. ``more``: data that the vendor wants back with a text or a call."""

    def __init__(self) -> None:
        self._parts: list[Opaque] = []
        self._calls = 0
        self._worth = False

    def text(self, length: int, more: Mapping[str, Any] | None = None) -> None:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.part == "text" and not more and set(last.data) == {"length"}:
            self._parts[-1] = Opaque("text", {"length": last.data["length"] + length})
        elif length or more:
            self._parts.append(Opaque("text", {"length": length, **(more or {})}))
            self._worth = self._worth or bool(more)

    def call(self, more: Mapping[str, Any] | None = None) -> None:
        self._parts.append(Opaque("call", {"index": self._calls, **(more or {})}))
        self._calls += 1
        self._worth = self._worth or bool(more)

    def kept(self, data: Any) -> None:
        """Add a block that is sent back unchanged."""
        self._parts.append(Opaque("kept", data))
        self._worth = True

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def parts(self) -> list[Opaque]:
        """The opaque part to store; empty if the message itself contains all of it."""
        return list(self._parts) if self._worth else []


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a model's message. ``data``: the stored block, or the data to send back with the text or call."""

    kind: Literal["text", "call", "kept"]
    text: str = ""
    call: Block | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def arranged(message: Message, full_model: str) -> list[Piece]:
    """The message in its original order, if ``full_model`` wrote it; else text and calls.

    If the layout does not match the message, because part of it was cut off, the stored blocks come first.
    """
    text, calls = text_of(message.content), calls_of(message)
    parts = opaque.returned(message, full_model)
    if not _fits(parts, text, calls):
        pieces = [Piece("kept", data=part.data) for part in parts if part.part == "kept"]
        if text:
            pieces.append(Piece("text", text))
        return pieces + [Piece("call", call=call) for call in calls]
    pieces, at = [], 0
    for part in parts:
        match part.part:
            case "text":
                pieces.append(Piece("text", text[at : at + part.data["length"]], data=_more(part, "length")))
                at += part.data["length"]
            case "call":
                pieces.append(Piece("call", call=calls[part.data["index"]], data=_more(part, "index")))
            case _:
                pieces.append(Piece("kept", data=part.data))
    return pieces


def _fits(parts: Sequence[Opaque], text: str, calls: Sequence[Block]) -> bool:
    try:
        length = sum(part.data["length"] for part in parts if part.part == "text")
        indices = [part.data["index"] for part in parts if part.part == "call"]
    except (KeyError, TypeError):
        return False
    return bool(parts) and length == len(text) and indices == list(range(len(calls)))


def _more(part: Opaque, but: str) -> dict[str, Any]:
    return {name: value for name, value in part.data.items() if name != but}
