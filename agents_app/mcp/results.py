"""Converts the result of an MCP server's tool to content for the model. Pure."""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agents_app import exact_json
from agents_app.errors import ToolFailed
from agents_app.runtime.messages import Content
from agents_app.tools import output

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_FAILURE = 4_000
_MOST_MEMBERS, _MOST_LEVELS = 20_000, 100
"""Limits of a text that is parsed only to find out whether it repeats the structured content."""

Block = Mapping[str, str]


def content(result: CallToolResult, limit: int) -> Content:
    """The content, at most ``limit`` bytes; ``ToolFailed`` with the tool's message if the result is an error."""
    blocks = [_block(each, limit) for each in result.content]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if result.structured_content is not None and not _says(texts, result.structured_content):
        blocks.append({"type": "text", "text": exact_json.dumps(result.structured_content)})
        texts.append(blocks[-1]["text"])
    if result.is_error:
        raise ToolFailed(output.clean("\n".join(texts)).strip()[:MAX_FAILURE] or "the tool failed without a reason")
    if len(texts) == len(blocks):
        return output.as_content("\n".join(texts), limit)
    return output.as_content(blocks, limit)


def _block(each: Any, limit: int) -> Block:
    match each.type:
        case "text":
            return _text(each.text)
        case "image":
            return _image(each.mime_type, each.data, limit)
        case "audio":
            return _text(f"[audio of type {each.mime_type}, which cannot be shown here]")
        case "resource_link":
            described = f": {each.description}" if each.description else ""
            return _text(f"[{each.title or each.name}, to be found at {each.uri}{described}]")
        case "resource":
            return _resource(each.resource, limit)
    return _text(f"[content of the kind {each.type}, which cannot be shown here]")


def _resource(resource: Any, limit: int) -> Block:
    kind = resource.mime_type or "an unknown type"
    text = getattr(resource, "text", None)
    if text is not None:
        return _text(f"{resource.uri}:\n{text}")
    if kind.startswith("image/"):
        return _image(kind, resource.blob, limit)
    return _text(f"[a file of {kind} at {resource.uri}, which cannot be shown here]")


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(kind: str, data: str, limit: int) -> Block:
    """The image, if models accept it; else a note about it."""
    packed = "".join(data.split())
    block = {"type": "image", "url": f"data:{kind};base64,{packed}"}
    if len(block["url"]) > limit:
        return _text(f"[an image of type {kind}, left out because it is larger than {limit} bytes]")
    try:
        binascii.a2b_base64(packed, strict_mode=True)
        if output.as_content([block], limit) == [block]:
            return block
    except (binascii.Error, ToolFailed):
        pass
    return _text(f"[an image of type {kind}, which cannot be shown here]")


def _says(texts: Sequence[str], structured: Any) -> bool:
    """Whether the texts repeat the structured content: as JSON, or as the text of its only member ``result``."""
    if any(_is(text, structured) for text in texts):
        return True
    if not isinstance(structured, Mapping) or structured.keys() != {"result"}:
        return False
    value = structured["result"]
    if isinstance(value, list):
        return len(value) == len(texts) and all(_is(text, item) for text, item in zip(texts, value, strict=True))
    return any(_is(text, value) for text in texts)


def _is(text: str, value: Any) -> bool:
    if text == value or (value is None and text == ""):
        return True
    if exact_json.excess(text, members=_MOST_MEMBERS, levels=_MOST_LEVELS) is not None:
        return False
    try:
        read = exact_json.loads_plain(text)
    except exact_json.NotJSON:
        return False
    return bool(exact_json.dumps(read) == exact_json.dumps(value)) or bool(read == value and not isinstance(value, bool | int))
