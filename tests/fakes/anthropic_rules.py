"""What Anthropic's messages API refuses in a request, in its words. Pure.

Names of fields come from the vendor's own type definitions; rules of the conversation from its documentation
and from the refusals that people have met.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from anthropic import types
from anthropic.types import beta

from tests.fakes.seals import holds

Block = dict[str, Any]
Issued = Mapping[str, Sequence[Block]]
"""The blocks of each answer that was given, by the id of each tool call in it."""

_MORE_SETTINGS = {"temperature", "top_p", "top_k", "stream"}
_SETTINGS = {*types.message_create_params.MessageCreateParamsBase.__annotations__} | _MORE_SETTINGS
_BETA_SETTINGS = {*beta.message_create_params.MessageCreateParamsBase.__annotations__} - {"betas"} | _MORE_SETTINGS
_BLOCKS: dict[str, tuple[Collection[str], tuple[str, ...]]] = {
    "text": (types.TextBlockParam.__annotations__, ("text",)),
    "image": (types.ImageBlockParam.__annotations__, ("source",)),
    "thinking": (types.ThinkingBlockParam.__annotations__, ("signature", "thinking")),
    "redacted_thinking": (types.RedactedThinkingBlockParam.__annotations__, ("data",)),
    "tool_use": (types.ToolUseBlockParam.__annotations__, ("id", "input", "name")),
    "tool_result": (types.ToolResultBlockParam.__annotations__, ("tool_use_id",)),
    "document": (types.DocumentBlockParam.__annotations__, ("source",)),
}
_OF_ROLE = {
    "user": {"text", "image", "tool_result", "document"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    "system": {"text"},
}
_THOUGHTS = ("thinking", "redacted_thinking")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MOST_MARKS = 4


class Refused(Exception):
    """The message of an ``invalid_request_error``."""


def check(body: Mapping[str, Any], issued: Issued, *, with_beta: bool, interleaved: bool) -> None:
    """Raises ``Refused``."""
    _only(body, _BETA_SETTINGS if with_beta else _SETTINGS, "")
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            _refuse(f"{name}: Field required")
    if not isinstance(body["max_tokens"], int) or body["max_tokens"] < 1:
        _refuse("max_tokens: Input should be greater than or equal to 1")
    _system(body.get("system"))
    _tools(body)
    thinking = _thinking(body, interleaved=interleaved)
    _messages(body["messages"], thinking, issued)
    if (marks := _marks(body)) > _MOST_MARKS:
        _refuse(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _refuse(words: str) -> NoReturn:
    raise Refused(words)


def _only(value: Mapping[str, Any], names: Collection[str], where: str) -> None:
    for name in value:
        if name not in names:
            _refuse(f"{where}{name}: Extra inputs are not permitted")


def _system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    for number, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            _refuse(f"system.{number}.type: Input should be 'text'")
        _only(block, types.TextBlockParam.__annotations__, f"system.{number}.")
        if not block.get("text"):
            _refuse("system: text content blocks must be non-empty")


def _tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools") or []
    names = [tool.get("name") for tool in tools]
    for number, tool in enumerate(tools):
        where = f"tools.{number}.custom."
        _only(tool, {*types.ToolParam.__annotations__, *beta.BetaToolParam.__annotations__}, where)
        if not _NAME.fullmatch(str(tool.get("name", ""))):
            _refuse(f"{where}name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            _refuse(f"{where}input_schema: Field required")
        if schema.get("type") != "object":
            _refuse(f"{where}input_schema.type: Input should be 'object'")
        if any(name in schema for name in ("oneOf", "allOf", "anyOf")):
            _refuse(f"{where}input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if len(names) != len(set(names)):
        _refuse("tools: Tool names must be unique.")
    choice = body.get("tool_choice")
    if choice is not None:
        if not tools:
            _refuse("tool_choice: `tool_choice` may only be specified while providing `tools`.")
        if choice.get("type") not in ("auto", "any", "tool", "none"):
            _refuse("tool_choice: Input tag found using 'type' does not match any of the expected tags")


def _thinking(body: Mapping[str, Any], *, interleaved: bool) -> str:
    """The kind of thinking that is asked for; empty: none."""
    thinking = body.get("thinking")
    if thinking is None or thinking.get("type") == "disabled":
        return ""
    kind = str(thinking.get("type"))
    allowed = {"enabled": {"type", "budget_tokens", "display"}, "adaptive": {"type", "display"}, "between_tools": {"type"}}
    if kind not in allowed:
        _refuse("thinking: Input tag found using 'type' does not match any of the expected tags")
    _only(thinking, allowed[kind], f"thinking.{kind}.")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int):
            _refuse("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            _refuse("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"] and not interleaved:
            _refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            _refuse("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1:
        _refuse("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.")
    return kind


def _messages(given: Any, thinking: str, issued: Issued) -> None:
    if not isinstance(given, list) or not given:
        _refuse("messages: at least one message is required")
    for number, message in enumerate(given):
        _message(message, number, last=number == len(given) - 1)
    if given[0]["role"] != "user":
        _refuse('messages: first message must use the "user" role')
    if given[-1]["role"] == "assistant":
        _refuse("This model does not support assistant message prefill. The conversation must end with a user message.")
    turns = list(_joined(given))
    _calls(turns)
    _loop(turns, thinking, issued)


def _message(message: Any, number: int, *, last: bool) -> None:
    where = f"messages.{number}."
    _only(message, ("role", "content"), where)
    role = message.get("role")
    if role not in _OF_ROLE:
        _refuse(f"{where}role: Input should be 'user', 'assistant' or 'system'")
    content = message.get("content")
    if content is None:
        _refuse(f"{where}content: Field required")
    if not content and not (last and role == "assistant"):
        _refuse(f"messages.{number}: {role} messages must have non-empty content")
    if isinstance(content, str):
        if not content.strip():
            _refuse("messages: text content blocks must contain non-whitespace text")
        return
    for place, block in enumerate(content):
        _block(block, f"{where}content.{place}.", _OF_ROLE[role])
    if role == "assistant" and content[-1]["type"] in _THOUGHTS:
        _refuse(f"messages.{number}: The final block in an assistant message cannot be `thinking`.")


def _block(block: Any, where: str, kinds: Collection[str]) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind not in kinds:
        _refuse(f"{where}type: Input tag '{kind}' found using 'type' does not match any of the expected tags here")
    names, required = _BLOCKS[str(kind)]
    _only(block, names, f"{where}{kind}.")
    for name in required:
        if block.get(name) is None:
            _refuse(f"{where}{kind}.{name}: Field required")
    match kind:
        case "text":
            if not block["text"]:
                _refuse("messages: text content blocks must be non-empty")
            if not block["text"].strip():
                _refuse("messages: text content blocks must contain non-whitespace text")
        case "image":
            _image(block["source"], f"{where}image.source.")
        case "thinking":
            if not holds(block["signature"], "thinking", block["thinking"]):
                _refuse(f"{where.rstrip('.')}: Invalid `signature` in `thinking` block")
        case "redacted_thinking":
            if not holds(block["data"], "redacted"):
                _refuse(f"{where.rstrip('.')}: Invalid `data` in `redacted_thinking` block")
        case "tool_use":
            if not _ID.fullmatch(block["id"]):
                _refuse(f"{where}tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", block["name"]):
                _refuse(f"{where}tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'")
            if not isinstance(block["input"], dict):
                _refuse(f"{where}tool_use.input: Input should be a valid dictionary")
        case "tool_result":
            _result(block, where)


def _result(block: Block, where: str) -> None:
    content = block.get("content")
    if isinstance(content, list):
        for place, inner in enumerate(content):
            _block(inner, f"{where}tool_result.content.{place}.", {"text", "image", "document"})
    if block.get("is_error"):
        if not content:
            _refuse(f"{where}tool_result: content cannot be empty if `is_error` is true")
        if isinstance(content, list) and any(inner["type"] != "text" for inner in content):
            _refuse(f"{where}tool_result: all content must be type `text` if `is_error` is true")


def _image(source: Any, where: str) -> None:
    match source.get("type"):
        case "base64":
            _only(source, ("type", "media_type", "data"), where)
            if source.get("media_type") not in _PICTURES:
                _refuse(f"{where}base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'")
            if not re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", source.get("data", "")):
                _refuse(f"{where}base64: invalid base64 data")
        case "url":
            _only(source, ("type", "url"), where)
            if not str(source.get("url", "")).startswith(("http://", "https://")):
                _refuse(f"{where}url.url: Only HTTP URLs are supported.")
        case _:
            _refuse(f"{where}type: Input tag found using 'type' does not match any of the expected tags")


def _joined(given: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, list[Block]]]:
    """Neighbours of one role are one turn."""
    turn: tuple[str, list[Block]] | None = None
    for message in given:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if turn is not None and turn[0] == message["role"]:
            turn[1].extend(blocks)
            continue
        if turn is not None:
            yield turn
        turn = (message["role"], blocks)
    if turn is not None:
        yield turn


def _calls(turns: Sequence[tuple[str, list[Block]]]) -> None:
    known: set[str] = set()
    for number, (role, blocks) in enumerate(turns):
        before = turns[number - 1] if number else ("", [])
        asked = [block["id"] for block in before[1] if block["type"] == "tool_use"] if before[0] == "assistant" else []
        if role == "assistant":
            for block in blocks:
                if block["type"] == "tool_use" and block["id"] in known:
                    _refuse("messages: `tool_use` ids must be unique")
                if block["type"] == "tool_use":
                    known.add(block["id"])
            continue
        answered: list[str] = []
        for block in blocks:
            if block["type"] != "tool_result":
                continue
            if block["tool_use_id"] not in asked:
                _refuse(
                    f"messages.{number}.content: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding `tool_use` block in the "
                    "previous message."
                )
            if block["tool_use_id"] in answered:
                _refuse(f"messages.{number}.content: each tool_use must have a single result: {block['tool_use_id']}")
            answered.append(block["tool_use_id"])
        leading = [block.get("tool_use_id") for block in blocks[: len(asked)]]
        if missing := [call for call in asked if call not in leading]:
            _refuse(
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )


def _loop(turns: Sequence[tuple[str, list[Block]]], thinking: str, issued: Issued) -> None:
    """All answers since the user last spoke are one turn of the model's: it begins with what was thought first, and
    the thinking of the last answer is complete and as it was."""
    begun = max(number for number, (role, blocks) in enumerate(turns) if role == "user" and _speaks(blocks))
    answers = [(number, blocks) for number, (role, blocks) in enumerate(turns) if role == "assistant" and number > begun]
    if not thinking or not answers:
        return
    number, blocks = answers[0]
    if thinking == "enabled" and blocks[0]["type"] not in _THOUGHTS:
        _refuse(
            f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`. "
            "When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks)."
        )
    number, blocks = answers[-1]
    said = next((issued[block["id"]] for block in blocks if block.get("id") in issued), None)
    thoughts = [_plain(block) for block in blocks if block["type"] in _THOUGHTS]
    if said is not None and thoughts and thoughts != [_plain(block) for block in said if block["type"] in _THOUGHTS]:
        _refuse(
            f"messages.{number}.content: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
            "modified. These blocks must remain as they were in the original response."
        )


def _speaks(blocks: Sequence[Block]) -> bool:
    return any(block["type"] != "tool_result" for block in blocks)


def _plain(block: Block) -> Block:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _marks(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_marks(item) for item in value.values()) + (value.get("cache_control") is not None)
    if isinstance(value, list):
        return sum(map(_marks, value))
    return 0
