"""Checks all frames that a host sends on one connection against the protocol (R37).

Give it both directions, as text: ``asked`` for what the client sends, ``heard`` for what the host sends. ``heard`` fails the test
at the first frame that is out of order, and answers the frame's value otherwise.
"""

from __future__ import annotations

from typing import Any

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import Invalid, Notification, Request, Response
from sessions_app.ahp.versions.v0_1.wire import commands, envelopes, errors, notifications
from sessions_app.core.base.errors import Fault
from sessions_app.core.base.shapes import Shape

RESOURCE_REQUEST: Shape[Any] = Shape(commands.ResourceRequestParams)
KNOWN_CODES = {-32700, -32600, -32601, -32602, -32603, *map(int, errors.Code)}


class Audit:
    def __init__(self) -> None:
        self._open: dict[Any, str] = {}

    def asked(self, text: str) -> str:
        message = jsonrpc.parse(text)
        if isinstance(message, Request):
            assert message.id not in self._open, f"the test reuses the id {message.id!r}"
            self._open[message.id] = message.method
        return text

    def heard(self, text: str) -> Any:
        value = exact_json.loads(text)
        message = jsonrpc.parse(text)
        match message:
            case Notification(method="action"):
                _settle("params", envelopes.envelope_faults(message.params))
            case Notification(method="notification"):
                _settle("params", notifications.NOTIFICATION.faults(message.params))
            case Request(method="resourceRequest"):
                _settle("params", RESOURCE_REQUEST.faults(message.params))
            case Response():
                self._answered(value, message)
            case Invalid() | Notification() | Request():
                raise AssertionError(f"nothing that a host says: {text[:300]}")
        return value

    def _answered(self, value: dict[str, Any], response: Response) -> None:
        assert value.keys() <= {"jsonrpc", "id", "result", "error"}, f"a response has more than it should: {sorted(value)}"
        # Without an id: the answer to a frame that had none to give (R23, R24).
        method = None if response.id is None else self._open.pop(response.id, None)
        assert method is not None or response.error is not None, f"a result for {response.id!r}, which nobody awaits"
        if response.error is not None:
            assert value["error"].keys() <= {"code", "message", "data"}
            assert value["error"]["message"], "an error says what is wrong"
            assert response.error.code in KNOWN_CODES, f"an unknown code: {response.error.code}"
            _settle("error.data", _data_faults(response.error.code, value["error"]))
        elif method is not None and method in commands.COMMANDS:
            _settle("result", commands.COMMANDS[method].result.faults(response.result))

    def all_answered(self) -> None:
        assert not self._open, f"never answered: {self._open}"


def _data_faults(code: int, error: dict[str, Any]) -> list[Fault]:
    if code not in errors.DATA:
        return []
    if "data" not in error:
        return [] if code == errors.Code.PERMISSION_DENIED else [Fault((), "is required")]
    return errors.DATA[errors.Code(code)].faults(error["data"])


def _settle(root: str, faults: list[Fault]) -> None:
    assert not faults, "; ".join(fault.describe(root) for fault in faults)
