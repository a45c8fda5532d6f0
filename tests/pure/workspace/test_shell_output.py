"""What is read from a terminal's output, and that the split into chunks has no influence."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions_app.workspace import shell_output
from sessions_app.workspace.shell_output import (
    LONGEST_SEQUENCE,
    CommandEnded,
    CommandsAvailable,
    CommandStarted,
    Cwd,
    Data,
    Output,
    ShellOutput,
    Title,
)

NONCE = "0123456789abcdef"
BEL, ST = "\a", "\x1b\\"


def mark(text: str, end: str = BEL, nonce: str = NONCE) -> str:
    return f"\x1b]633;{text};{nonce}{end}"


def joined(outputs: list[Output]) -> list[Output]:
    """Adjacent Data as one."""
    result: list[Output] = []
    for output in outputs:
        if isinstance(output, Data) and result and isinstance(result[-1], Data):
            result[-1] = Data(result[-1].text + output.text)
        else:
            result.append(output)
    return result


def read(*chunks: bytes | str) -> list[Output]:
    reader = ShellOutput(NONCE)
    outputs: list[Output] = []
    for chunk in chunks:
        outputs += reader.feed(chunk.encode() if isinstance(chunk, str) else chunk)
    return joined(outputs + reader.end())


def text(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs if isinstance(output, Data))


PIECES = st.one_of(
    st.sampled_from(
        [
            "\x1b", "\x1b]", "\x1b]6", "\x1b]633", "\x1b]633;", "\x1b]133;A\a", "\x1b]0;", "\x1b]2;t\x1b\\",
            "\x1b]7;file://h/a%20b\a",
            "\a", "\x1b\\", "\x18", "\x1a", "\\", ";", "\x1b[31m", "\x1b]1337;x\a", "\x1b]63", "3;C;", "\n", "\x1b]8;;u\a",
            mark("A"), mark("E;ls -l"), mark("C"), mark("D;0"), mark("D;1", ST), mark("P;Cwd=/a/b"),
            mark("C", nonce="wrong"), "é", "界",
        ]
    ).map(str.encode),
    st.sampled_from([b"\xff", b"\xe7\x95", b"\xf0\x9f", b"\x80"]),
    st.text(max_size=5).map(lambda value: value.encode("utf-8", "replace")),
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join), st.data())
@example(b"\x1b]633;C;" + NONCE.encode() + b"\x1b", None)
def test_any_split_of_the_stream_gives_the_same_result(stream: bytes, data: st.DataObject | None) -> None:
    whole = read(stream)
    assert read(*(stream[at : at + 1] for at in range(len(stream)))) == whole
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        assert read(*(stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True))) == whole
    assert "\x1b]633;" not in text(whole)
    assert "\x1b]133;" not in text(whole)


@given(st.lists(PIECES, max_size=10).map(b"".join), st.integers(1, 7), st.integers(8, 40))
def test_a_split_has_no_influence_on_sequences_that_are_too_long_either(stream: bytes, size: int, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell_output, "LONGEST_SEQUENCE", limit)
        assert read(*(stream[at : at + size] for at in range(0, len(stream), size))) == read(stream)


def test_commands_are_reported_and_their_marks_are_not_in_the_text() -> None:
    stream = mark("A") + "$ " + mark("B") + "ls\r\n" + mark("E;ls") + mark("C") + "a b\r\n" + mark("D;2", ST) + "$ "
    assert read(stream) == [
        CommandsAvailable(),
        Data("$ ls\r\n"),
        CommandStarted("1", "ls"),
        Data("a b\r\n"),
        CommandEnded("1", 2),
        Data("$ "),
    ]


def test_marks_without_the_nonce_are_taken_out_and_not_believed() -> None:
    forged = mark("E;rm", nonce="x") + mark("C", nonce="") + "\x1b]633;D;0\a" + "\x1b]633;C\a" + "\x1b]133;C\a"
    assert read("a", forged, "b") == [Data("ab")]


def test_a_shell_without_integration_reports_no_command() -> None:
    reader = ShellOutput(None)
    assert reader.feed(b"\x1b]633;C;\aa\x1b]633;D;0;\a") == [Data("a")]


def test_a_command_line_comes_back_as_it_was_typed() -> None:
    assert CommandStarted("1", "echo 'a;b\\' \n x") in read(mark(r"E;echo 'a\x3bb\x5c' \x0a x") + mark("C"))


def test_a_command_that_is_open_at_the_next_one_or_at_the_end_has_no_code() -> None:
    outputs = read(mark("E;a") + mark("C") + mark("E;b") + mark("C"))
    assert outputs[1:] == [CommandStarted("1", "a"), CommandEnded("1", None), CommandStarted("2", "b"), CommandEnded("2", None)]


def test_command_ids_begin_with_the_prefix() -> None:
    assert CommandStarted("t4-1", "") in ShellOutput(NONCE, prefix="t4-").feed(mark("C").encode())


def test_characters_are_decoded_over_chunk_boundaries_and_invalid_bytes_are_replaced() -> None:
    assert read(b"\xe7", b"\x95", b"\x8c", b"\xff", b"a", b"\xf0\x9f") == [Data("界�a�")]


def test_titles_and_directories_are_noticed_and_stay_in_the_text() -> None:
    stream = "\x1b]0;build\a\x1b]2;test\x1b\\\x1b]7;file://host/a%20b\a"
    outputs = read(stream)
    assert [output for output in outputs if not isinstance(output, Data)] == [Title("build"), Title("test"), Cwd("/a b")]
    assert text(outputs) == stream


def test_an_unchanged_title_or_directory_is_reported_once() -> None:
    outputs = read("\x1b]0;a\a\x1b]2;a\a" + mark("P;Cwd=/x") + mark("P;Cwd=/x"))
    assert [output for output in outputs if isinstance(output, Title | Cwd)] == [Title("a"), Cwd("/x")]


def test_titles_are_cut_and_relative_or_odd_directories_ignored() -> None:
    long = "x" * 5000
    outputs = read(f"\x1b]2;{long}\a" + mark("P;Cwd=relative") + mark("P;Cwd=/a\\x0ab") + mark("P;Cwd=/" + long))
    assert [output for output in outputs if not isinstance(output, Data | CommandsAvailable)] == [Title("x" * 512)]


def test_other_sequences_are_text_and_do_not_wait_for_their_end() -> None:
    reader = ShellOutput(NONCE)
    assert reader.feed(b"\x1b]1337;File=") == [Data("\x1b]1337;File=")]
    assert reader.feed(b"\x1b[31mred") == [Data("\x1b[31mred")]


def test_an_endless_mark_is_held_back_up_to_the_limit_and_is_no_sequence_then() -> None:
    reader = ShellOutput(NONCE)
    assert reader.feed(b"\x1b]633;") == []
    shown = ""
    for _ in range(2 * LONGEST_SEQUENCE // 1000):
        shown += text(reader.feed(b"x" * 1000))
    assert "\x1b" not in shown
    assert len(shown) > LONGEST_SEQUENCE


def test_a_long_mark_in_small_chunks_takes_linear_time() -> None:
    searched = 0

    class Counting:
        def search(self, value: str, begin: int, end: int) -> None:
            nonlocal searched
            searched += min(end, len(value)) - begin

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell_output, "_END", Counting())
        reader = ShellOutput(NONCE)
        for byte in b"\x1b]633;" + b"x" * 5000:
            reader.feed(bytes([byte]))
    assert searched < 3 * 5000
