"""Builds the body of a request to Bedrock's Converse. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents_app import exact_json
from agents_app.providers import anthropic_request, names, schemas
from agents_app.providers.common_settings import Settings, as_list, filled, merged
from agents_app.providers.conversation import (
    Entry,
    Model,
    Results,
    User,
    between_users,
    data_image,
    entries,
    image_description,
    leading_instructions,
    taking_turns,
)
from agents_app.providers.layout import Piece
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block

_BESIDE = (
    *("guardrailConfig", "performanceConfig", "requestMetadata", "serviceTier", "outputConfig"),
    *("additionalModelResponseFieldPaths", "promptVariables"),
)
OWN_SETTINGS = ("aws_region", "aws_profile")
"""Settings for the address and the signature, not for the body."""
_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


def body(request: ModelRequest) -> bytes:
    settings = Settings({name: value for name, value in request.settings.items() if name not in OWN_SETTINGS})
    system, conversation = leading_instructions(request.instructions, entries(request.messages, request.full_model))
    conversation = between_users(conversation)
    document: dict[str, Any] = {"messages": messages(conversation)}
    if system:
        document["system"] = [{"text": system}]
    inference = filled(
        {},
        maxTokens=settings.take("max_tokens", "max_output_tokens", "max_completion_tokens"),
        temperature=settings.take("temperature"),
        topP=settings.take("top_p"),
        stopSequences=as_list(settings.take("stop_sequences", "stop")),
    )
    inference = merged(inference, settings.take("inferenceConfig") or {})
    if inference:
        document["inferenceConfig"] = inference
    settings.take("parallel_tool_calls")
    filled(document, **{name: settings.take(name) for name in _BESIDE})
    further = merged(_reasoning(request.model, settings), settings.take("additionalModelRequestFields") or {})
    further = merged(further, settings.rest)
    if anthropic_request.must_not_think(further.get("thinking"), conversation):
        del further["thinking"]
    if further:
        document["additionalModelRequestFields"] = further
    if tools := _tools(request, conversation):
        document["toolConfig"] = {"tools": tools}
    return exact_json.dumps_in_pieces(merged(document, settings.extra)).encode("utf-8", "replace")


def messages(conversation: Sequence[Entry]) -> list[dict[str, Any]]:
    """The conversation as messages; results come first in a user message."""
    return taking_turns(conversation, _blocks, model="assistant", parts="content")


def _blocks(entry: Entry) -> list[dict[str, Any]]:
    match entry:
        case Model():
            return [_block_of(piece) for piece in entry.pieces if piece.kind != "text" or piece.text.strip()]
        case Results():
            return [
                {
                    "toolResult": {
                        "toolUseId": names.call_id(result.call_id),
                        "content": [_part(part) for part in result.parts],
                    }
                }
                for result in entry.results
            ]
        case User():
            return [_part(part) for part in entry.parts]
    return []


def _block_of(piece: Piece) -> dict[str, Any]:
    if piece.call is not None:
        return {
            "toolUse": {
                "toolUseId": names.call_id(piece.call["toolCallId"]),
                "name": names.tool_name(piece.call["name"]),
                "input": piece.call["input"],
            }
        }
    return {"text": piece.text} if piece.kind == "text" else dict(piece.data)


def _part(part: Block) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    image = data_image(part["url"])
    if image is None or image[0] not in _FORMATS:
        return {"text": image_description(part["url"])}
    return {"image": {"format": _FORMATS[image[0]], "source": {"bytes": image[1]}}}


def _tools(request: ModelRequest, conversation: Sequence[Entry]) -> list[dict[str, Any]]:
    """The tools; if there are none now, the tools that the conversation calls, because Bedrock requires them."""
    if request.tools:
        return [_tool(each.name, each.description, schemas.of_object(each.parameters)) for each in request.tools]
    called = {
        names.tool_name(piece.call["name"]): None
        for entry in conversation
        if isinstance(entry, Model)
        for piece in entry.pieces
        if piece.call is not None
    }
    return [_tool(name, "Not available any more.", schemas.of_object({})) for name in called]


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"toolSpec": filled({"name": name}, description=description or None, inputSchema={"json": schema})}


def _reasoning(model: str, settings: Settings) -> dict[str, Any]:
    if "claude" not in model:
        effort = settings.take_effort()
        return {} if effort is None else {"reasoning_effort": effort}
    thinking, output = anthropic_request.thinking_of(model, settings)
    return filled({}, thinking=thinking, output_config=output or None)
