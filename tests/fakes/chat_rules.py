"""What OpenAI's chat completions refuse in a request, in its words. Pure.

Names of fields come from the vendor's own type definitions; rules of the conversation from its documentation
and from the refusals that people have met.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from openai.types import chat
from openai.types.chat import completion_create_params

from tests.fakes import openai_schemas

_SETTINGS = {*completion_create_params.CompletionCreateParamsBase.__annotations__, "stream"}
_MESSAGES: dict[str, Collection[str]] = {
    "system": chat.ChatCompletionSystemMessageParam.__annotations__,
    "developer": chat.ChatCompletionDeveloperMessageParam.__annotations__,
    "user": chat.ChatCompletionUserMessageParam.__annotations__,
    "assistant": chat.ChatCompletionAssistantMessageParam.__annotations__,
    "tool": chat.ChatCompletionToolMessageParam.__annotations__,
}
_PARTS = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PICTURE = re.compile(r"https?://\S+|data:image/(png|jpe?g|webp|gif);base64,[A-Za-z0-9+/]+={0,2}")


class Refused(Exception):
    """The message of an ``invalid_request_error``."""


def check(body: Mapping[str, Any]) -> None:
    """Raises ``Refused``."""
    _only(body, _SETTINGS, "")
    if not body.get("model"):
        _refuse("you must provide a model parameter")
    if body.get("tools") == []:
        _refuse("Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.")
    for number, tool in enumerate(body.get("tools") or []):
        _tool(tool, f"tools[{number}]")
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not body.get("tools"):
            _refuse(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        _refuse("Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.")
    for number, message in enumerate(messages):
        _message(message, f"messages[{number}]")
    _calls(messages)


def _refuse(words: str) -> NoReturn:
    raise Refused(words)


def _only(value: Mapping[str, Any], names: Collection[str], where: str) -> None:
    for name in value:
        if name not in names:
            _refuse(f"Unknown parameter: '{where}.{name}'." if where else f"Unrecognized request argument supplied: {name}")


def _named(value: Any, where: str) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        _refuse(f"Invalid '{where}': string does not match pattern. Expected a string that matches '^[a-zA-Z0-9_-]{{1,64}}$'.")


def _tool(tool: Mapping[str, Any], where: str) -> None:
    if tool.get("type") != "function":
        _refuse(f"Missing required parameter: '{where}.type'.")
    function = tool.get("function") or {}
    _only(function, ("name", "description", "parameters", "strict"), f"{where}.function")
    _named(function.get("name"), f"{where}.function.name")
    schema = function.get("parameters")
    if schema is not None and (fault := openai_schemas.fault(function["name"], schema)) is not None:
        _refuse(fault)


def _message(message: Mapping[str, Any], where: str) -> None:
    role = message.get("role")
    if role not in _MESSAGES:
        _refuse(f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'tool', and 'developer'.")
    _only(message, _MESSAGES[role], where)
    content, calls = message.get("content"), message.get("tool_calls")
    if content is None and not (role == "assistant" and calls):
        _refuse(f"Invalid value for 'content': expected a string, got null. ({where})")
    if isinstance(content, list):
        if not content:
            _refuse(f"Invalid '{where}.content': empty array.")
        for number, part in enumerate(content):
            _part(part, f"{where}.content[{number}]", _PARTS.get(role, ("text",)))
    elif content is not None and not isinstance(content, str):
        _refuse(f"Invalid type for '{where}.content': expected one of a string or array of objects.")
    if calls is not None:
        if calls == []:
            _refuse(f"Invalid '{where}.tool_calls': empty array. Expected an array with minimum length 1.")
        for number, call in enumerate(calls):
            place = f"{where}.tool_calls[{number}]"
            if not isinstance(call.get("id"), str) or not call["id"] or call.get("type") != "function":
                _refuse(f"Missing required parameter: '{place}.id'.")
            if len(call["id"]) > 64:
                _refuse(f"Invalid '{place}.id': string too long. Expected a string with maximum length 64.")
            _named(call["function"].get("name"), f"{place}.function.name")
            if not isinstance(call["function"].get("arguments"), str):
                _refuse(f"Invalid type for '{place}.function.arguments': expected a string.")


def _part(part: Mapping[str, Any], where: str, kinds: Sequence[str]) -> None:
    kind = part.get("type")
    if kind not in kinds:
        supported = ", ".join(f"'{name}'" for name in kinds)
        _refuse(f"Invalid value: '{kind}'. Supported values are: {supported}. ({where})")
    if kind == "text" and not isinstance(part.get("text"), str):
        _refuse(f"Missing required parameter: '{where}.text'.")
    if kind == "image_url":
        image = part.get("image_url")
        if not isinstance(image, dict):
            _refuse(f"Invalid type for '{where}.image_url': expected an object, but got a string instead.")
        _only(image, ("url", "detail"), f"{where}.image_url")
        if not _PICTURE.fullmatch(str(image.get("url"))):
            _refuse("You uploaded an unsupported image. Please make sure your image is valid.")


def _calls(messages: Sequence[Mapping[str, Any]]) -> None:
    waiting: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                _refuse(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
                    f" (messages[{number}])"
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            _unanswered(waiting)
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        _unanswered(waiting)


def _unanswered(waiting: Sequence[str]) -> NoReturn:
    _refuse(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
        f"following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )
