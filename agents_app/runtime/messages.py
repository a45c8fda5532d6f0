"""Messages of a conversation and declarations of tools, as values that both protocols and all providers share.

``content`` keeps the shape it was sent in (a string stays a string, blocks stay blocks), because
histories return it exactly; providers translate it to their wire format.
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

    ``provider_data``: data that the provider wants back unchanged (JSON text), with the model that wrote it, so
    that no other model gets it. ``step``: the number of the model call in its turn. ``turn``: None for seed messages.
    ``position``: the message's position in its session. ``summary``: a summary of all messages up to that position.
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
