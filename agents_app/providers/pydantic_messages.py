"""Converts a conversation to pydantic-ai's messages, for its model classes. Imports that library."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from agents_app import exact_json
from agents_app.providers import schemas
from agents_app.providers.common_settings import Settings, as_list
from agents_app.providers.conversation import (
    Entry,
    Model,
    Results,
    System,
    User,
    between_users,
    data_image,
    entries,
    image_description,
)
from agents_app.runtime.interface import ModelRequest, Opaque
from agents_app.runtime.messages import Block

RESPONSE = "response"
"""The opaque part with a whole response of the library, without the message's own text and calls."""

# Classes that pass an image's address to their vendor. All others would fetch it here, around the guard.
_TAKE_ADDRESSES = {"OpenAIChatModel", "OpenAIResponsesModel", "AnthropicModel", "MistralModel", "GroqModel"}
_PREFIXES = (
    *("anthropic_", "bedrock_", "cerebras_", "cohere_", "google_", "groq_", "huggingface_", "mistral_", "openai_"),
    *("openrouter_", "xai_", "zai_"),
)


def parameters(request: ModelRequest) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=schema.name,
                description=schema.description,
                parameters_json_schema=schemas.of_object(schema.parameters),
            )
            for schema in request.tools
        ]
    )


def settings(request: ModelRequest) -> ModelSettings:
    """The library's own settings unchanged; all others go into the request's body."""
    given = Settings(request.settings)
    known: dict[str, Any] = {"max_retries": 0}
    stop, effort = given.take("stop_sequences", "stop"), given.take_effort()
    if stop is not None:
        known["stop_sequences"] = as_list(stop)
    if effort is not None:
        known["thinking"] = False if effort == "none" else effort
    for name in list(given.rest):
        if name in ModelSettings.__annotations__ or name.startswith(_PREFIXES):
            known[name] = given.take(name)
    if body := {**given.rest, **given.extra}:
        known["extra_body"] = body
    if request.headers:
        known["extra_headers"] = {**known.get("extra_headers", {}), **request.headers}
    made: ModelSettings = known  # type: ignore[assignment]  # names are checked above
    return made


def messages(request: ModelRequest, model: TheirModel) -> list[theirs.ModelMessage]:
    return _messages(between_users(entries(request.messages, request.full_model)), request.instructions, _takes_addresses(model))


def _messages(conversation: Sequence[Entry], instructions: str, addresses: bool) -> list[theirs.ModelMessage]:
    out: list[theirs.ModelMessage] = []
    parts: list[theirs.ModelRequestPart] = []

    def close() -> None:
        if parts:
            out.append(theirs.ModelRequest(parts=list(parts), instructions=instructions or None))
            parts.clear()

    for entry in conversation:
        match entry:
            case System():
                parts.append(theirs.SystemPromptPart(entry.text))
            case User():
                parts.append(theirs.UserPromptPart(_content(entry.parts, addresses)))
            case Results():
                for result in entry.results:
                    text = result.text or "(an image, in the next message)"
                    parts.append(theirs.ToolReturnPart(result.name, text, tool_call_id=result.call_id))
                for result in entry.results:
                    if result.images:
                        caption: Block = {"type": "text", "text": f"From the result of {result.name}:"}
                        parts.append(theirs.UserPromptPart(_content([caption, *result.images], addresses)))
            case Model():
                close()
                out.append(_response(entry))
    close()
    return out


def _response(entry: Model) -> theirs.ModelResponse:
    kept = next((piece.data for piece in entry.pieces if piece.kind == "kept"), None)
    if kept is not None and (found := _as_it_was(kept, entry)) is not None:
        return found
    parts: list[theirs.ModelResponsePart] = []
    for piece in entry.pieces:
        if piece.call is not None:
            text = exact_json.dumps(piece.call["input"])
            parts.append(theirs.ToolCallPart(piece.call["name"], text, tool_call_id=piece.call["toolCallId"]))
        elif piece.kind == "text":
            parts.append(theirs.TextPart(piece.text))
    return theirs.ModelResponse(parts=parts)


def kept(response: theirs.ModelResponse) -> list[Opaque]:
    """The response without its text and calls, if it has data that a vendor wants back."""
    worth = any(
        getattr(part, "signature", None) or getattr(part, "provider_details", None) or part.part_kind not in _PLAIN_KINDS
        for part in response.parts
    )
    if not worth:
        return []
    [document] = theirs.ModelMessagesTypeAdapter.dump_python([response], mode="json")
    for part in document["parts"]:
        if part["part_kind"] == "text":
            part["content"] = len(part["content"])
        elif part["part_kind"] == "tool-call":
            part["args"] = None
    return [Opaque("kept", {RESPONSE: document})]


_PLAIN_KINDS = ("text", "thinking", "tool-call")


def _as_it_was(data: Mapping[str, Any], entry: Model) -> theirs.ModelResponse | None:
    """The stored response with the message's text and calls; None if they do not match it."""
    text = "".join(piece.text for piece in entry.pieces if piece.kind == "text")
    calls = [piece.call for piece in entry.pieces if piece.call is not None]
    at = number = 0
    try:
        document = dict(data[RESPONSE])
        document["parts"] = [dict(part) for part in document["parts"]]
        for part in document["parts"]:
            if part["part_kind"] == "text":
                length = part["content"]
                part["content"], at = text[at : at + length], at + length
            elif part["part_kind"] == "tool-call":
                call = calls[number]
                part["tool_call_id"], part["args"] = call["toolCallId"], exact_json.dumps(call["input"])
                number += 1
        [found] = theirs.ModelMessagesTypeAdapter.validate_python([document])
    except (KeyError, TypeError, IndexError, ValidationError):
        return None
    return found if isinstance(found, theirs.ModelResponse) and at == len(text) and number == len(calls) else None


def _content(parts: Sequence[Block], addresses: bool) -> str | list[theirs.UserContent]:
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return [_shown(part, addresses) for part in parts]


def _shown(part: Block, addresses: bool) -> theirs.UserContent:
    if part["type"] == "text":
        return str(part["text"])
    url = part["url"]
    if (image := data_image(url)) is not None:
        return theirs.BinaryContent(base64.b64decode(image[1]), media_type=image[0])
    if addresses and url.lower().startswith(("http://", "https://")):
        return theirs.ImageUrl(url)
    return image_description(url)


def _takes_addresses(model: TheirModel) -> bool:
    return type(model).__name__ in _TAKE_ADDRESSES and type(model).__module__.startswith("pydantic_ai.models.")
