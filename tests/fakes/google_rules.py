"""What Google's generateContent refuses in a request, in its words. Pure.

Names of fields come from the vendor's own type definitions (both spellings are read, as its servers do); rules
of the conversation from its documentation and from the refusals that people have met.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from google.genai import types
from pydantic import BaseModel
from pydantic.alias_generators import to_camel, to_snake

from tests.fakes.seals import holds

Part = dict[str, Any]

_SETTINGS = {
    "contents",
    "system_instruction",
    "tools",
    "tool_config",
    "safety_settings",
    "generation_config",
    "cached_content",
    "labels",
    "service_tier",
}
_DATA = ("text", "inline_data", "file_data", "function_call", "function_response", "executable_code", "code_execution_result")
_BLOBS = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf")
_FUNCTION = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
UNCHECKED = (b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go")
"""What stands for a signature where there is none, by the vendor's documentation."""


class Refused(Exception):
    """The message of an INVALID_ARGUMENT."""


def snaked(value: Any) -> Any:
    """One spelling; what a model, a tool or a schema wrote stays as it is."""
    if isinstance(value, list):
        return [snaked(item) for item in value]
    if not isinstance(value, dict):
        return value
    free = ("args", "response", "parameters", "parameters_json_schema", "response_json_schema", "response_schema")
    return {to_snake(name): inner if to_snake(name) in free else snaked(inner) for name, inner in value.items()}


def arguments(text: str) -> dict[str, Any]:
    """What was written as JSON text; this vendor has none of it, only objects."""
    found: dict[str, Any] = json.loads(text or "{}")
    return found


def check(body: Mapping[str, Any], model: str) -> None:
    """Raises ``Refused``."""
    given = snaked(body)
    _only(given, _SETTINGS, "")
    _of(given.get("generation_config") or {}, types.GenerationConfig, "generation_config")
    if "system_instruction" in given:
        _content(given["system_instruction"], "system_instruction")
    _tools(given.get("tools") or [])
    contents = given.get("contents")
    if not contents:
        _refuse("* GenerateContentRequest.contents: contents is not specified\n")
    for number, content in enumerate(contents):
        _content(content, f"contents[{number}]")
        if content.get("role") not in ("user", "model"):
            _refuse("Please use a valid role: user, model.")
    _turns(contents)
    if model.startswith("gemini-3"):
        _signatures(contents)


def _refuse(words: str) -> NoReturn:
    raise Refused(words)


def _only(value: Mapping[str, Any], names: Any, where: str) -> None:
    for name in value:
        if name not in names:
            place = f" at '{where}'" if where else ""
            _refuse(f'Invalid JSON payload received. Unknown name "{to_camel(name)}"{place}: Cannot find field.')


def _of(value: Any, kind: type[BaseModel], where: str) -> None:
    if not isinstance(value, dict):
        _refuse(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.v1beta.{kind.__name__})")
    _only(value, kind.model_fields, where)


def _bytes(value: Any, where: str) -> bytes:
    try:
        # Both alphabets are read.
        return base64.b64decode(str(value).replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        _refuse(f"Invalid value at '{where}' (TYPE_BYTES), Base64 decoding failed for \"{value}\"")


# --- tools ---


def _tools(tools: Sequence[Mapping[str, Any]]) -> None:
    names: list[str] = []
    for number, tool in enumerate(tools):
        _of(tool, types.Tool, f"tools[{number}]")
        for place, function in enumerate(tool.get("function_declarations") or []):
            where = f"tools[{number}].function_declarations[{place}]"
            _of(function, types.FunctionDeclaration, where)
            if not _FUNCTION.fullmatch(str(function.get("name", ""))):
                _refuse(
                    f"GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. Must start with a letter or "
                    "an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), "
                    "with a maximum length of 64."
                )
            if function.get("parameters") is not None and function.get("parameters_json_schema") is not None:
                _refuse(f"{where}: only one of parameters and parameters_json_schema may be set")
            if function.get("parameters") is not None:
                _schema(function["parameters"], f"{where}.parameters")
            names.append(function["name"])
    for name in {name for name in names if names.count(name) > 1}:
        _refuse(f"Duplicate function declaration found: {name}")


def _schema(schema: Any, where: str) -> None:
    """The schema language of its own, which is not JSON Schema."""
    plain = {to_snake(name): value for name, value in schema.items()}
    _of(plain, types.Schema, where)
    for name, inner in (plain.get("properties") or {}).items():
        _schema(inner, f"{where}.properties[{name}].value")
    if isinstance(plain.get("items"), dict):
        _schema(plain["items"], f"{where}.items")
    for number, inner in enumerate(plain.get("any_of") or []):
        _schema(inner, f"{where}.any_of[{number}]")


# --- the conversation ---


def _content(content: Any, where: str) -> None:
    _of(content, types.Content, where)
    parts = content.get("parts")
    if not parts:
        _refuse(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n")
    for number, part in enumerate(parts):
        _part(part, f"{where}.parts[{number}]")


def _part(part: Any, where: str) -> None:
    _of(part, types.Part, where)
    data = [name for name in _DATA if part.get(name) is not None]
    if len(data) > 1:
        _refuse(f"Invalid value at '{where}' (oneof), oneof field 'data' is already set. Cannot set '{data[1]}'")
    signature = _bytes(part["thought_signature"], f"{where}.thought_signature") if "thought_signature" in part else None
    if not data or (part.get("text") == "" and signature is None):
        _refuse(f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field\n")
    if signature is not None:
        _signature(part, signature)
    match data[0]:
        case "function_call":
            _of(part["function_call"], types.FunctionCall, f"{where}.function_call")
            _named(part["function_call"], f"{where}.function_call")
        case "function_response":
            answer = part["function_response"]
            _of(answer, types.FunctionResponse, f"{where}.function_response")
            _named(answer, f"{where}.function_response")
            if not isinstance(answer.get("response"), dict):
                _refuse(f"Invalid value at '{where}.function_response.response' (type.googleapis.com/google.protobuf.Struct)")
            for number, inner in enumerate(answer.get("parts") or []):
                _of(inner, types.FunctionResponsePart, f"{where}.function_response.parts[{number}]")
                if "inline_data" in inner:
                    _blob(inner["inline_data"], f"{where}.function_response.parts[{number}].inline_data")
        case "inline_data":
            _blob(part["inline_data"], f"{where}.inline_data")
        case "file_data":
            _of(part["file_data"], types.FileData, f"{where}.file_data")
            if not part["file_data"].get("file_uri"):
                _refuse(f"* GenerateContentRequest.{where}.file_data.file_uri: file_uri is not specified\n")


def _blob(blob: Any, where: str) -> None:
    _of(blob, types.Blob, where)
    if blob.get("mime_type") not in _BLOBS:
        _refuse(f"Unsupported MIME type: {blob.get('mime_type')}")
    if not _bytes(blob.get("data", ""), f"{where}.data"):
        _refuse(
            "Unable to process input image. Please retry or report in https://developers.generativeai.google/guide/troubleshooting"
        )


def _named(value: Mapping[str, Any], where: str) -> None:
    if not value.get("name"):
        _refuse(f"* GenerateContentRequest.{where}.name: Name cannot be empty.\n")


def _signature(part: Part, signature: bytes) -> None:
    if signature in UNCHECKED:
        return
    given = base64.b64encode(signature).decode()
    call = part.get("function_call")
    facts = ("call", call.get("name"), call.get("args") or {}) if call is not None else ("text",)
    if not holds(given, *facts):
        _refuse("Corrupted thought signature.")


def _having(content: Mapping[str, Any], name: str) -> list[Any]:
    return [part[name] for part in content["parts"] if part.get(name) is not None]


def _turns(contents: Sequence[Mapping[str, Any]]) -> None:
    joined: list[dict[str, Any]] = []
    for content in contents:
        if joined and joined[-1]["role"] == content["role"]:
            joined[-1]["parts"] = [*joined[-1]["parts"], *content["parts"]]
        else:
            joined.append(dict(content))
    if joined[-1]["role"] != "user":
        _refuse("Please ensure that the conversation ends with a user turn or a function response turn.")
    for number, content in enumerate(joined):
        before = joined[number - 1] if number else None
        answers = _having(content, "function_response")
        if content["role"] == "model":
            if answers:
                _refuse("Please ensure that function response turn comes with the user's role.")
            if _having(content, "function_call") and before is None:
                _refuse(
                    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
                )
            continue
        if _having(content, "function_call"):
            _refuse("Please ensure that function call turn comes with the model's role.")
        calls = _having(before, "function_call") if before is not None else []
        if answers and not calls:
            _refuse("Please ensure that function response turn comes immediately after a function call turn.")
        if len(answers) != len(calls):
            _refuse(
                "Please ensure that the number of function response parts is equal to the number of function call parts of the "
                "function call turn."
            )
        if sorted(call["name"] for call in calls) != sorted(answer["name"] for answer in answers):
            _refuse("Please ensure that function response names match the function call names of the function call turn.")
        ids = [call["id"] for call in calls if call.get("id")]
        if any(answer.get("id") and ids and answer["id"] not in ids for answer in answers):
            _refuse("Please ensure that function response ids match the function call ids of the function call turn.")


def _signatures(contents: Sequence[Mapping[str, Any]]) -> None:
    """Of each step since the user last spoke the first call carries its signature."""
    begun = max((number for number, content in enumerate(contents) if _speaks(content)), default=0)
    for number, content in enumerate(contents):
        calls = [part for part in content["parts"] if part.get("function_call") is not None]
        if number > begun and calls and "thought_signature" not in calls[0]:
            _refuse(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
                "correctly, and missing thought_signature may lead to degraded model performance. Additional data, function "
                f"call `default_api:{calls[0]['function_call']['name']}` , position {number + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )


def _speaks(content: Mapping[str, Any]) -> bool:
    return content["role"] == "user" and any(part.get("function_response") is None for part in content["parts"])
