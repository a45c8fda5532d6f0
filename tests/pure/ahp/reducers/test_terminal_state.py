"""A terminal's state under its actions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sessions_app.ahp.versions.v0_1 import reducers as v0_1
from tests.pure.ahp.reducers.scenes import TERMINAL_STATE, State, terminal_act, terminal_after

CLAIM: Any = {"kind": "client", "clientId": "c"}


def terminal(*content: State, **members: Any) -> State:
    state = cast(State, v0_1.terminal_state("sh", CLAIM))
    return {**state, "content": list(content), **members}


def plain(value: str) -> State:
    return {"type": "unclassified", "value": value}


def command(output: str = "", *, command_id: str = "1", done: bool = False, **members: Any) -> State:
    return {
        "type": "command",
        "commandId": command_id,
        "commandLine": "ls",
        "output": output,
        "timestamp": 5,
        "isComplete": done,
        **members,
    }


def data(text: str) -> State:
    return terminal_act("data", data=text)


@pytest.mark.rule("R302")
def test_a_new_terminal_is_empty_and_has_the_usual_size() -> None:
    assert v0_1.terminal_state("sh", CLAIM) == {"title": "sh", "cols": 80, "rows": 24, "content": [], "claim": CLAIM}
    assert TERMINAL_STATE.faults(v0_1.terminal_state("sh", CLAIM)) == []


@pytest.mark.rule("R450")
@pytest.mark.parametrize(
    ("before", "content"),
    [
        ([], [plain("x")]),
        ([plain("a")], [plain("ax")]),
        ([command("a")], [command("ax")]),
        ([command("a", done=True)], [command("a", done=True), plain("x")]),
        ([command("a"), plain("b")], [command("a"), plain("bx")]),
        ([plain("b"), command("a")], [plain("b"), command("ax")]),
        ([plain("b"), command("a", done=True)], [plain("b"), command("a", done=True), plain("x")]),
    ],
)
def test_output_goes_to_the_last_part_that_takes_it(before: list[State], content: list[State]) -> None:
    assert terminal_after(terminal(*before), data("x"))["content"] == content


@pytest.mark.rule("R450")
def test_output_keeps_its_order_and_its_control_sequences() -> None:
    state = terminal_after(terminal(), data("a\x1b[31m"), data(""), data("b\r\n"))
    assert state["content"] == [plain("a\x1b[31mb\r\n")]


@pytest.mark.rule("R451")
def test_input_changes_nothing() -> None:
    state = terminal(plain("$ "))
    assert terminal_after(state, terminal_act("input", data="ls\r")) is state


@pytest.mark.rule("R451")
@pytest.mark.parametrize(
    ("action", "members"),
    [
        (terminal_act("resized", cols=100, rows=40), {"cols": 100, "rows": 40}),
        (
            terminal_act("claimed", claim={"kind": "session", "session": "s:/1", "turnId": "t"}),
            {"claim": {"kind": "session", "session": "s:/1", "turnId": "t"}},
        ),
        (terminal_act("titleChanged", title="vi"), {"title": "vi"}),
        (terminal_act("cwdChanged", cwd="file:///a"), {"cwd": "file:///a"}),
        (terminal_act("exited", exitCode=0), {"exitCode": 0}),
        (terminal_act("commandDetectionAvailable"), {"supportsCommandDetection": True}),
    ],
)
def test_a_member_is_replaced_and_nothing_else(action: State, members: State) -> None:
    state = terminal(plain("a"), command("b"))
    assert terminal_after(state, action) == {**state, **members}


@pytest.mark.rule("R451")
def test_a_process_that_died_of_a_signal_has_no_exit_code() -> None:
    assert "exitCode" not in terminal_after(terminal(exitCode=3), terminal_act("exited"))


@pytest.mark.rule("R451")
def test_clearing_empties_the_content_and_keeps_the_rest() -> None:
    state = terminal(plain("a"), command("b"), exitCode=1, supportsCommandDetection=True)
    assert terminal_after(state, terminal_act("cleared")) == {**state, "content": []}


@pytest.mark.rule("R452")
def test_a_command_begins_a_part_of_its_own_and_shows_that_commands_are_detected() -> None:
    state = terminal_after(terminal(plain("$ ")), terminal_act("commandExecuted", commandId="1", commandLine="ls", timestamp=5))
    assert state["content"] == [plain("$ "), command()]
    assert state["supportsCommandDetection"] is True


@pytest.mark.rule("R452")
@pytest.mark.parametrize("members", [{}, {"exitCode": 0}, {"durationMs": 7}, {"exitCode": 2, "durationMs": 0}])
def test_a_command_ends_with_what_is_known_of_its_end(members: State) -> None:
    before = terminal(command("a"), plain("b"), command("c", command_id="2"))
    state = terminal_after(before, terminal_act("commandFinished", commandId="1", **members))
    assert state["content"] == [command("a", done=True, **members), plain("b"), command("c", command_id="2")]


@pytest.mark.rule("R452")
def test_a_command_that_ends_again_has_what_the_second_end_says() -> None:
    before = terminal(command("a", done=True, exitCode=2, durationMs=3))
    assert terminal_after(before, terminal_act("commandFinished", commandId="1"))["content"] == [command("a", done=True)]


@pytest.mark.rule("R452")
def test_every_part_of_a_command_ends() -> None:
    state = terminal_after(terminal(command("a"), command("b")), terminal_act("commandFinished", commandId="1", exitCode=0))
    assert state["content"] == [command("a", done=True, exitCode=0), command("b", done=True, exitCode=0)]


@pytest.mark.rule("R452")
def test_the_end_of_an_unknown_command_changes_nothing() -> None:
    before = terminal(command("a"))
    assert terminal_after(before, terminal_act("commandFinished", commandId="9", exitCode=0)) == before
