"""Builds the body of a request to Google's generateContent. Pure."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from agents_app import exact_json
from agents_app.providers import names, schemas
from agents_app.providers.common_settings import TOKENS_OF_EFFORT, Effort, Settings, as_list, filled, merged
from agents_app.providers.conversation import (
    Entry,
    Model,
    Result,
    Results,
    User,
    between_users,
    data_image,
    entries,
    image_description,
    leading_instructions,
    taking_turns,
)
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block

# Top-level members beside the contents; all other settings of an agent go into generationConfig.
_BESIDE = {
    "safetySettings",
    "safety_settings",
    "toolConfig",
    "tool_config",
    "cachedContent",
    "cached_content",
    "labels",
    "serviceTier",
    "service_tier",
}
# Models that think by default, and return their thoughts on request.
_THINKS = re.compile(r"gemini-(2\.5-(pro|flash)(?!-(lite|image))|([3-9]|\d{2,})(?!.*image))")
# Models that require a signature with the first call of each message, take a thinking level instead of a number of
# tokens, and accept images in a tool's result.
_THIRD = re.compile(r"gemini-([3-9]|\d{2,})")
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
NO_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()
"""The placeholder for a missing signature, from the vendor's documentation."""


def tool_name(name: str) -> str:
    """A tool name as Google requires: an identifier."""
    fit = names.tool_name(name)
    return fit if fit[0].isalpha() or fit[0] == "_" else f"_{fit}"[: names.LONGEST]


def body(request: ModelRequest) -> bytes:
    settings = Settings(request.settings)
    document: dict[str, Any] = {}
    system, conversation = leading_instructions(request.instructions, entries(request.messages, request.full_model))
    document["contents"] = contents(between_users(conversation), third=bool(_THIRD.search(request.model)))
    if system:
        document["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        document["tools"] = [
            {
                "functionDeclarations": [
                    {
                        "name": schema.name,
                        "description": schema.description,
                        "parametersJsonSchema": schemas.of_object(schema.parameters),
                    }
                    for schema in request.tools
                ]
            }
        ]
    config = filled(
        {},
        maxOutputTokens=settings.take("max_tokens", "max_output_tokens", "max_completion_tokens"),
        stopSequences=as_list(settings.take("stop_sequences", "stop")),
        topP=settings.take("top_p"),
        topK=settings.take("top_k"),
        presencePenalty=settings.take("presence_penalty"),
        frequencyPenalty=settings.take("frequency_penalty"),
        thinkingConfig=_thinking(request.model, settings.take_effort()),
    )
    settings.take("parallel_tool_calls")
    given = settings.take("generationConfig", "generation_config") or {}
    beside = {name: settings.take(name) for name in list(settings.rest) if name in _BESIDE}
    config = merged(merged(config, settings.rest), given)
    _mend_thinking(config)
    document = merged(document, beside)
    if config:
        document["generationConfig"] = config
    return exact_json.dumps_in_pieces(merged(document, settings.extra)).encode("utf-8", "replace")


def contents(conversation: Sequence[Entry], *, third: bool) -> list[dict[str, Any]]:
    ids: dict[str, str] = {}

    def parts(entry: Entry) -> list[dict[str, Any]]:
        match entry:
            case Model():
                return _said(entry, ids, third=third)
            case Results():
                return _answered(entry, ids, third=third)
            case User():
                return [_shown(part) for part in entry.parts]
        return []

    return taking_turns(conversation, parts, model="model", parts="parts")


def _answered(entry: Results, ids: dict[str, str], *, third: bool) -> list[dict[str, Any]]:
    parts = [_answer(result, ids, third=third) for result in entry.results]
    if not third:
        for result in entry.results:
            if result.images:
                parts += [{"text": f"From the result of {result.name}:"}, *map(_shown, result.images)]
    return parts


def _said(entry: Model, ids: dict[str, str], *, third: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    first = True
    for piece in entry.pieces:
        signature = piece.data.get("signature")
        if piece.call is not None:
            call = {"name": tool_name(piece.call["name"]), "args": piece.call["input"]}
            if given := piece.data.get("id"):
                ids[piece.call["toolCallId"]] = call["id"] = given
            part: dict[str, Any] = {"functionCall": call}
            if third and first and not signature:
                signature = NO_SIGNATURE
            first = False
        elif piece.kind == "kept":
            parts.append(dict(piece.data))
            continue
        else:
            part = {"text": piece.text}
        if signature:
            part["thoughtSignature"] = signature
        parts.append(part)
    return parts


def _answer(result: Result, ids: dict[str, str], *, third: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": tool_name(result.name)}
    if given := ids.get(result.call_id):
        answer["id"] = given
    shown = [_pixels(image["url"]) for image in result.images] if third else []
    told = [image_description(image["url"]) for image, data in zip(result.images, shown, strict=False) if data is None]
    answer["response"] = {"output": "\n".join([result.text, *told] if result.text or not told else told)}
    if inside := [{"inlineData": {"mimeType": kind, "data": data}} for kind, data in filter(None, shown)]:
        answer["parts"] = inside
    return {"functionResponse": answer}


def _shown(part: Block) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    url = part["url"]
    if url.lower().startswith(("http://", "https://")):
        kind, _ = mimetypes.guess_type(urlsplit(url).path)
        return {"fileData": {"fileUri": url, "mimeType": kind if kind and kind.startswith("image/") else "image/jpeg"}}
    image = _pixels(url)
    return {"text": image_description(url)} if image is None else {"inlineData": {"mimeType": image[0], "data": image[1]}}


def _pixels(url: str) -> tuple[str, str] | None:
    image = data_image(url)
    return image if image is not None and image[0] in _IMAGE_TYPES else None


def _thinking(model: str, effort: Effort | None) -> dict[str, Any] | None:
    asked: dict[str, Any] = {"includeThoughts": True} if _THINKS.search(model) else {}
    # The larger models cannot switch thinking off.
    least = "pro" in model
    if effort is not None and _THIRD.search(model):
        low = "low" if least else "minimal"
        asked["thinkingLevel"] = {"none": low, "minimal": low, "xhigh": "high"}.get(effort, effort)
    elif effort is not None:
        asked["thinkingBudget"] = min(TOKENS_OF_EFFORT.get(effort, 128 if least else 0), 24_576)
    return asked or None


def _mend_thinking(config: dict[str, Any]) -> None:
    """Accept both spellings of an agent's own thinking table; request no thoughts if thinking is off."""
    own = config.pop("thinking_config", None)
    if isinstance(own, dict):
        config["thinkingConfig"] = merged(config.get("thinkingConfig", {}), own)
    asked = config.get("thinkingConfig")
    if not isinstance(asked, dict):
        return
    for spelling, name in (
        ("include_thoughts", "includeThoughts"),
        ("thinking_budget", "thinkingBudget"),
        ("thinking_level", "thinkingLevel"),
    ):
        if spelling in asked:
            asked[name] = asked.pop(spelling)
    if asked.get("thinkingBudget") == 0:
        asked.pop("includeThoughts", None)
