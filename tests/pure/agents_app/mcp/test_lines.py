"""Lines of limited length."""

from __future__ import annotations

from agents_app.mcp.lines import KEPT_OF_LONG, Lines, TooLong


def test_lines_are_put_together_however_they_are_cut() -> None:
    text = b'{"a":1}\n\n{"b":2}\r\nrest'
    for size in range(1, len(text) + 1):
        lines = Lines(100)
        found = [line for at in range(0, len(text), size) for line in lines.feed(text[at : at + size])]
        assert found == [b'{"a":1}', b"", b'{"b":2}']
        assert lines.rest() == b"rest"
        assert lines.rest() is None


def test_of_a_line_that_is_too_long_both_ends_are_kept_and_no_more() -> None:
    lines = Lines(10_000)
    assert lines.feed(b"<head>") == []
    for _ in range(1_000):
        assert lines.feed(b"x" * 1_000) == []
        assert len(lines._held) <= 10_000
    (found,) = lines.feed(b"<tail>\n")
    assert isinstance(found, TooLong)
    assert found.head.startswith(b"<head>x")
    assert found.tail.endswith(b"x<tail>")
    assert len(found.head) == len(found.tail) == KEPT_OF_LONG
    assert lines.feed(b"next\n") == [b"next"]


def test_a_line_of_exactly_the_limit_is_a_line() -> None:
    lines = Lines(5)
    assert lines.feed(b"12345\n123456\n") == [b"12345", TooLong(b"123456", b"123456")]
