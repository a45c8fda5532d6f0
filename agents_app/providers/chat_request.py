"""Builds the body of a request to OpenAI's chat completions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agents_app import exact_json
from agents_app.providers import names, schemas
from agents_app.providers.common_settings import Settings, filled, merged
from agents_app.providers.conversation import IMAGE_TYPES, NO_RESULT, data_image, image_description
from agents_app.providers.hosts import PLAIN, Dialect
from agents_app.runtime import opaque
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block, Message, ToolSchema, calls_of, text_of


def body(request: ModelRequest, dialect: Dialect = PLAIN) -> bytes:
    """The JSON of the request, with exact numbers."""
    settings = Settings(request.settings)
    max_tokens, stop = settings.take(dialect.max_tokens, "max_tokens"), settings.take("stop", "stop_sequences")
    document: dict[str, Any] = {
        **filled(settings.rest, stop=stop, **{dialect.max_tokens: max_tokens}),
        "model": request.model,
        "messages": messages(request.instructions, request.messages, request.full_model, dialect),
        "stream": True,
    }
    if dialect.usage_option:
        document["stream_options"] = {"include_usage": True}
    if request.tools:
        document["tools"] = [_tool(schema) for schema in request.tools]
    return exact_json.dumps_in_pieces(merged(document, settings.extra)).encode("utf-8", "replace")


def messages(
    instructions: str, conversation: Sequence[Message], full_model: str = "", dialect: Dialect = PLAIN
) -> list[dict[str, Any]]:
    """The messages, instructions first. Images of tools and of the model, which their own messages cannot
    contain, are sent in the next user message."""
    out: list[dict[str, Any]] = []
    if instructions:
        out.append({"role": "system", "content": instructions})
    moved: list[dict[str, Any]] = []
    for message in _answered(conversation):
        if message.role != "tool":
            _flush(moved, out)
        match message.role:
            case "assistant":
                _assistant(message, full_model, dialect, out, moved)
            case "tool":
                images = _images(message)
                moved += _captioned(images, f"From the result of {message.tool_call_id}:")
                text = text_of(message.content) or ("(an image, in the next message)" if images else "")
                out.append({"role": "tool", "tool_call_id": _id(message.tool_call_id, dialect), "content": text})
            case "user":
                out.append({"role": "user", "content": _user_content(message)})
            case "system":
                out.append({"role": "system", "content": text_of(message.content)})
    _flush(moved, out)
    return _with_strict_roles(out) if dialect.strict_roles else out


def _answered(conversation: Sequence[Message]) -> Iterator[Message]:
    """The conversation with the results of each message's calls directly behind it, as servers require.

    A call without a result gets a placeholder; a result without a call becomes text of the user.
    """
    # Backwards, so that the first result of a call counts.
    results = {message.tool_call_id: message for message in reversed(conversation) if message.role == "tool"}
    called: set[str] = set()
    for message in conversation:
        if message.role != "tool":
            yield message
            for call in calls_of(message):
                wanted = call["toolCallId"]
                called.add(wanted)
                yield results.get(wanted) or Message("tool", NO_RESULT, tool_call_id=wanted)
        elif message.tool_call_id not in called:
            text = {"type": "text", "text": f"Result of {message.tool_call_id or 'a tool call'}:"}
            told = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
            yield Message("user", [text, *told])


def _assistant(
    message: Message, full_model: str, dialect: Dialect, out: list[dict[str, Any]], moved: list[dict[str, Any]]
) -> None:
    text, calls = text_of(message.content), calls_of(message)
    moved += _captioned(_images(message), "From the assistant's message:")
    # A message with thinking only would be empty, which servers refuse.
    if not text and not calls:
        return
    sent: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        sent["tool_calls"] = [
            {
                "id": _id(call["toolCallId"], dialect),
                "type": "function",
                "function": {"name": names.tool_name(call["name"]), "arguments": exact_json.dumps(call["input"])},
            }
            for call in calls
        ]
    _give_back(message, full_model, dialect, sent)
    out.append(sent)


def _give_back(message: Message, full_model: str, dialect: Dialect, sent: dict[str, Any]) -> None:
    """Add the data that the server wants back with its own message."""
    calls = sent.get("tool_calls") or []
    for part in opaque.returned(message, full_model):
        match part.part:
            case "reasoning_details":
                sent["reasoning_details"] = part.data
            case "thoughts" if dialect.thinking == "parts":
                sent["content"] = [*part.data, *([{"type": "text", "text": sent["content"]}] if sent["content"] else [])]
            case "thinking" if dialect.thinking is not None:
                sent[dialect.thinking] = part.data
            case "call" if part.data.get("index", len(calls)) < len(calls):
                calls[part.data["index"]]["extra_content"] = part.data["extra_content"]
    if dialect.thinking_expected and calls and dialect.thinking not in (None, "parts"):
        # Another model made these calls, or made them without thinking.
        sent.setdefault(dialect.thinking, "")


def _id(call_id: str | None, dialect: Dialect) -> str | None:
    if call_id is None:
        return None
    if dialect.call_id is not None:
        return dialect.call_id(call_id)
    # Some models encode data in their ids, so only the length is limited.
    return call_id if len(call_id) <= names.LONGEST else names.call_id(call_id)


def _with_strict_roles(sent: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert an assistant message between a tool and a user; turn later system messages into marked user text."""
    out: list[dict[str, Any]] = []
    for message in sent:
        late = message["role"] == "system" and any(each["role"] != "system" for each in out)
        if (late or message["role"] == "user") and out and out[-1]["role"] == "tool":
            out.append({"role": "assistant", "content": "OK."})
        out.append({"role": "user", "content": f"<system>\n{message['content']}\n</system>"} if late else message)
    return out


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.content
    if isinstance(content, str):
        return content
    # Some servers accept a list only where a string is not possible.
    if len(content) == 1 and content[0]["type"] == "text":
        return str(content[0]["text"])
    return [_part(block) for block in content if block["type"] in ("text", "image")]


def _part(block: Block) -> dict[str, Any]:
    if block["type"] == "image":
        url = block["url"]
        if url.startswith("data:") and ((image := data_image(url)) is None or image[0] not in IMAGE_TYPES):
            return {"type": "text", "text": image_description(url)}
        return {"type": "image_url", "image_url": {"url": url}}
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
    parameters = schemas.of_object(schema.parameters)
    return {"type": "function", "function": {"name": schema.name, "description": schema.description, "parameters": parameters}}
