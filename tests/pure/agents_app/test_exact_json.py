"""JSON that comes back as it went in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json
from tests import costs

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


# --- how much of it there is ---


def _counted(value: Any) -> int:
    """Members of all lists and objects, one more for an empty one."""
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else max(1, len(children)) + sum(map(_counted, children))


def _levels(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_levels, value.values() if isinstance(value, dict) else value), default=0)


_marks = st.text(alphabet='a"\\[]{},:é\ud800')
_values = st.recursive(
    st.none() | st.integers() | _marks, lambda inner: st.lists(inner) | st.dictionaries(_marks, inner), max_leaves=20
)


@given(_values, st.booleans())
def test_members_and_levels_are_counted_exactly_whatever_the_strings_hold(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    members, levels = _counted(value), _levels(value)
    assert exact_json.excess(text, members=members, levels=levels) is None
    if members:
        assert exact_json.excess(text, members=members - 1, levels=levels) == "members"
        assert exact_json.excess(text, members=members, levels=levels - 1) == "levels"
        assert exact_json.excess(text[:-1], members=members, levels=levels - 1) == "unclosed"


@given(_values, _values)
def test_the_place_of_a_level_is_the_path_to_it(before: Any, inner: Any) -> None:
    text = json.dumps({"before": before, "a/b": [0, {"x": [inner], "after": before}]})
    if _levels(before) < 3:
        assert exact_json.place_of_level(text, 4) == ("a/b", 1, "x")
    assert exact_json.place_of_level(text, 50) == ()


def test_an_honest_text_is_never_too_large_for_what_its_strings_hold() -> None:
    text = json.dumps({"content": '[{"a":1},"\\'.join(["x"] * 300_000)})
    assert exact_json.excess(text, members=2, levels=1) is None


_TOO_LARGE = {
    "brackets": lambda: b"[" * 8_000_000,
    "lists": lambda: b"[" * 4_000_000 + b"]" * 4_000_000,
    "members": lambda: b"{" + b",".join(b'"%d":0' % number for number in range(700_000)) + b"}",
    "strings": lambda: b"[" + b'"",' * 2_700_000 + b'""]',
    "escapes": lambda: b'["' + b'\\"' * 3_000_000 + b'"' + b",0" * 1_000_000 + b"]",
}


@pytest.mark.parametrize("name", _TOO_LARGE)
def test_text_that_is_too_large_costs_next_to_nothing(name: str) -> None:
    text = _TOO_LARGE[name]()

    def excess() -> str | None:
        return exact_json.excess(text, members=exact_json.MAX_MEMBERS, levels=100)

    assert excess() in ("members", "unclosed")
    # As much at the most; parsing them takes several times as much.
    assert costs.beside(excess) < 4


@pytest.mark.parametrize("length", [0, 1, 50, 51, pytest.param(200, marks=pytest.mark.slow)])
def test_json_that_is_encoded_in_pieces_is_the_same(length: int) -> None:
    number = exact_json.loads("0.1000000000000000000000000000000000001")
    item = {"role": "user", "content": [{"type": "text", "text": 'a "quoted" ö'}, number] * length}
    value = {"model": "m", "é": None, "messages": [item, "x", 1.0, []] * length, "more": {"deep": [item] * length}, "empty": {}}
    assert exact_json.dumps_in_pieces(value) == exact_json.dumps(value)


def test_a_long_list_is_not_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder lets no other thread run until it returns."""
    longest, dumps = 0, exact_json.dumps

    def noted(value: object) -> str:
        nonlocal longest
        text = dumps(value)
        longest = max(longest, len(text))
        return text

    monkeypatch.setattr(exact_json, "dumps", noted)
    parts = [{"type": "text", "text": "x" * 1000}] * 500
    assert len(exact_json.dumps_in_pieces({"messages": [{"role": "user", "content": parts}] * 60})) > 30_000_000
    assert longest < 2_000


@pytest.mark.parametrize(
    "text",
    ['"a"', '"\\ud83d"', '"\\ud83d\\ude00 \\u0000"', '"\ud800"', '"a\nb"', '"a', '"a" b', '"a" \n', '"\\x"', '""', '"é\u2028"'],
)
def test_a_text_alone_is_read_as_the_standard_library_reads_it(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(exact_json.NotJSON):
            exact_json.loads(text)
        return
    assert exact_json.loads(text) == expected
    assert exact_json.loads(text.encode("utf-8", "surrogatepass")) == expected
    assert exact_json.loads(text.encode("utf-16-le", "surrogatepass")) == expected
