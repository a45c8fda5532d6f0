"""Reads the output of a terminal: text, and what shell integration reports in it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Data:
    text: str


@dataclass(frozen=True)
class Title:
    title: str


@dataclass(frozen=True)
class Cwd:
    path: str  # an absolute path inside the box


@dataclass(frozen=True)
class CommandsAvailable:
    pass


@dataclass(frozen=True)
class CommandStarted:
    command_id: str
    line: str


@dataclass(frozen=True)
class CommandEnded:
    command_id: str
    exit_code: int | None


Output = Data | Title | Cwd | CommandsAvailable | CommandStarted | CommandEnded


class ShellOutput:
    def __init__(self, nonce: str | None, *, prefix: str = "") -> None:
        """`prefix` begins every command id, so that ids of two runs of a terminal differ."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[Output]:
        """What `data` adds, in order. The split of the stream into chunks has no influence, apart from the split of Data."""
        raise NotImplementedError

    def end(self) -> list[Output]:
        """What was held back: an incomplete sequence, an incomplete character, an open command (ended without a code)."""
        raise NotImplementedError
