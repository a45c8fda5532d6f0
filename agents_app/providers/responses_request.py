"""Builds the body of a request to OpenAI's Responses. Pure.

The vendor is asked to store nothing and to return its reasoning encrypted; the reasoning is sent back with its message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agents_app import exact_json
from agents_app.providers import names, schemas
from agents_app.providers.common_settings import Settings, filled, merged
from agents_app.providers.conversation import (
    IMAGE_TYPES,
    Entry,
    Model,
    Results,
    System,
    User,
    data_image,
    entries,
    image_description,
)
from agents_app.providers.layout import Piece
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block, ToolSchema

# Models that do not reason, and refuse a request for reasoning.
_WITHOUT_REASONING = re.compile(r"(^|[/:])(gpt-3|gpt-4|chatgpt-4|gpt-5-chat)")
_ENCRYPTED = "reasoning.encrypted_content"


def body(request: ModelRequest) -> bytes:
    settings = Settings(request.settings)
    effort, summary = settings.take_effort(), settings.take("reasoning_summary")
    max_tokens = settings.take("max_tokens", "max_output_tokens", "max_completion_tokens")
    document: dict[str, Any] = {"store": False}
    if not _WITHOUT_REASONING.search(request.model):
        document["include"] = [_ENCRYPTED]
    filled(document, max_output_tokens=max_tokens)
    if reasoning := filled({}, effort=effort, summary=summary):
        document["reasoning"] = reasoning
    document = merged(document, settings.rest)
    document["model"] = request.model
    if request.instructions.strip():
        document["instructions"] = request.instructions
    document["input"] = items(entries(request.messages, request.full_model))
    document["stream"] = True
    if request.tools:
        document["tools"] = [_tool(schema) for schema in request.tools]
    else:
        for name in ("tool_choice", "parallel_tool_calls"):
            document.pop(name, None)
    return exact_json.dumps_in_pieces(merged(document, settings.extra)).encode("utf-8", "replace")


def items(conversation: Sequence[Entry]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for entry in conversation:
        match entry:
            case System():
                out.append({"role": "system", "content": entry.text})
            case User():
                out.append({"role": "user", "content": _content(entry.parts)})
            case Model():
                out += [_said(piece) for piece in entry.pieces]
            case Results():
                out += [
                    {
                        "type": "function_call_output",
                        "call_id": names.call_id(result.call_id),
                        "output": _content(result.parts) if result.images else result.text,
                    }
                    for result in entry.results
                ]
    return out


def _said(piece: Piece) -> dict[str, Any]:
    if piece.call is not None:
        return {
            "type": "function_call",
            **piece.data,
            "call_id": names.call_id(piece.call["toolCallId"]),
            "name": names.tool_name(piece.call["name"]),
            "arguments": exact_json.dumps(piece.call["input"]),
        }
    if piece.kind == "kept":
        return dict(piece.data)
    if not piece.data:
        return {"role": "assistant", "content": piece.text}
    return {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        **piece.data,
        "content": [{"type": "output_text", "text": piece.text, "annotations": []}],
    }


def _content(parts: Sequence[Block]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return [_shown(part) for part in parts]


def _shown(part: Block) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    url = part["url"]
    if url.startswith("data:") and ((image := data_image(url)) is None or image[0] not in IMAGE_TYPES):
        return {"type": "input_text", "text": image_description(url)}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _tool(schema: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "name": schema.name,
        "description": schema.description,
        "parameters": schemas.of_object(schema.parameters),
        # Schemas are the tools' own, and most are not valid in the strict subset.
        "strict": False,
    }
