"""The parts of a terminal's content, and their limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.workspace.scrollback import Content, text_of, with_command, with_command_ended, with_data

MOST = 1_000_000


def test_output_goes_to_the_open_command_or_beside_commands() -> None:
    content: Content = ()
    content = with_data(content, "$ ", most=MOST)
    content = with_data(content, "ls\n", most=MOST)
    content = with_command(content, "1", "ls", 5, most=MOST)
    content = with_data(content, "a", most=MOST)
    content = with_data(content, "b", most=MOST)
    content = with_command_ended(content, "1", 0, 7)
    content = with_data(content, "$ ", most=MOST)
    assert content == (
        {"type": "unclassified", "value": "$ ls\n"},
        {
            "type": "command",
            "commandId": "1",
            "commandLine": "ls",
            "output": "ab",
            "timestamp": 5,
            "isComplete": True,
            "exitCode": 0,
            "durationMs": 7,
        },
        {"type": "unclassified", "value": "$ "},
    )


def test_a_command_without_a_code_has_none_in_its_part() -> None:
    ended = with_command_ended(with_command((), "1", "x", 5, most=MOST), "1", None, None)
    assert ended[0]["type"] == "command"
    assert "exitCode" not in ended[0]
    assert ended[0]["isComplete"]


@given(
    st.lists(st.one_of(st.text("ab\n", min_size=1, max_size=30), st.sampled_from(["start", "end"])), max_size=30),
    st.integers(1, 60),
    st.integers(1, 5),
)
def test_what_is_kept_is_the_end_of_everything_and_within_the_limits(steps: list[str], most: int, most_parts: int) -> None:
    content: Content = ()
    everything = ""
    for number, step in enumerate(steps):
        if step == "start":
            content = with_command(content, str(number), "x", 0, most=most, most_parts=most_parts)
        elif step == "end":
            content = tuple(content)
            for part in content:
                if part["type"] == "command":
                    content = with_command_ended(content, part["commandId"], 1, 1)
        else:
            everything += step
            content = with_data(content, step, most=most, most_parts=most_parts)
        assert everything.endswith(text_of(content))
        assert len(text_of(content)) <= most
        assert len(content) <= most_parts


def test_a_cut_is_made_at_the_begin_of_a_line_that_is_near() -> None:
    content = with_data((), "aaaa\nbbbb\ncccc", most=8)
    assert text_of(content) == "cccc"


def test_earlier_contents_are_not_changed() -> None:
    before = with_command((), "1", "x", 0, most=MOST)
    with_data(before, "y", most=MOST)
    with_command_ended(before, "1", 0, 0)
    assert before[0]["type"] == "command"
    assert (before[0]["output"], before[0]["isComplete"]) == ("", False)
