"""JSON that comes back as it went in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)


@pytest.mark.rule("A97")
@given(numbers)
def test_every_number_keeps_its_value(text: str) -> None:
    from decimal import Decimal

    back = exact_json.dumps(exact_json.loads(text))
    assert Decimal(back) == Decimal(text)


@pytest.mark.rule("A97")
@pytest.mark.parametrize("text", ["9007199254740993", "1.0", "0.1000000000000000055511151231257827", "1e400", "-1e-999", "-0.0"])
def test_odd_numbers_come_back_as_they_were(text: str) -> None:
    assert exact_json.dumps(exact_json.loads(f'{{"a":[{text},"x"]}}')) == f'{{"a":[{text},"x"]}}'


@pytest.mark.rule("A11", "A10")
def test_keys_keep_their_order_and_text_is_not_escaped() -> None:
    text = '{"z":1,"a":{"é\u2028":"👩‍👩‍👧"}}'
    assert exact_json.dumps(exact_json.loads(text)) == text


@pytest.mark.rule("A4")
@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "", "{", "[" * 100_000, '{"a":1,}'])
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(exact_json.NotJSON):
        exact_json.loads(text)


def test_plain_numbers_are_floats_that_code_can_calculate_with() -> None:
    assert exact_json.loads_plain("[0.1000000000000000055511151231257827, 1e400]") == [0.1, float("inf")]


plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(plain)
def test_any_value_comes_back(value: Any) -> None:
    assert exact_json.loads(exact_json.dumps(value)) == json.loads(json.dumps(value))
