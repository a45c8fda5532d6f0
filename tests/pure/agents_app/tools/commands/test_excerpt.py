"""Readable text of terminal output, and its head and tail."""

from __future__ import annotations

import random
import time

import pytest

from agents_app.tools.commands.excerpt import Cleaner, Excerpt, Preview
from tests import costs


def cleaned(*pieces: str) -> str:
    cleaner = Cleaner()
    return "".join([*(cleaner.feed(piece) for piece in pieces), cleaner.end()])


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("plain\r\ntext", "plain\ntext"),
        ("\x1b[1;31mred\x1b[0m\x1b[K\n", "red\n"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1bP1$r0m\x1b\\x\x1b(Bx\x1b=x\x1b7x", "xxxx"),
        ("0%\r50%\r100%\r\nnext", "100%\nnext"),
        ("0%\r100%\r", "100%"),
        ("abc\b\bxy\n\b\b\n", "axy\n\n"),
        ("a\x07b\x00c\x9bd\te\x7f", "abcd\te"),
        ("a\r\r\nb", "a\nb"),
        ("cut \x1b[3", "cut "),
        ("cut \x1b]0;never ends", "cut "),
        ("\x1b]0;broken\x1b[1mbold\n", "]0;brokenbold\n"),
        ("h\u00e9 \U0001f600", "h\u00e9 \U0001f600"),
    ],
)
def test_control_sequences_are_removed_and_lines_are_as_they_were_at_last(printed: str, read: str) -> None:
    assert cleaned(printed) == read


def test_the_pieces_of_the_output_do_not_matter() -> None:
    text = "one\r\n\x1b[1mtwo\x1b[0m\x1b]0;t\x1b\\\r\n10%\r20%\r\nab\bc\x1b]2;x\x07\n" * 20
    whole, rng = cleaned(text), random.Random(1)
    for _ in range(50):
        ends = sorted(rng.sample(range(len(text)), 30))
        assert cleaned(*(text[a:b] for a, b in zip([0, *ends], [*ends, None], strict=True))) == whole


@pytest.mark.parametrize("piece", ["\x1b]", "\x1b[", "\x1b", "\r", "\b", "\x1b]0;", "\x1b[1;", "x"])
def test_hostile_output_takes_linear_time(piece: str) -> None:
    cleaner, excerpt = Cleaner(), Excerpt(1000)
    began = time.process_time()
    for _ in range(20):
        excerpt.add(cleaner.feed(piece * 30_000))
    excerpt.add(cleaner.end())
    assert len(excerpt.text()) < 1200
    assert time.process_time() - began < 75 * costs.reading_numbers()


def test_a_long_line_is_not_held_back_for_ever() -> None:
    cleaner = Cleaner()
    assert len(cleaner.feed("x" * 20_000)) == 20_000


def test_an_excerpt_has_the_head_the_tail_and_how_much_is_left_out() -> None:
    excerpt = Excerpt(30)
    for number in range(100):
        excerpt.add(f"{number:03}\n")
    lines = excerpt.text().split("\n")
    assert lines[:3] == ["000", "001", "00"]
    assert lines[3] == "[370 characters with 93 line ends of the output are left out here]"
    assert lines[4:] == ["095", "096", "097", "098", "099", ""]


def test_an_excerpt_of_one_piece_is_that_of_many() -> None:
    one, many, text = Excerpt(100), Excerpt(100), "".join(f"{n}\n" for n in range(200))
    one.add(text)
    for character in text:
        many.add(character)
    assert one.text() == many.text()
    short = Excerpt(100)
    short.add("short")
    assert short.text() == "short"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([], ("", False)),
        (["one\r\n", "\x1b[1mtwo\x1b[0m\r\n"], ("one\ntwo", False)),
        (["a" * 30], ("a" * 20, True)),
        ([f"line {number}\r\n" for number in range(1000)], ("98\nline 999", True)),
        (["x" * 200 + "\n", "\x1b[1;3", "1mred\n"], ("red", True)),
        (["y" * 79, "z"], ("y" * 19 + "z", True)),
    ],
)
def test_a_preview_is_the_readable_end(pieces: list[str], shown: tuple[str, bool]) -> None:
    preview = Preview(20)
    for piece in pieces:
        preview.add(piece)
    text, truncated = preview.end()
    assert len(text) <= 20
    assert (text.endswith(shown[0]) and (text != "") == (shown[0] != ""), truncated) == (True, shown[1])
