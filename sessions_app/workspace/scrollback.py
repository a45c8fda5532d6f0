"""Bounded scrollback: the parts of a terminal's content, in the shape of AHP's `content[]`. Pure functions on JSON values."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

# A cut is moved to the next line's begin if that is this near, so that it does not go through a line or a control sequence.
NEAR = 4096


class TextPart(TypedDict):
    type: Literal["unclassified"]
    value: str


class CommandPart(TypedDict):
    type: Literal["command"]
    commandId: str
    commandLine: str
    output: str
    timestamp: int  # milliseconds
    isComplete: bool
    exitCode: NotRequired[int]
    durationMs: NotRequired[int]


Part = TextPart | CommandPart
Content = tuple[Part, ...]


def with_data(content: Content, text: str, *, most: int, most_parts: int = 1000) -> Content:
    """Adds output as R450 says and cuts from the front, so that at most `most` characters and `most_parts` parts remain."""
    last = content[-1] if content else None
    longer: Part
    if last is None or (last["type"] == "command" and last["isComplete"]):
        content = (*content, TextPart(type="unclassified", value=text))
    elif last["type"] == "command":
        longer = last.copy()
        longer["output"] = last["output"] + text
        content = (*content[:-1], longer)
    else:
        content = (*content[:-1], TextPart(type="unclassified", value=last["value"] + text))
    return cut(content, most=most, most_parts=most_parts)


def with_command(content: Content, command_id: str, line: str, timestamp: int, *, most: int, most_parts: int = 1000) -> Content:
    """Adds a command that has started (R452)."""
    part = CommandPart(type="command", commandId=command_id, commandLine=line, output="", timestamp=timestamp, isComplete=False)
    return cut((*content, part), most=most, most_parts=most_parts)


def with_command_ended(content: Content, command_id: str, exit_code: int | None, duration_ms: int | None) -> Content:
    """Completes every part of the command (R452). One that was cut away is no error."""

    def ended(part: Part) -> Part:
        if part["type"] != "command" or part["commandId"] != command_id:
            return part
        whole = part.copy()
        whole["isComplete"] = True
        whole.pop("exitCode", None)
        whole.pop("durationMs", None)
        if exit_code is not None:
            whole["exitCode"] = exit_code
        if duration_ms is not None:
            whole["durationMs"] = duration_ms
        return whole

    return tuple(ended(part) for part in content)


def _text(part: Part) -> str:
    return part["output"] if part["type"] == "command" else part["value"]


def _size(part: Part) -> int:
    return len(_text(part)) + (len(part["commandLine"]) if part["type"] == "command" else 0)


def text_of(content: Content) -> str:
    """All output, oldest first."""
    return "".join(_text(part) for part in content)


def cut(content: Content, *, most: int, most_parts: int) -> Content:
    """Removes the oldest parts and the oldest text of the first that remains. The last part always remains."""
    first = max(0, len(content) - most_parts)
    excess = sum(_size(part) for part in content[first:]) - most
    while excess > 0 and first < len(content) - 1 and _size(content[first]) <= excess:
        excess -= _size(content[first])
        first += 1
    content = content[first:]
    if excess <= 0:
        return content
    text = _text(content[0])
    if excess < len(text):
        line = text.find("\n", excess, excess + NEAR)
        excess = line + 1 if line >= 0 else excess
    shorter = content[0].copy()
    if shorter["type"] == "command":
        shorter["output"] = text[excess:]
    else:
        shorter["value"] = text[excess:]
    return (shorter, *content[1:])
