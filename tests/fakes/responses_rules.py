"""What OpenAI's Responses API refuses in a request, in its words. Pure.

Names of fields come from the vendor's own type definitions; rules of the conversation from its documentation
and from the refusals that people have met.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from openai.types import responses
from openai.types.responses import response_create_params, response_input_param

from tests.fakes import openai_schemas
from tests.fakes.seals import holds

Item = dict[str, Any]
Issued = Mapping[str, tuple[Item, str | None, str | None]]
"""Items that were given, by id: the item, the id of the reasoning before it, the id of the item after it."""

_SETTINGS = {*response_create_params.ResponseCreateParamsBase.__annotations__, "stream"}
_MESSAGE = {*responses.EasyInputMessageParam.__annotations__, *responses.ResponseOutputMessageParam.__annotations__}
_ITEMS: dict[str, tuple[Collection[str], tuple[str, ...], str]] = {
    "message": (_MESSAGE, ("role", "content"), "msg"),
    "reasoning": (responses.ResponseReasoningItemParam.__annotations__, ("id", "summary"), "rs"),
    "function_call": (responses.ResponseFunctionToolCallParam.__annotations__, ("call_id", "name", "arguments"), "fc"),
    "function_call_output": (response_input_param.FunctionCallOutput.__annotations__, ("call_id", "output"), "fc"),
}
_OURS = ("message", "reasoning", "function_call")
_PARTS: dict[str, tuple[Collection[str], tuple[str, ...]]] = {
    "input_text": (responses.ResponseInputTextParam.__annotations__, ("text",)),
    "input_image": (responses.ResponseInputImageParam.__annotations__, ()),
    "input_file": (responses.ResponseInputFileParam.__annotations__, ()),
    "output_text": (responses.ResponseOutputTextParam.__annotations__, ("text",)),
    "refusal": (responses.ResponseOutputRefusalParam.__annotations__, ("refusal",)),
}
_OF_ROLE = {
    "user": ("input_text", "input_image", "input_file"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
}
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_LONGEST = 64
_PICTURE = re.compile(r"https?://\S+|data:image/(png|jpe?g|webp|gif);base64,[A-Za-z0-9+/]+={0,2}")


class Refused(Exception):
    """A refusal: what the error object says."""

    def __init__(self, message: str, *, param: str | None = "input", code: str | None = None, status: int = 400) -> None:
        self.message, self.param, self.code, self.status = message, param, code, status
        super().__init__(message)


def check(body: Mapping[str, Any], issued: Issued) -> None:
    """Raises ``Refused``."""
    _only(body, _SETTINGS, "")
    if not body.get("model"):
        _missing("model")
    _tools(body.get("tools") or [])
    given = body.get("input")
    if given is None or given == []:
        _missing("input")
    if isinstance(given, str):
        return
    for number, item in enumerate(given):
        _item(item, f"input[{number}]")
    _calls(given)
    _reasoning(given, issued, kept=body.get("store") is not False)


def _only(value: Mapping[str, Any], names: Collection[str], where: str) -> None:
    for name in value:
        if name not in names:
            path = f"{where}.{name}" if where else name
            raise Refused(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def _missing(path: str) -> NoReturn:
    raise Refused(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")


def _invalid(path: str, value: object, supported: Sequence[str]) -> NoReturn:
    names = ", ".join(f"'{name}'" for name in supported)
    raise Refused(f"Invalid value: '{value}'. Supported values are: {names}.", param=path, code="invalid_value")


def _text(value: Any, path: str, *, longest: int | None = None) -> None:
    if not isinstance(value, str):
        kind = "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
        raise Refused(f"Invalid type for '{path}': expected a string, but got {kind} instead.", param=path, code="invalid_type")
    if longest is not None and len(value) > longest:
        raise Refused(
            f"Invalid '{path}': string too long. Expected a string with maximum length {longest}, but got a string with "
            f"length {len(value)} instead.",
            param=path,
            code="string_above_max_length",
        )


def _name(value: Any, path: str) -> None:
    _text(value, path, longest=_LONGEST)
    if not _NAME.fullmatch(value):
        raise Refused(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=path,
            code="invalid_value",
        )


def _tools(tools: Sequence[Mapping[str, Any]]) -> None:
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.get("type") != "function":
            _invalid(f"{where}.type", tool.get("type"), ["function"])
        _only(tool, responses.FunctionToolParam.__annotations__, where)
        if not tool.get("name"):
            _missing(f"{where}.name")
        _name(tool["name"], f"{where}.name")
        schema = tool.get("parameters")
        if isinstance(schema, dict) and (fault := openai_schemas.fault(tool["name"], schema)) is not None:
            raise Refused(fault, param=f"{where}.parameters", code="invalid_function_parameters")
        if tool.get("strict") and isinstance(schema, dict):
            if schema.get("additionalProperties") is not False:
                _schema(tool["name"], where, "'additionalProperties' is required to be supplied and to be false.")
            if set(schema.get("required") or ()) != set(schema.get("properties") or ()):
                _schema(tool["name"], where, "'required' is required to be supplied and to be an array including every key")


def _schema(name: str, where: str, fault: str) -> NoReturn:
    raise Refused(
        f"Invalid schema for function '{name}': In context=(), {fault}",
        param=f"{where}.parameters",
        code="invalid_function_parameters",
    )


def _kind(item: Mapping[str, Any]) -> str:
    return str(item.get("type") or ("message" if "role" in item else ""))


def _item(item: Mapping[str, Any], where: str) -> None:
    kind = _kind(item)
    if kind not in _ITEMS:
        _invalid(where, kind, list(_ITEMS))
    names, required, prefix = _ITEMS[kind]
    _only(item, names, where)
    for name in required:
        if item.get(name) is None:
            _missing(f"{where}.{name}")
    given = item.get("id")
    if given is not None and not str(given).startswith(prefix):
        raise Refused(
            f"Invalid '{where}.id': '{given}'. Expected an ID that begins with '{prefix}'.",
            param=f"{where}.id",
            code="invalid_value",
        )
    match kind:
        case "message":
            _message(item, where)
        case "reasoning":
            for number, part in enumerate(item["summary"]):
                if part.get("type") != "summary_text":
                    _invalid(f"{where}.summary[{number}].type", part.get("type"), ["summary_text"])
                _text(part.get("text"), f"{where}.summary[{number}].text")
        case "function_call":
            _text(item["call_id"], f"{where}.call_id", longest=_LONGEST)
            _name(item["name"], f"{where}.name")
            _text(item["arguments"], f"{where}.arguments")
        case "function_call_output":
            _text(item["call_id"], f"{where}.call_id", longest=_LONGEST)
            if isinstance(item["output"], list):
                for number, part in enumerate(item["output"]):
                    _part(part, f"{where}.output[{number}]", _OF_ROLE["user"])
            else:
                _text(item["output"], f"{where}.output")


def _message(item: Mapping[str, Any], where: str) -> None:
    role = item["role"]
    if role not in _OF_ROLE:
        _invalid(f"{where}.role", role, list(_OF_ROLE))
    if isinstance(item["content"], str):
        return
    for number, part in enumerate(item["content"]):
        _part(part, f"{where}.content[{number}]", _OF_ROLE[role])


def _part(part: Mapping[str, Any], where: str, kinds: Sequence[str]) -> None:
    kind = str(part.get("type"))
    if kind not in kinds:
        _invalid(f"{where}.type", kind, kinds)
    names, required = _PARTS[kind]
    _only(part, names, where)
    for name in required:
        if part.get(name) is None:
            _missing(f"{where}.{name}")
        _text(part[name], f"{where}.{name}")
    if kind == "input_image":
        if part.get("detail", "auto") not in ("auto", "low", "high", "original"):
            _invalid(f"{where}.detail", part["detail"], ["auto", "low", "high", "original"])
        if not _PICTURE.fullmatch(str(part.get("image_url", ""))) and not part.get("file_id"):
            raise Refused(
                f"Invalid '{where}.image_url'. Expected a valid URL, but got a value with an invalid format.",
                param=f"{where}.image_url",
                code="invalid_value",
            )


def _calls(items: Sequence[Mapping[str, Any]]) -> None:
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        if _kind(item) == "function_call":
            called.add(item["call_id"])
        elif _kind(item) == "function_call_output":
            if item["call_id"] not in called:
                raise Refused(f"No tool call found for function call output with call_id {item['call_id']}.")
            answered.add(item["call_id"])
    for item in items:
        if _kind(item) == "function_call" and item["call_id"] not in answered:
            raise Refused(f"No tool output found for function call {item['call_id']}.")


def _reasoning(items: Sequence[Mapping[str, Any]], issued: Issued, *, kept: bool) -> None:
    """``kept``: items are stored by the vendor and known again by their id."""
    present = {item.get("id") for item in items}
    for number, item in enumerate(items):
        given = item.get("id")
        if given is None or _kind(item) == "function_call_output":
            continue
        found = issued.get(given)
        if kept and found is None:
            raise Refused(f"Item with id '{given}' not found.", status=404)
        if _kind(item) == "reasoning":
            _encrypted(item, kept=kept)
            after = items[number + 1] if number + 1 < len(items) else {}
            follower = found[2] if found is not None else None
            wrong = follower is not None and after.get("id") not in (None, follower)
            if _kind(after) not in _OURS or after.get("role") in ("user", "system", "developer") or wrong:
                raise Refused(f"Item '{given}' of type 'reasoning' was provided without its required following item.")
        elif found is not None and found[1] is not None and found[1] not in present:
            raise Refused(
                f"Item '{given}' of type '{_kind(item)}' was provided without its required 'reasoning' item: '{found[1]}'."
            )


def _encrypted(item: Mapping[str, Any], *, kept: bool) -> None:
    content = item.get("encrypted_content")
    if content is None:
        if not kept:
            raise Refused(
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. Try again with "
                "`store` set to true, or remove this item from your input.",
                status=404,
            )
    elif not holds(content, "reasoning", item["id"]):
        raise Refused(
            f"The encrypted content for item {item['id']} could not be verified. Reason: Encrypted content could not be "
            "decrypted or parsed.",
            param=None,
            code="invalid_encrypted_content",
        )
