"""A model request in the words of Anthropic's messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents_app import exact_json
from agents_app.providers import names, schemas
from agents_app.providers.common_settings import TOKENS_OF_EFFORT, Settings, as_list, filled, merged
from agents_app.providers.conversation import (
    IMAGE_TYPES,
    Entry,
    Model,
    Results,
    User,
    acts_without_a_thought,
    between_users,
    data_image,
    entries,
    image_description,
    leading_instructions,
    taking_turns,
)
from agents_app.providers.layout import Piece
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block, ToolSchema

MAX_TOKENS = 16_384
"""The format demands a limit for the answer; this one where an agent sets none."""
_SMALLER_MAX_TOKENS = (("claude-3-5", 8_192), ("claude-3-7", 16_384), ("claude-3", 4_096), ("claude-2", 4_096))
AFTER_THINKING = 8_192
# These models take a thinking budget in tokens; newer ones an effort.
_WITH_BUDGET = re.compile(r"claude-3|claude-(opus|sonnet|haiku)-4(-[015])?(?=$|[@:]|-20\d{6}|-v\d|-latest)")


def body(request: ModelRequest) -> bytes:
    return encoded({**document(request), "model": request.model, "stream": True})


def encoded(value: Mapping[str, Any]) -> bytes:
    """The JSON of it, numbers as exact as they came."""
    return exact_json.dumps_in_pieces(value).encode("utf-8", "replace")


def document(request: ModelRequest) -> dict[str, Any]:
    """The request without what depends on the host that serves the model."""
    settings = Settings(request.settings)
    thinking, output = thinking_of(request.model, settings)
    max_tokens = settings.take("max_tokens", "max_output_tokens", "max_completion_tokens")
    parallel = settings.take("parallel_tool_calls")
    choice = settings.take("tool_choice")
    made = filled({}, stop_sequences=as_list(settings.take("stop_sequences", "stop")), thinking=thinking)
    made = merged(made, settings.rest)
    if output:
        made["output_config"] = merged(output, made.get("output_config") or {})
    system, conversation = leading_instructions(request.instructions, entries(request.messages, request.full_model))
    if must_not_think(made.get("thinking"), conversation):
        del made["thinking"]
    made["max_tokens"] = max_tokens if max_tokens is not None else _max_tokens(request.model, made.get("thinking"))
    if system:
        made["system"] = system
    made["messages"] = messages(between_users(conversation))
    if request.tools:
        made["tools"] = [_tool(schema) for schema in request.tools]
        if isinstance(choice, str):
            choice = {"type": {"required": "any"}.get(choice, choice)}
        if parallel is False:
            choice = {"type": "auto", **(choice or {}), "disable_parallel_tool_use": True}
        if choice is not None:
            made["tool_choice"] = choice
    return merged(made, settings.extra)


def messages(conversation: Sequence[Entry]) -> list[dict[str, Any]]:
    """Results come first in the user's message."""
    return taking_turns(conversation, _blocks, model="assistant", parts="content")


def _blocks(entry: Entry) -> list[dict[str, Any]]:
    match entry:
        case Model():
            return [_block_of(piece) for piece in entry.pieces if piece.kind != "text" or piece.text.strip()]
        case Results():
            return [
                {
                    "type": "tool_result",
                    "tool_use_id": names.call_id(result.call_id),
                    "content": [_part(part) for part in result.parts],
                }
                for result in entry.results
            ]
        case User():
            return [_part(part) for part in entry.parts]
    return []


def _block_of(piece: Piece) -> dict[str, Any]:
    if piece.call is not None:
        return {
            "type": "tool_use",
            "id": names.call_id(piece.call["toolCallId"]),
            "name": names.tool_name(piece.call["name"]),
            "input": piece.call["input"],
        }
    return {"type": "text", "text": piece.text} if piece.kind == "text" else dict(piece.data)


def _part(part: Block) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    url = part["url"]
    if url.lower().startswith(("http://", "https://")):
        return {"type": "image", "source": {"type": "url", "url": url}}
    image = data_image(url)
    if image is None or image[0] not in IMAGE_TYPES:
        return {"type": "text", "text": image_description(url)}
    return {"type": "image", "source": {"type": "base64", "media_type": image[0], "data": image[1]}}


def _tool(schema: ToolSchema) -> dict[str, Any]:
    return {
        "name": schema.name,
        "description": schema.description,
        "input_schema": schemas.of_object(schema.parameters),
    }


def must_not_think(thinking: Any, conversation: Sequence[Entry]) -> bool:
    """Claude with a budget refuses to go on from calls that were made without a thought of its own."""
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled" and acts_without_a_thought(conversation)


def thinking_of(model: str, settings: Settings) -> tuple[Any, dict[str, Any]]:
    """The thinking and output_config tables that ``reasoning_effort`` comes down to."""
    effort = settings.take_effort()
    if effort is None:
        return None, {}
    if effort == "none":
        return {"type": "disabled"}, {}
    if _WITH_BUDGET.search(model):
        return {"type": "enabled", "budget_tokens": TOKENS_OF_EFFORT[effort]}, {}
    return {"type": "adaptive"}, {"effort": "low" if effort == "minimal" else effort}


def _max_tokens(model: str, thinking: Any) -> int:
    most = next((tokens for part, tokens in _SMALLER_MAX_TOKENS if part in model), MAX_TOKENS)
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    # What is thought counts too.
    return max(most, budget + AFTER_THINKING) if isinstance(budget, int) else most
