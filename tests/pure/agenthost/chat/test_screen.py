"""Output of the chat: streams, colours and line breaks."""

from __future__ import annotations

import io

import pytest

from agenthost.chat.screen import Screen, image_name, text_of
from agenthost.client.runs import events_of_response


def screens(*, colour: bool = False, thinking: bool = True, quiet: bool = False) -> tuple[Screen, io.StringIO, io.StringIO]:
    answers, asides = io.StringIO(), io.StringIO()
    return Screen(answers, asides, colour=colour, thinking=thinking, quiet=quiet), answers, asides


def terminal(*, colour: bool = False) -> tuple[Screen, io.StringIO]:
    both = io.StringIO()
    return Screen(both, both, colour=colour), both


class Window(io.StringIO):
    """A terminal's side of the chat, whose encoding has all characters."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def window() -> tuple[Screen, Window]:
    both = Window()
    return Screen(both, both, colour=True, renders=True), both


def test_a_note_within_an_answer_does_not_end_its_code() -> None:
    screen, written = window()
    screen.text("```\na = 1\n")
    screen.note("Connection lost. Reconnecting …")
    screen.text("b = *2*\n```\n**x**")
    screen.end_message()
    assert "\x1b[36mb = *2*\x1b[0m\n" in written.getvalue()
    assert written.getvalue().endswith("\x1b[1mx\x1b[0m\n")


def test_the_next_message_does_not_continue_the_forms_of_the_last() -> None:
    screen, written = window()
    screen.text("```\nopen")
    screen.end_message()
    screen.text("**bold**")
    screen.end_message()
    assert written.getvalue().endswith("\x1b[36mopen\x1b[0m\n\x1b[1mbold\x1b[0m\n")


def test_a_word_that_stops_arriving_is_shown() -> None:
    screen, written = window()
    screen.text("half a wo")
    assert written.getvalue() == "half a "
    screen.wait(0.05, 1)
    assert written.getvalue() == "half a "
    screen.wait(0.2, 1)
    screen.text("rd, and more")
    screen.end_message()
    assert written.getvalue() == "half a word, and more\n"


def test_waiting_is_shown_and_leaves_nothing_behind() -> None:
    screen, written = window()
    screen.wait(0.1, 0.1)
    assert written.getvalue() == ""
    screen.wait(0.5, 1.2)
    screen.wait(0.6, 2.2)
    shown = written.getvalue()
    assert shown.startswith("\r\x1b[K\x1b[2m⠋ Waiting for the agent    1 s\x1b[0m\x1b7\r")
    assert shown.endswith("\x1b8")
    screen.text("done ")
    assert written.getvalue()[len(shown) :] == "\r\x1b[Kdone "
    # Not within a line of the answer.
    screen.wait(5, 7)
    assert written.getvalue()[len(shown) :] == "\r\x1b[Kdone "


def test_a_line_typed_while_the_chat_waits_takes_its_place() -> None:
    screen, written = window()
    screen.wait(0.5, 1)
    before = len(written.getvalue())
    screen.on_line_ended()
    screen.note("(will be sent when the turn is over)")
    assert written.getvalue()[before:] == "\x1b[A\r\x1b[K\x1b[2m(will be sent when the turn is over)\x1b[0m\n"


def test_a_changed_width_counts_from_the_next_line_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen, written = window()
    screen.text("one two three four five six seven ")
    monkeypatch.setenv("COLUMNS", "24")
    screen.text("eight nine ten eleven twelve thirteen fourteen")
    screen.end_message()
    assert written.getvalue().splitlines() == [
        "one two three four five six seven ",
        "eight nine ten eleven ",
        "twelve thirteen fourteen",
    ]


def test_text_is_not_rendered_where_it_is_not_shown_on_a_terminal() -> None:
    screen, answers, _ = screens(colour=True)
    screen.text("**a** `b`\n| c |")
    screen.wait(5, 5)
    screen.end_message()
    assert answers.getvalue() == "**a** `b`\n| c |\n"


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
