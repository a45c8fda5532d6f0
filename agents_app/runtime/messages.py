"""What a model is given: the messages of a conversation, whichever protocol they came through.

Pure values. ``content`` keeps the shape it was written in (a string stays a string, blocks stay
blocks), because histories show it again exactly; providers translate it to their own wire form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
Block = Mapping[str, Any]
"""``{"type": "text" | "thinking" | "tool_use" | "image", …}``, see AAP's content blocks."""
Content = str | Sequence[Block]


@dataclass(frozen=True, slots=True)
class Message:
    """One line of a conversation.

    ``provider_data`` is what a provider wants back unread (JSON text), with the model that wrote it
    in front, so that another model never gets it. ``step`` tells the model calls of one turn apart;
    ``turn`` names the turn (None: the seed). ``position`` is the line's place in its session. ``summary``: it
    stands for what was said up to that place.
    """

    role: Role
    content: Content
    tool_call_id: str | None = None
    provider_data: str | None = None
    turn: int | None = None
    step: int = 0
    position: int = 0
    summary: bool = False


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as a model sees it. ``parameters`` is a JSON Schema object with its order of keys kept."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None


def text_of(content: Content) -> str:
    """All text blocks joined; a plain string as it is."""
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content if block["type"] == "text")


def calls_of(message: Message) -> list[Block]:
    """The tool_use blocks of an assistant message, in order."""
    if message.role != "assistant" or isinstance(message.content, str):
        return []
    return [block for block in message.content if block["type"] == "tool_use"]
