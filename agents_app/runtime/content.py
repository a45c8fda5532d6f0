"""Converts a model's message to the content of a history message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents_app import exact_json
from agents_app.runtime.interface import Call
from agents_app.runtime.messages import Content


def of_assistant(text: str, thinking: str, calls: Sequence[Call]) -> Content | None:
    """A14: a plain string, or blocks in the order thinking, text, calls; None if there is nothing."""
    if not thinking and not calls:
        return text or None
    blocks: list[dict[str, Any]] = []
    if thinking:
        blocks.append({"type": "thinking", "thinking": thinking})
    if text:
        blocks.append({"type": "text", "text": text})
    blocks += [
        {"type": "tool_use", "toolCallId": call.call_id, "name": call.name, "input": exact_json.loads(call.arguments)}
        for call in calls
    ]
    return blocks
