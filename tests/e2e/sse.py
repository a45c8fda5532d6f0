"""A strict parser of server-sent events: violations of A54 and A55 are assertion errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIELDS: dict[str, set[str]] = {
    "turn_start": set(),
    "text_delta": {"delta"},
    "thinking_delta": {"delta"},
    "text": {"text"},
    "thinking": {"thinking"},
    "tool_call": {"toolCallId", "name", "input"},
    "tool_result": {"toolCallId", "content"},
    "turn_stop": {"stopReason"},
}
"""The allowed events, with the members of their data."""
STOP_REASONS = {"end_turn", "tool_use", "max_tokens", "refusal", "error"}


@dataclass(frozen=True)
class SseEvent:
    id: str
    name: str
    data: dict[str, Any]
    written: str
    """The data line as received."""


class SseParser:
    """Takes bytes and returns complete events."""

    def __init__(self, fields: Mapping[str, set[str]] = FIELDS) -> None:
        self._fields = fields
        self._rest = b""
        self._lines: list[str] = []
        self._after_comment = False
        self.comments = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        assert b"\r" not in data, "lines end in \\n alone"
        *whole, self._rest = (self._rest + data).split(b"\n")
        events = []
        for line in whole:
            event = self._line(line.decode("utf-8"))
            if event is not None:
                events.append(event)
        return events

    def end(self) -> None:
        assert self._rest == b"", f"the stream ends within a line: {self._rest!r}"
        assert self._lines == [], f"the stream ends within an event: {self._lines!r}"

    def _line(self, line: str) -> SseEvent | None:
        if line.startswith(":"):
            assert not self._lines, "a comment stands within an event"
            self.comments += 1
            self._after_comment = True
            return None
        if line == "" and self._after_comment and not self._lines:
            self._after_comment = False
            return None
        self._after_comment = False
        if line:
            self._lines.append(line)
            return None
        lines, self._lines = self._lines, []
        return _event(lines, self._fields)


def _event(lines: list[str], fields: Mapping[str, set[str]]) -> SseEvent:
    assert [line.partition(": ")[0] for line in lines] == ["id", "event", "data"], f"not an event: {lines!r}"
    position, name, written = (line.partition(": ")[2] for line in lines)
    assert position, "the position is not empty"
    assert name in fields, f"unknown event {name!r}"
    data = json.loads(written)
    assert isinstance(data, dict)
    assert set(data) == fields[name], f"{name} has {sorted(data)}"
    for key in ("delta", "text", "thinking"):
        assert key not in data or (isinstance(data[key], str) and data[key]), f"{name} says nothing"
    if name == "tool_call":
        assert isinstance(data["toolCallId"], str)
        assert isinstance(data["name"], str)
        assert isinstance(data["input"], dict)
    if name == "tool_result":
        assert isinstance(data["content"], str | list)
    if name == "turn_stop":
        assert data["stopReason"] in STOP_REASONS
    return SseEvent(position, name, data, written)


def parse(body: bytes, fields: Mapping[str, set[str]] = FIELDS) -> list[SseEvent]:
    """All events of a complete stream."""
    parser = SseParser(fields)
    events = parser.feed(body)
    parser.end()
    return events


def check_turn(events: list[SseEvent]) -> None:
    """Check the order of one turn's events (A56, A57)."""
    names = [event.name for event in events]
    assert names[:1] == ["turn_start"], names
    assert names.count("turn_start") == 1, names
    assert names[-1:] == ["turn_stop"], names
    assert names.count("turn_stop") == 1, names
    rank = {"thinking_delta": 0, "thinking": 0, "text_delta": 1, "text": 1, "tool_call": 2}
    last = 0
    for event in events[1:-1]:
        if event.name == "tool_result":
            last = 0
            continue
        assert rank[event.name] >= last, f"{event.name} is out of order in {names}"
        last = rank[event.name]


def rebuilt(events: list[SseEvent]) -> list[dict[str, Any]]:
    """The messages that a client builds from one turn's events, in the form of A14."""
    messages: list[dict[str, Any]] = []
    thinking, text = "", ""
    calls: list[dict[str, Any]] = []

    def flush() -> None:
        nonlocal thinking, text, calls
        content: Any = text
        if thinking or calls:
            content = [{"type": "thinking", "thinking": thinking}] if thinking else []
            content += [{"type": "text", "text": text}] if text else []
            content += calls
        if content:
            messages.append({"role": "assistant", "content": content})
        thinking, text, calls = "", "", []

    for event in events:
        match event.name:
            case "text_delta" | "text":
                text += event.data["delta"] if "delta" in event.data else event.data["text"]
            case "thinking_delta" | "thinking":
                thinking += event.data["delta"] if "delta" in event.data else event.data["thinking"]
            case "tool_call":
                calls.append({"type": "tool_use", **event.data})
            case "tool_result":
                flush()
                messages.append({"role": "tool", **event.data})
            case "turn_stop":
                flush()
    return messages
