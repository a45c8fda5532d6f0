"""Untrusted text is made safe to print on a terminal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenthost.client.safe_text import json_line, one_line, plain, truncate, width


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain\ttext\nof two lines", "plain\ttext\nof two lines"),
        ("\x1b[31mred\x1b]0;title\x07", "␛[31mred␛]0;title␇"),
        ("\x9b2J\x90\x85", "�2J��"),
        ("line\r\nend", "line\nend"),
        ("over\rwritten", "overwritten"),
        ("\x00\x08\x7f", "␀␈␡"),
        ("half \ud83d a letter", "half � a letter"),
        ("שלום 👩‍🚀 ☃", "שלום 👩‍🚀 ☃"),
    ],
)
def test_control_characters_are_replaced_with_symbols(given_text: str, shown: str) -> None:
    assert plain(given_text) == shown


@given(st.text())
def test_no_control_character_remains(text: str) -> None:
    assert not [each for each in plain(text) if (ord(each) < 0x20 and each not in "\n\t") or 0x7F <= ord(each) < 0xA0]
    plain(text).encode()


@given(
    st.recursive(
        st.text() | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_arguments_are_complete_on_one_line(value: object) -> None:
    written = json_line(value)
    assert written.isprintable()
    assert json.loads(written) == json.loads(json.dumps(value))


def test_invisible_and_direction_changing_characters_are_escaped() -> None:
    assert json_line("a\u202eb\u200bc\u2066") == '"a\\u202eb\\u200bc\\u2066"'
    assert one_line("two\nlines\u202e \x1b[1m") == "two lines\\u202e \\u001b[1m"


def test_truncation_counts_terminal_columns() -> None:
    assert width("日本") == 4
    assert width("e\u0301") == 1
    assert truncate("日本語", 6) == "日本語"
    assert truncate("日本語x", 6) == "日本…"
    assert width(truncate("abc" * 50, 20)) == 20
