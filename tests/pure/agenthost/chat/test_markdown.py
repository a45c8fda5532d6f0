"""Markdown of answers on a terminal: forms, wrapping, tables, hostile text."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenthost.chat.markdown import Markdown
from agenthost.chat.wrapping import Wrapper
from agenthost.client.safe_text import plain, width

_STYLES = re.compile(r"\x1b\[[0-9;]*m")

ANSWER = """# Title of **this**

A paragraph with **bold words**, *italic*, `code`, ~~gone~~ and [a link](https://a.example/b_c) and snake_case_name \
2 * 3 * 4 \\*no\\*. It is long enough to wrap more than once, I hope.
Second line

- item one that is quite long so that it has to wrap at the width of this terminal somewhere
  - nested **item**
- [x] done
1. first
> quoted text that is long enough to wrap around the width, with *emphasis* inside
> - list in a quote

```python
def f(x):
    return x * 2  # **not bold**
```

| Name | Value | Description |
|:-----|------:|-------------|
| `a`  | 1 | some words that are long enough to need several lines in the cell |
| bb | 22222 | **bold** |

---
日本語のテキストはスペースがありませんのでどこでも改行できますがどうでしょうか、長い文章です。
End **unclosed and ![img](http://x/y.png)"""


def rendered(*pieces: str, columns: int = 60, unicode: bool = True) -> str:
    written: list[str] = []
    wrapper = Wrapper(written.append, lambda: columns)
    markdown = Markdown(wrapper, columns, unicode=unicode)
    for piece in pieces:
        markdown.feed(plain(piece))
        wrapper.flush()
    markdown.finish()
    wrapper.flush()
    return "".join(written)


def shown(*pieces: str, columns: int = 60, unicode: bool = True) -> str:
    """Without styles."""
    return _STYLES.sub("", rendered(*pieces, columns=columns, unicode=unicode))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n## Two", "\x1b[1;4mOne\x1b[0m\n\x1b[1mTwo\x1b[0m"),
        ("a **b c** d", "a \x1b[1mb c\x1b[0m d"),
        ("a *b* _c_ ***d***", "a \x1b[3mb\x1b[0m \x1b[3mc\x1b[0m \x1b[1;3md\x1b[0m"),
        ("**a *b* c**", "\x1b[1ma \x1b[0m\x1b[1;3mb\x1b[0m\x1b[1m c\x1b[0m"),
        ("use `x**2**` so", "use \x1b[36mx**2**\x1b[0m so"),
        ("`` a`b ``", "\x1b[36ma`b\x1b[0m"),
        ("2 * 3 * 4, a_b_c, **open", "2 * 3 * 4, a_b_c, **open"),
        ("\\*a\\* \\x", "*a* \\x"),
        ("[1] and [x](y", "[1] and [x](y"),
        ("<https://a.example> &amp; <b>", "<https://a.example> &amp; <b>"),
        ("[https://a.example](https://a.example)", "\x1b[4mhttps://a.example\x1b[0m"),
        ("- a\n* b\n+ c\n3) d", "• a\n• b\n• c\n3) d"),
        ("- [ ] a\n- [x] b", "☐ a\n☑ b"),
        ("> a\n> > b", "\x1b[2m│ \x1b[0ma\n\x1b[2m│ │ \x1b[0mb"),
        ("a\n\n\n\nb\n\n", "a\n\nb\n"),
        ("| not a table", "| not a table\n"),
        ("```\n*a*\n``\n", "\x1b[2m" + "─" * 60 + "\x1b[0m\n\x1b[36m*a*\x1b[0m\n\x1b[36m``\x1b[0m\n"),
    ],
)
def test_each_form_is_shown_as_what_it_means(text: str, expected: str) -> None:
    assert rendered(text) == expected


def test_a_link_shows_its_address_which_may_differ_from_its_text() -> None:
    assert shown("[your bank](https://evil.example/x_(y))") == "your bank (https://evil.example/x_(y))"


def test_the_result_does_not_depend_on_how_the_stream_is_cut() -> None:
    whole = shown(ANSWER)
    for seed in range(60):
        chance, at, pieces = random.Random(seed), 0, []
        while at < len(ANSWER):
            length = chance.randint(1, 9)
            pieces.append(ANSWER[at : at + length])
            at += length
        assert shown(*pieces) == whole


@given(st.lists(st.text(st.sampled_from("ab *_`~[]()!\\>#-|1.\n \t日"), max_size=12), max_size=12), st.integers(20, 50))
def test_any_text_is_the_same_in_one_piece_and_in_many(pieces: list[str], columns: int) -> None:
    assert shown(*pieces, columns=columns) == shown("".join(pieces), columns=columns)


@given(st.text(max_size=300), st.integers(20, 90))
def test_no_character_of_an_answer_controls_the_terminal(text: str, columns: int) -> None:
    left = shown(text, columns=columns).replace("\n", "")
    assert not [each for each in left if ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 or each in "\u202a\u202e\u2066\u2069\u2028"]


def test_hostile_text_in_every_form_is_shown_and_not_obeyed() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp"
    text = f"# {evil}\n- {evil}\n> {evil}\n[{evil}](http://{evil})\n```{evil}\n{evil}\n```\n|{evil}|b|\n|-|-|\n|{evil}|d|\n"
    left = shown(text, columns=200)
    assert "\x1b" not in left
    assert "\x07" not in left
    assert "\u202e" not in left
    assert left.count("␛]0;owned␇") == 9


@pytest.mark.parametrize("columns", [20, 33, 60])
def test_lines_end_between_words_within_the_width(columns: int) -> None:
    text = shown(ANSWER.partition("```")[0], columns=columns)
    assert "".join(ANSWER.split("\n\n")[1].split())[:30].replace("*", "") in "".join(text.split())
    for line in text.split("\n"):
        assert width(line.rstrip()) <= columns or width(line.strip("│ •").split(" ")[0]) > columns


def test_a_continued_line_of_a_list_is_indented_below_its_text() -> None:
    lines = shown("- one two three four five six\n  - seven eight nine ten eleven", columns=20).split("\n")
    assert [line.rstrip() for line in lines] == ["• one two three four", "  five six", "  • seven eight nine", "    ten eleven"]


def test_a_table_fits_the_terminal_and_keeps_its_columns() -> None:
    table = "|Name|Value|About|\n|:--|--:|---|\n|a|1|some words that need several lines|\n|bb|22|x|\n"
    assert shown(table, columns=35).splitlines() == [
        "Name │ Value │ About",
        "─────┼───────┼─────────────────────",
        "a    │     1 │ some words that need",
        "     │       │ several lines",
        "bb   │    22 │ x",
    ]


def test_a_table_that_cannot_fit_is_shown_cell_by_cell() -> None:
    names = "|".join(f"column{number}" for number in range(6))
    text = shown(f"|{names}|\n|{'-|' * 6}\n|{'value|' * 6}\n", columns=24)
    assert text.splitlines()[:2] == ["  column0: value", "  column1: value"]


def test_a_long_table_is_shown_before_it_is_complete() -> None:
    written: list[str] = []
    wrapper = Wrapper(written.append, lambda: 40)
    markdown = Markdown(wrapper, 40, unicode=True)
    markdown.feed("|a|b|\n|-|-|\n" + "|1|2|\n" * 100)
    wrapper.flush()
    assert "".join(written).count("│") > 60


def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    text = shown(
        ANSWER.replace("日本語のテキストはスペースがありませんのでどこでも改行できますがどうでしょうか、長い文章です。", ""),
        unicode=False,
    )
    assert text.isascii()


@pytest.mark.parametrize(
    "text", ["*" * 20_000, "[" * 20_000, "`a" * 10_000, "**a " * 5_000, "|" * 20_000, "> " * 10_000, "1." * 9000]
)
def test_hostile_marks_cost_time_in_proportion_to_their_number(text: str) -> None:
    began = time.process_time()
    rendered(*(text[at : at + 50] for at in range(0, len(text), 50)))
    # About 0.1 s on an idle machine; quadratic work takes minutes.
    assert time.process_time() - began < 10
