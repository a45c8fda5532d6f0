"""Base class of readers that convert a vendor's stream to provider events. Pure."""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import orjson

from agents_app import exact_json
from agents_app.providers.server_errors import MalformedStream, ServerError
from agents_app.runtime.interface import ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

_LARGE = 64 * 1024
_MOST_LEVELS = 500


class AnswerReader(ABC):
    """Reads one answer. ``read`` takes server events as they arrive; ``end`` returns the last provider events.

    ``finished``: the model has finished. ``over``: the stream has no more events. Adjacent deltas of one kind that
    arrived together are joined.
    """

    exact: ClassVar[bytes | None] = None
    """A mark of events that contain a call's arguments as JSON values, whose numbers need the exact parser."""

    def __init__(self) -> None:
        self.finished = False
        self.over = False
        self._tokens: Usage | None = None
        self._fault: ServerError | MalformedStream | None = None
        self._kind: type[TextDelta] | type[ThinkingDelta] = TextDelta
        self._texts: list[str] = []

    def read(self, events: Iterable[Any]) -> list[ProviderEvent]:
        """The provider events of these server events (for text formats, the data lines of each).

        An error that arrived together with output is kept for ``check``, so that the output comes first.
        """
        out: list[ProviderEvent] = []
        try:
            for event in events:
                for document in self._documents(event):
                    self._take(document, out)
        except (ServerError, MalformedStream) as fault:
            self._put_text(out)
            if not out:
                raise
            self._fault = fault
        self._put_text(out)
        return out

    def check(self) -> None:
        """Raise the error that arrived together with the last output."""
        if self._fault is not None:
            raise self._fault

    def read_whole(self, document: bytes) -> list[ProviderEvent]:
        """Read the answer of a server that does not stream: one JSON document, or a list of events."""
        out: list[ProviderEvent] = []
        text = document.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text.startswith(b"["):
            for event in listed_exactly(text):
                self._take(event, out)
            if not self.finished:
                raise MalformedStream
        else:
            self._whole(self._parsed(text), out)
        self._put_text(out)
        self.over = True
        return out

    def end(self) -> list[ProviderEvent] | None:
        """The last provider events; None if the stream ended before the answer."""
        if not self.finished and not self.over:
            return None
        out: list[ProviderEvent] = []
        self._close(out)
        return out

    def usage(self) -> list[ProviderEvent]:
        return [] if self._tokens is None else [self._tokens]

    @abstractmethod
    def _take(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        """Convert one server event."""

    def _whole(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        """Convert an answer in one document; anything else, such as an error, is read as an event."""
        self._take(document, out)
        if not self.finished:
            raise MalformedStream

    @abstractmethod
    def _close(self, out: list[ProviderEvent]) -> None:
        """Add opaque parts, usage and the finish reason."""

    def _documents(self, lines: Any) -> Iterable[dict[str, Any]]:
        if self.over:
            return
        whole = lines[0] if len(lines) == 1 else b"\n".join(lines)
        if whole.strip() == b"[DONE]":
            self.over = True
            return
        if not whole.strip():
            return
        try:
            yield self._parsed(whole)
        except MalformedStream:
            # Some servers omit the empty line between events.
            if len(lines) == 1:
                raise
            for line in lines:
                yield from self._documents([line])

    def _parsed(self, text: bytes) -> dict[str, Any]:
        if self.exact is not None and self.exact in text:
            with contextlib.suppress(MalformedStream):
                return parsed_exactly(text)
        return parsed(text)

    def _text(self, kind: type[TextDelta] | type[ThinkingDelta], text: Any, out: list[ProviderEvent]) -> str:
        """Add a delta and return its text; empty if ``text`` is not a string."""
        if not isinstance(text, str) or not text:
            return ""
        if kind is not self._kind:
            self._put_text(out)
            self._kind = kind
        self._texts.append(text)
        return text

    def _put_text(self, out: list[ProviderEvent]) -> None:
        if self._texts:
            out.append(self._kind("".join(self._texts)))
            self._texts.clear()

    def _put_call(self, piece: ToolCallDelta, out: list[ProviderEvent]) -> None:
        self._put_text(out)
        put_call(piece, out)


def put_call(piece: ToolCallDelta, out: list[ProviderEvent]) -> None:
    """Add a piece of a call, joined with the last one if it belongs to the same call."""
    last = out[-1] if out else None
    if isinstance(last, ToolCallDelta) and last.index == piece.index:
        out[-1] = ToolCallDelta(last.index, last.id or piece.id, last.name or piece.name, last.arguments + piece.arguments)
    else:
        out.append(piece)


def _check_size(text: bytes) -> None:
    """Raise ``MalformedStream`` if parsing the text would block the event loop for long."""
    if len(text) > _LARGE and exact_json.excess(text, members=exact_json.MAX_MEMBERS, levels=_MOST_LEVELS) is not None:
        raise MalformedStream


def parsed(text: bytes) -> dict[str, Any]:
    _check_size(text)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        # Models may send lone surrogates and invalid UTF-8; the loop replaces them and the answer continues.
        try:
            value = json.loads(_decoded(text))
        except (ValueError, RecursionError):
            raise MalformedStream from None
    if not isinstance(value, dict):
        raise MalformedStream
    return value


def listed_exactly(text: bytes) -> list[dict[str, Any]]:
    _check_size(text)
    try:
        values = exact_json.loads(text)
    except exact_json.NotJSON:
        raise MalformedStream from None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise MalformedStream
    return values


def parsed_exactly(text: bytes) -> dict[str, Any]:
    _check_size(text)
    try:
        value = exact_json.loads(text)
    except exact_json.NotJSON:
        raise MalformedStream from None
    if not isinstance(value, dict):
        raise MalformedStream
    return value


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")


def count(value: Any) -> int:
    """``value`` if it is a positive integer, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def fields(value: Any) -> Mapping[str, Any]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """``value`` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def word(value: Any) -> str:
    return value if isinstance(value, str) else ""
