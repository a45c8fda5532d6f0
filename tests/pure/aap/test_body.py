"""Request bodies: from bytes to a JSON object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from agents_app import exact_json
from sessions_app.aap import body, problems
from sessions_app.core.base.errors import InvalidInput
from tests import costs


@pytest.mark.rule("A4")
@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1}x',
        b'{"a": 01}',
        b'{"a": "\x00"}',
        b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-32"),
        b'{"a": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"]" * 100_000,
    ],
)
def test_a_body_that_is_not_json_in_utf_8_is_400(raw: bytes) -> None:
    with pytest.raises(ParseError):
        body.parse_object(raw)


@pytest.mark.rule("A4")
@pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b"1", b"true"])
def test_json_that_is_no_object_is_refused_as_invalid(raw: bytes) -> None:
    assert pointers(raw) == [""]


def pointers(raw: bytes) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        body.parse_object(raw)
    return [problems.pointer(fault.path) for fault in caught.value.faults]


def nested(levels: int) -> bytes:
    """``levels`` containers in all, the outermost being the body."""
    return b'{"a/b": {"c": [0, ' + b"[" * (levels - 3) + b"]" * (levels - 3) + b"]}}"


@pytest.mark.rule("A93")
@pytest.mark.parametrize("levels", [101, 102, 900, 1_100, 140_000])
def test_json_nested_deeper_than_100_levels_is_refused_where_it_gets_too_deep(levels: int) -> None:
    assert pointers(nested(levels)) == ["/a~1b/c/1" + "/0" * 97]


@pytest.mark.rule("A93")
def test_json_nested_100_levels_is_fine() -> None:
    assert body.parse_object(nested(100))["a/b"]["c"][0] == 0


@pytest.mark.rule("A93")
def test_brackets_in_strings_are_not_levels() -> None:
    assert body.parse_object(b'{"a": "' + b"[{" * 500 + b'\\""}') == {"a": "[{" * 500 + '"'}


@pytest.mark.rule("A96")
@pytest.mark.parametrize("escape", ["\\u0000", "\\ud83d", "\\uDC00", "\\ud83d\\ud83d"])
def test_characters_that_cannot_be_stored_are_refused_anywhere_in_a_body(escape: str) -> None:
    assert pointers(b'{"unknown": [{"x": "a%b"}]}' % escape.encode()) == ["/unknown/0/x"]
    assert pointers(b'{"a": {"%b": 1}}' % escape.encode())[0].startswith("/a/")


@pytest.mark.rule("A10")
def test_a_pair_of_surrogates_is_a_character() -> None:
    assert body.parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.rule("A97", "A11")
def test_numbers_and_the_order_of_keys_survive() -> None:
    raw = b'{"z":123456789012345678901234567890,"a":1.0,"m":-0.0,"k":1e+22}'
    assert exact_json.dumps(body.parse_object(raw)).encode() == raw


@pytest.mark.rule("A4")
@given(st.binary() | st.text().map(str.encode) | st.recursive(st.none(), st.lists).map(lambda v: str(v).encode()))
def test_any_bytes_are_an_object_or_refused(raw: bytes) -> None:
    try:
        value: Any = body.parse_object(raw)
    except (ParseError, InvalidInput):
        return
    assert isinstance(value, dict)


@pytest.mark.rule("A4", "A93")
@pytest.mark.parametrize(
    ("make", "pointer"),
    [
        (lambda: b'{"a":' + b"[" * 4_000_000 + b"]" * 4_000_000 + b"}", ""),
        (lambda: b'{"a":[' + b"0," * 4_000_000 + b"0]}", ""),
        (lambda: b"{" + b",".join(b'"%d":0' % number for number in range(700_000)) + b"}", ""),
        (lambda: b'{"a":{' + b",".join(b'"%d":"\\u0000"' % number for number in range(140_000)) + b"}}", "/a/139999"),
        (lambda: b'{"a":' + b"[" * 140_000 + b"]" * 140_000 + b"}", "/a" + "/0" * 99),
    ],
    ids=["lists", "numbers", "members", "characters", "levels"],
)
def test_a_body_of_any_number_of_members_is_refused_at_once(make: Callable[[], bytes], pointer: str) -> None:
    raw = make()
    assert pointers(raw)[0] == pointer
    # As much at the most; parsing would cost up to thirteen times as much. Only characters are parsed, for three times as much.
    assert costs.beside(lambda: pointers(raw)) < (4 if pointer == "" else 15)


@pytest.mark.rule("A4")
def test_any_number_of_unmatched_brackets_is_not_json() -> None:
    def refuse() -> None:
        with pytest.raises(ParseError):
            body.parse_object(b"[" * 8_000_000)

    assert costs.beside(refuse) < 4


@pytest.mark.rule("A93", "A37")
def test_ten_thousand_messages_of_blocks_are_fine() -> None:
    blocks = '[{"type":"text","text":"[{,"},{"type":"tool_use","toolCallId":"c","name":"n","input":{"a":1,"b":[2]}}]'
    message = f'{{"role":"assistant","content":{blocks}}}'
    value = body.parse_object(f'{{"messages":[{",".join([message] * 10_000)}]}}'.encode())
    assert len(value["messages"]) == 10_000


@pytest.mark.rule("A4", "A93")
def test_commas_in_large_strings_do_not_count_as_members() -> None:
    assert len(body.parse_object(b'{"a":"' + b'[{,\\"' * 2_000_000 + b'"}')["a"]) == 8_000_000
