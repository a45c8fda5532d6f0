"""JSON-RPC frames: parsing, errors for invalid ones, encoding of answers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import Invalid, Notification, Request, Response, RPCError
from sessions_app.ahp.versions.v0_1.wire.commands import COMMANDS
from sessions_app.core.base.errors import InvalidInput
from tests import costs
from tests.faces.ahp.generated import JSON


def refused(text: str) -> tuple[Any, int]:
    message = jsonrpc.parse(text)
    assert isinstance(message, Invalid), message
    answer = json.loads(jsonrpc.error_response(message.id, message.error))
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert answer["jsonrpc"] == "2.0"
    assert set(answer["error"]) == {"code", "message"}
    assert answer["error"]["message"]
    return answer["id"], answer["error"]["code"]


# --- what comes in ---


@pytest.mark.rule("R20")
@pytest.mark.parametrize(
    "id_", ["7", "0", "-3", '"abc"', '""', "1.0", "1.5", "12345678901234567890", "0.10000000000000000000001"]
)
def test_an_id_comes_back_as_it_was_written(id_: str) -> None:
    message = jsonrpc.parse(f'{{"jsonrpc":"2.0","id":{id_},"method":"ping","params":{{}}}}')
    assert isinstance(message, Request)
    assert jsonrpc.response(message.id, None) == f'{{"jsonrpc":"2.0","id":{id_},"result":null}}'


@pytest.mark.rule("R20")
def test_a_request_is_its_method_and_its_params() -> None:
    text = '{"jsonrpc":"2.0","id":1,"method":"subscribe","params":{"resource":"agenthost:/root"},"more":true}'
    assert jsonrpc.parse(text) == Request(1, "subscribe", {"resource": "agenthost:/root"})


@pytest.mark.parametrize("params", ["", ',"params":null'])
def test_params_that_are_missing_are_none(params: str) -> None:
    assert jsonrpc.parse(f'{{"jsonrpc":"2.0","id":1,"method":"ping"{params}}}') == Request(1, "ping", None)


@pytest.mark.rule("R22")
@pytest.mark.parametrize("params", ["{}", "[]", "null", '"text"'])
def test_a_message_without_id_is_a_notification_whatever_it_carries(params: str) -> None:
    message = jsonrpc.parse(f'{{"jsonrpc":"2.0","method":"anything","params":{params}}}')
    assert message == Notification("anything", json.loads(params))


@pytest.mark.rule("R23")
@pytest.mark.parametrize("text", ["", "{", "ping", "NaN", '{"jsonrpc":"2.0",}', "{'a':1}", "\0", "1" * 5000, "[" * 100_000])
def test_text_that_is_not_json_is_answered_without_an_id(text: str) -> None:
    assert refused(text) == (None, jsonrpc.PARSE_ERROR)


@pytest.mark.rule("R24")
@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        '"ping"',
        "1",
        "null",
        "true",
        "{}",
        '{"method":"ping"}',
        '{"jsonrpc":"2.0"}',
        '{"jsonrpc":"2.0","id":null,"method":"ping"}',
        '{"jsonrpc":"2.0","id":true,"method":"ping"}',
        '{"jsonrpc":"2.0","id":{},"method":"ping"}',
        '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        '{"jsonrpc":"2.0","result":1}',
        '{"jsonrpc":"2.0","id":[],"result":1}',
    ],
)
def test_json_that_is_no_message_is_answered_with_null_for_want_of_an_id(text: str) -> None:
    assert refused(text) == (None, jsonrpc.INVALID_REQUEST)


@pytest.mark.rule("R24")
@pytest.mark.parametrize("id_", [5, "five", 0, ""])
@pytest.mark.parametrize(
    "members",
    [
        {"method": "ping"},
        {"jsonrpc": "1.0", "method": "ping"},
        {"jsonrpc": 2.0, "method": "ping"},
        {"jsonrpc": "2.0", "method": 3},
        {"jsonrpc": "2.0", "method": None},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "result": 1, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "error": "text"},
        {"jsonrpc": "2.0", "error": {"code": "1", "message": "m"}},
    ],
)
def test_json_that_is_no_message_is_answered_with_its_id_if_that_is_one(members: dict[str, Any], id_: Any) -> None:
    assert refused(json.dumps({"id": id_, **members})) == (id_, jsonrpc.INVALID_REQUEST)


def test_a_method_that_is_no_string_is_refused_without_an_id_too() -> None:
    # It is no notification, so R22 does not silence the answer.
    assert refused('{"jsonrpc":"2.0","method":3}') == (None, jsonrpc.INVALID_REQUEST)


@pytest.mark.rule("R25")
def test_a_peers_answer_is_told_from_a_request() -> None:
    assert jsonrpc.parse('{"jsonrpc":"2.0","id":4,"result":{}}') == Response(4, {})
    failed = jsonrpc.parse('{"jsonrpc":"2.0","id":4,"error":{"code":-32009,"message":"no","data":{"request":{}}}}')
    assert isinstance(failed, Response)
    assert failed.error is not None
    assert (failed.error.code, failed.error.message, failed.error.data) == (-32009, "no", {"request": {}})


@pytest.mark.rule("R25")
def test_a_peer_that_could_not_read_us_answers_with_a_null_id() -> None:
    message = jsonrpc.parse('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}')
    assert isinstance(message, Response)
    assert message.id is None


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.rule("R27", "R31")
def test_a_request_nested_too_deep_is_refused_with_its_id() -> None:
    fits = jsonrpc.MAX_LEVELS - 2
    text = '{"jsonrpc":"2.0","id":9,"method":"createSession","params":{"config":%s}}'
    assert isinstance(jsonrpc.parse(text % nested(fits)), Request)
    assert refused(text % nested(fits + 1)) == (9, jsonrpc.INVALID_PARAMS)


@pytest.mark.rule("R22", "R31")
def test_a_notification_nested_too_deep_is_not_answered_and_has_no_params() -> None:
    text = '{"jsonrpc":"2.0","method":"dispatchAction","params":{"action":' + nested(jsonrpc.MAX_LEVELS) + "}}"
    assert jsonrpc.parse(text) == Notification("dispatchAction", None)


def test_many_brackets_are_not_many_levels() -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"lists": [[]] * 500, "text": "[" * 500}})
    assert isinstance(jsonrpc.parse(text), Request)


@pytest.mark.rule("R31")
@settings(deadline=None)
@given(
    st.text()
    | JSON.map(json.dumps)
    | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params"]), JSON).map(json.dumps)
)
def test_every_text_is_some_message_or_can_be_answered(text: str) -> None:
    message = jsonrpc.parse(text)
    if isinstance(message, Invalid):
        json.loads(jsonrpc.error_response(message.id, message.error))


# --- what goes out ---


@pytest.mark.rule("R20")
def test_a_response_carries_a_result_or_an_error_and_never_both() -> None:
    assert json.loads(jsonrpc.response(1, None)) == {"jsonrpc": "2.0", "id": 1, "result": None}
    error = RPCError(-32008, "There is no such file.")
    assert json.loads(jsonrpc.error_response(1, error)) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32008, "message": "There is no such file."},
    }


@pytest.mark.rule("R29")
def test_an_error_has_an_integer_code_a_message_and_data_only_if_there_is_some() -> None:
    assert RPCError(1, "m").to_json() == {"code": 1, "message": "m"}
    assert RPCError(1, "m", {}).to_json() == {"code": 1, "message": "m", "data": {}}
    with pytest.raises(AssertionError):
        RPCError(1, "")


@pytest.mark.rule("R26", "R27", "R28")
def test_the_errors_of_the_framing_have_the_codes_of_json_rpc() -> None:
    assert jsonrpc.invalid_request("m").code == -32600
    assert jsonrpc.method_not_found("fly").code == -32601
    assert jsonrpc.invalid_params("m").code == -32602
    assert jsonrpc.internal_error().code == -32603


@pytest.mark.rule("R27")
def test_an_error_about_params_names_every_place_and_no_value() -> None:
    with pytest.raises(InvalidInput) as caught:
        COMMANDS["authenticate"].params.read({"resource": ["hush-hush"]})
    error = jsonrpc.invalid_params(caught.value)
    assert error.message == "params.resource must be a string; params.token is required"


@pytest.mark.rule("R28")
def test_an_internal_error_tells_a_reference_and_nothing_else() -> None:
    assert jsonrpc.internal_error("req_1").to_json() == {
        "code": -32603,
        "message": "The host failed; reference for its log: req_1.",
    }


def test_a_notification_is_the_same_from_an_object_and_from_its_text() -> None:
    params = {"action": {"type": "session/ready", "session": "a:/ö"}, "serverSeq": 3}
    text = jsonrpc.notification("action", params)
    assert "id" not in json.loads(text)
    assert jsonrpc.notification_of("action", jsonrpc.encode(params)) == text


def test_a_request_of_the_host_reads_as_one() -> None:
    assert jsonrpc.parse(jsonrpc.request(1, "resourceRequest", {"uri": "file:///a"})) == Request(
        1, "resourceRequest", {"uri": "file:///a"}
    )


@pytest.mark.rule("R31")
@pytest.mark.parametrize("id_", [r'"\ud800"', r'"a\udfffb"', r'"\udc00\ud800"'])
def test_half_a_character_in_an_id_comes_back_in_text_that_utf8_can_carry(id_: str) -> None:
    message = jsonrpc.parse(f'{{"jsonrpc":"2.0","id":{id_},"method":"ping"}}')
    assert isinstance(message, Request)
    answer = jsonrpc.response(message.id, {"text": "größer \N{GRINNING FACE}"})
    answer.encode("utf-8")
    assert json.loads(answer)["id"] == json.loads(id_)
    assert "größer \N{GRINNING FACE}" in answer


@settings(deadline=None)
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters()))
def test_every_id_survives_the_way_in_and_out(id_: Any) -> None:
    text = exact_json.dumps({"jsonrpc": "2.0", "id": id_, "method": "ping"})
    message = jsonrpc.parse(text)
    assert isinstance(message, Request)
    back = json.loads(jsonrpc.response(message.id, None))["id"]
    assert back == id_ or (isinstance(id_, float) and math.isclose(back, id_, rel_tol=0))


@pytest.mark.rule("R27", "R31")
def test_a_frame_of_too_many_members_is_refused_before_it_is_parsed() -> None:
    text = '{"jsonrpc":"2.0","id":9,"method":"createSession","params":{"config":[%s0]}}' % ("0," * 700_000)
    assert refused(text) == (None, jsonrpc.INVALID_REQUEST)
    assert refused("[" * 8_000_000) == (None, jsonrpc.PARSE_ERROR)
    # As much at the most.
    assert costs.beside(lambda: (refused(text), refused("[" * 8_000_000))) < 4
