"""JSON-RPC 2.0 as AHP uses it: text frames to messages and back (R20-R29).

Pure. ``parse`` returns the message in a frame; it never raises. Answers are text, ready to be sent. Methods and their params are
not known here.

For an ``Invalid`` frame, send ``error_response(invalid.id, invalid.error)`` and go on (R31). Numbers, also in ids, keep their
spelling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from agents_app import exact_json
from agents_app.exact_json import LongNumber
from sessions_app.core.base.errors import InvalidInput

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MAX_LEVELS = 100
"""The depth to which a frame may be nested, as in bodies of AAP; far below the interpreter's own limit."""

_LONGEST_SUBJECT = 200

Id = int | float | LongNumber | str


class RPCError(Exception):
    """The error of a request: ``{code, message, data?}`` (R29).

    ``message`` is shown to users of the client; it contains no internals of this host (R28).
    """

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        assert message, "an error has a message"
        self.code, self.message, self.data = code, message, data
        super().__init__(f"{code} {message}")

    def about(self, subject: str) -> RPCError:
        """The same error with a name or URI that the client sent in its message. Long ones are cut."""
        shown = subject if len(subject) <= _LONGEST_SUBJECT else f"{subject[:_LONGEST_SUBJECT]}…"
        return RPCError(self.code, f'{self.message.rstrip(".")}: "{shown}".', self.data)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            value["data"] = self.data
        return value


@dataclass(frozen=True, slots=True)
class Request:
    """To be answered once, with this id. ``params``: as received, not validated; None if there are none."""

    id: Id
    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Notification:
    """Never answered, not even if it is invalid (R22)."""

    method: str
    params: Any


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the peer. ``error``: None for a success. ``id``: None if the peer could not read the request's id."""

    id: Id | None
    result: Any = None
    error: RPCError | None = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """A frame that is no message, with the error to send and the id for it."""

    id: Id | None
    error: RPCError


Message = Request | Notification | Response | Invalid


def parse(text: str) -> Message:
    excess = exact_json.excess(text, members=exact_json.MAX_MEMBERS, levels=MAX_LEVELS)
    if excess == "members":
        return Invalid(None, _invalid(f"The frame has more than {exact_json.MAX_MEMBERS:,} members in its lists and objects."))
    if excess == "unclosed":
        return _unreadable("The frame is not JSON.")
    try:
        value = exact_json.loads(text)
    except exact_json.NotJSON as error:
        deep = isinstance(error.__cause__, RecursionError)
        return _unreadable("The frame is nested too deep to be parsed." if deep else "The frame is not JSON.")
    if isinstance(value, list):
        return Invalid(None, _invalid("A frame is one message, not an array of them."))
    if not isinstance(value, dict):
        return Invalid(None, _invalid("A message must be a JSON object."))
    message = _message(value)
    return message if excess is None else _without_depths(message)


def _unreadable(message: str) -> Invalid:
    return Invalid(None, RPCError(PARSE_ERROR, message))


def _without_depths(message: Message) -> Message:
    if isinstance(message, Request):
        return Invalid(message.id, RPCError(INVALID_PARAMS, f"params are nested more than {MAX_LEVELS} levels deep."))
    # Notifications are never answered: without params it is ignored as invalid.
    return Notification(message.method, None) if isinstance(message, Notification) else message


def _message(value: dict[str, Any]) -> Message:
    named = value.get("id")
    id_ = named if _is_id(named) else None
    if value.get("jsonrpc") != "2.0":
        return Invalid(id_, _invalid('A message must have the member jsonrpc: "2.0".'))
    if "method" not in value:
        return _response(value, id_)
    method = value["method"]
    if not isinstance(method, str):
        return Invalid(id_, _invalid("method must be a string."))
    if "id" not in value:
        return Notification(method, value.get("params"))
    if id_ is None:
        return Invalid(None, _invalid("id must be a number or a string; a notification has none."))
    return Request(id_, method, value.get("params"))


def _response(value: dict[str, Any], id_: Id | None) -> Message:
    answers = [member for member in ("result", "error") if member in value]
    if not answers:
        return Invalid(id_, _invalid("A message must have a method, or a result or error."))
    if len(answers) > 1:
        return Invalid(id_, _invalid("A response has a result or an error, not both."))
    if "id" not in value or (id_ is None and value["id"] is not None):
        return Invalid(None, _invalid("A response must have the id of its request."))
    if answers == ["result"]:
        return Response(id_, value["result"])
    error = value["error"]
    if not isinstance(error, dict) or type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        return Invalid(id_, _invalid("error must be an object with an integer code and a message."))
    data = error.get("data")
    return Response(id_, None, RPCError(error["code"], error["message"] or "?", data if isinstance(data, dict) else None))


def _is_id(value: Any) -> bool:
    return isinstance(value, int | float | LongNumber | str) and not isinstance(value, bool)


# --- errors of JSON-RPC itself ---


def _invalid(message: str) -> RPCError:
    return RPCError(INVALID_REQUEST, message)


def invalid_request(message: str) -> RPCError:
    """A request before the handshake, or a second handshake (R40, R47)."""
    return RPCError(INVALID_REQUEST, message)


def method_not_found(method: str) -> RPCError:
    return RPCError(METHOD_NOT_FOUND, "There is no such method.").about(method)


def invalid_params(fault: InvalidInput | str) -> RPCError:
    """Params that do not fit their shape or break another rule (R27)."""
    return RPCError(INVALID_PARAMS, fault.describe("params") if isinstance(fault, InvalidInput) else fault)


def internal_error(reference: str = "") -> RPCError:
    """``reference``: to find the failure in the log; the client gets nothing else of it (R28)."""
    return RPCError(INTERNAL_ERROR, f"The host failed; reference for its log: {reference}." if reference else "The host failed.")


# --- frames to send ---


def response(id_: Id, result: Any) -> str:
    return encode({"jsonrpc": "2.0", "id": id_, "result": result})


def response_of(id_: Id, result: str) -> str:
    """``result``: JSON text."""
    return f'{{"jsonrpc":"2.0","id":{encode(id_)},"result":{result}}}'


def error_response(id_: Id | None, error: RPCError) -> str:
    return encode({"jsonrpc": "2.0", "id": id_, "error": error.to_json()})


def request(id_: Id, method: str, params: dict[str, Any]) -> str:
    return encode({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, params: dict[str, Any]) -> str:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def notification_of(method: str, params: str) -> str:
    """``params``: JSON text, so that one encoding serves all connections."""
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}'


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> str:
    """JSON text that UTF-8 can encode: lone surrogates, which a client may send in an id, stay escaped."""
    text = exact_json.dumps(value)
    if text.isascii() or _LONE_SURROGATE.search(text) is None:
        return text
    # Such a character can only be in a JSON string, where the escape means the same.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
