"""Output of the chat: streams, colours and line breaks."""

from __future__ import annotations

import io

import pytest

from agenthost.chat.runs import events_of_response
from agenthost.chat.screen import Screen, image_name, text_of


def screens(*, colour: bool = False, thinking: bool = True, quiet: bool = False) -> tuple[Screen, io.StringIO, io.StringIO]:
    answers, asides = io.StringIO(), io.StringIO()
    return Screen(answers, asides, colour=colour, thinking=thinking, quiet=quiet), answers, asides


def terminal(*, colour: bool = False) -> tuple[Screen, io.StringIO]:
    both = io.StringIO()
    return Screen(both, both, colour=colour), both


def test_each_kind_of_output_starts_on_a_new_line() -> None:
    screen, written = terminal()
    screen.thinking("hm ")
    screen.thinking("hm")
    screen.text("so ")
    screen.text("it is")
    screen.note("an aside")
    screen.text("further\n")
    screen.call("t", {"a": "b"})
    screen.result("1\n2\n")
    assert written.getvalue() == '(thinking) hm hm\nso it is\nan aside\nfurther\n-> t(a="b")\n  = 1\n    2\n'


def test_a_note_does_not_interrupt_an_answer_in_another_stream() -> None:
    screen, answers, asides = screens()
    screen.text("half of ")
    screen.note("cut, and joined again")
    screen.text("the answer")
    screen.end_message()
    screen.call("t", {})
    screen.text("the next")
    screen.end_line()
    assert answers.getvalue() == "half of the answer\n\nthe next\n"
    assert asides.getvalue() == "cut, and joined again\n-> t()\n"


def test_a_quiet_screen_shows_only_errors() -> None:
    screen, answers, asides = screens(quiet=True)
    screen.thinking("hm")
    screen.text("yes")
    screen.call("t", {})
    screen.result("1")
    screen.error("broken")
    assert answers.getvalue() == "yes\n"
    assert asides.getvalue() == "broken\n"


def test_only_colours_are_escape_sequences() -> None:
    screen, written = terminal(colour=True)
    screen.thinking("a\x1b[2J")
    screen.error("b\x1bc")
    assert written.getvalue() == "\x1b[2ma␛[2J\x1b[0m\n\x1b[31mb␛c\x1b[0m\n"


def test_showing_a_call_returns_whether_it_was_complete() -> None:
    screen, _ = terminal()
    assert screen.call("short", {"a": 1})
    assert screen.call("longer", {"a": "x" * 60, "b": "y" * 60})
    assert not screen.call("long", {"a": "x" * 500})
    assert not screen.call("many", {f"argument{number}": "some words" for number in range(40)})


def test_a_long_result_is_shown_briefly() -> None:
    screen, written = terminal()
    screen.result("\n".join(str(number) for number in range(50)))
    assert written.getvalue().splitlines() == ["  = 0", "    1", "    2", "    3", "    ... and 46 more lines"]


def test_a_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("a", "some words that do not fit into one line"), ("日本", "few")]
    screen, written = terminal()
    screen.rows(rows)
    assert written.getvalue().splitlines() == ["  a     some words that do not fit into", "        one line", "  日本  few"]
    screen, written = terminal()
    screen.rows(rows, truncate_last=True)
    assert written.getvalue().splitlines() == ["  a     some words that do not fit into...", "  日本  few"]


def test_message_content_as_text() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "url": "data:image/png;base64,QUJD"}, {"type": "new"}]
    assert text_of(blocks) == "a\n[image image/png, 3 bytes]"
    assert image_name("https://a.example/b.png") == "https://a.example/b.png"
    assert text_of(None) == ""


def test_the_json_form_of_a_turn_has_the_same_events() -> None:
    messages = [
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}, {"type": "tool_use", "name": "n"}],
        },
        {"role": "tool", "toolCallId": "c", "content": "r"},
        {"role": "assistant", "content": "end"},
    ]
    names = [turn_event.name for turn_event in events_of_response({"stopReason": "end_turn", "messages": messages})]
    assert names == ["turn_start", "thinking", "text", "tool_call", "tool_result", "text", "turn_stop"]
