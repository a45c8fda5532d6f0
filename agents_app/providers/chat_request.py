"""A model request in the words of OpenAI's chat completions. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agents_app import exact_json
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block, Message, ToolSchema, calls_of, text_of

_UNFIT_FOR_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def body(request: ModelRequest) -> bytes:
    """The JSON of the request, numbers as exact as they came."""
    document: dict[str, Any] = {
        **request.settings,
        "model": request.model,
        "messages": messages(request.instructions, request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        document["tools"] = [_tool(schema) for schema in request.tools]
    return exact_json.dumps(document).encode("utf-8", "replace")


def messages(instructions: str, conversation: Sequence[Message]) -> list[dict[str, Any]]:
    """Instructions first. Images of tools and of the model, which have no place in their own messages
    there, come in a user message as soon as one may stand."""
    out: list[dict[str, Any]] = []
    if instructions:
        out.append({"role": "system", "content": instructions})
    moved: list[dict[str, Any]] = []
    for message in conversation:
        if message.role != "tool":
            _flush(moved, out)
        match message.role:
            case "assistant":
                _assistant(message, out, moved)
            case "tool":
                images = _images(message)
                moved += _captioned(images, f"From the result of {message.tool_call_id}:")
                text = text_of(message.content) or ("(an image, in the next message)" if images else "")
                out.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": text})
            case "user":
                out.append({"role": "user", "content": _user_content(message)})
            case "system":
                out.append({"role": "system", "content": text_of(message.content)})
    _flush(moved, out)
    return out


def _assistant(message: Message, out: list[dict[str, Any]], moved: list[dict[str, Any]]) -> None:
    text, calls = text_of(message.content), calls_of(message)
    moved += _captioned(_images(message), "From the assistant's message:")
    # With thinking alone nothing is left to send, and an empty message is refused.
    if not text and not calls:
        return
    sent: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        sent["tool_calls"] = [
            {
                "id": call["toolCallId"],
                "type": "function",
                "function": {"name": _name(call["name"]), "arguments": exact_json.dumps(call["input"])},
            }
            for call in calls
        ]
    out.append(sent)


def _name(name: str) -> str:
    """A name that a server takes. A model or a seed may have called what no tool can be named, and the whole
    conversation would be refused for it ever after."""
    return _UNFIT_FOR_NAME.sub("_", name)[:_LONGEST_NAME] or "_"


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.content
    if isinstance(content, str):
        return content
    # Not every server takes a list where a string would do.
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return [_part(block) for block in content if block["type"] in ("text", "image")]


def _part(block: Block) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": block["url"]}}
    return {"type": "text", "text": block["text"]}


def _images(message: Message) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return []
    return [_part(block) for block in message.content if block["type"] == "image"]


def _captioned(images: list[dict[str, Any]], caption: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": caption}, *images] if images else []


def _flush(moved: list[dict[str, Any]], out: list[dict[str, Any]]) -> None:
    if moved:
        out.append({"role": "user", "content": list(moved)})
        moved.clear()


def _tool(schema: ToolSchema) -> dict[str, Any]:
    parameters = schema.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": schema.name, "description": schema.description, "parameters": parameters}}
