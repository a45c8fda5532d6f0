"""The check of a host's frames that other tests use."""

from __future__ import annotations

import pytest

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire import errors
from tests.faces.ahp.audit import Audit

READY = {"type": "session/ready", "session": "echo:/1"}


@pytest.fixture
def audit() -> Audit:
    audit = Audit()
    audit.asked(jsonrpc.request(1, "listSessions", {}))
    audit.asked(jsonrpc.request("two", "ping", {}))
    audit.asked(jsonrpc.notification("unsubscribe", {"resource": "a:/b"}))
    return audit


@pytest.mark.parametrize(
    "text",
    [
        jsonrpc.response(1, {"items": []}),
        jsonrpc.response("two", None),
        jsonrpc.error_response(1, jsonrpc.internal_error()),
        jsonrpc.error_response(None, jsonrpc.invalid_request("m")),
        jsonrpc.error_response(1, errors.permission_denied("m")),
        jsonrpc.error_response(1, errors.unsupported_protocol_version(["0.1.0"])),
        jsonrpc.notification("action", {"action": READY, "serverSeq": 1}),
        jsonrpc.notification("notification", {"notification": {"type": "notify/sessionRemoved", "session": "a:/b"}}),
        jsonrpc.request(1, "resourceRequest", {"uri": "file:///a"}),
    ],
)
def test_valid_frames_of_a_host_pass(audit: Audit, text: str) -> None:
    assert audit.heard(text) == exact_json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        jsonrpc.response(1, None),
        jsonrpc.response(1, {"items": [{}]}),
        jsonrpc.response(1, {"items": [], "more": 1}),
        jsonrpc.response("two", {}),
        jsonrpc.response(9, None),
        '{"jsonrpc":"2.0","id":"two","result":null,"more":1}',
        jsonrpc.error_response(1, RPCError(-1, "m")),
        jsonrpc.error_response(1, RPCError(-32007, "m")),
        jsonrpc.error_response(1, RPCError(-32005, "m", {"versions": []})),
        jsonrpc.error_response(1, RPCError(-32009, "m", {"request": {}})),
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":""}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"m","stack":""}}',
        jsonrpc.notification("action", {"action": READY}),
        jsonrpc.notification("action", {"action": {**READY, "activity": None}, "serverSeq": 1}),
        jsonrpc.notification("notification", {"type": "notify/sessionRemoved", "session": "a:/b"}),
        jsonrpc.notification("invented", {}),
        jsonrpc.request(1, "createSession", {}),
    ],
)
def test_invalid_frames_of_a_host_fail(audit: Audit, text: str) -> None:
    with pytest.raises(AssertionError):
        audit.heard(text)


def test_an_answer_comes_once(audit: Audit) -> None:
    with pytest.raises(AssertionError):
        audit.all_answered()
    audit.heard(jsonrpc.response(1, {"items": []}))
    audit.heard(jsonrpc.response("two", None))
    audit.all_answered()
    with pytest.raises(AssertionError):
        audit.heard(jsonrpc.response("two", None))
