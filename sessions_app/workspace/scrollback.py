"""Bounded scrollback: the parts of a terminal's content, in the shape of AHP's `content[]`. Pure functions, JSON values."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


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
    """Adds output (R450) and cuts from the front so that at most `most` characters remain (R311)."""
    raise NotImplementedError


def with_command(content: Content, command_id: str, line: str, timestamp: int, *, most: int, most_parts: int = 1000) -> Content:
    raise NotImplementedError


def with_command_ended(content: Content, command_id: str, exit_code: int | None, duration_ms: int | None) -> Content:
    raise NotImplementedError


def text_of(content: Content) -> str:
    """All output, oldest first."""
    raise NotImplementedError
