"""What a terminal shows: the same as by the protocol's reducers, and its end when there is too much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app import exact_json
from sessions_app.ahp.versions.v0_1.projection.actions import action_of
from sessions_app.ahp.versions.v0_1.projection.terminals import state_of
from sessions_app.ahp.versions.v0_1.reducers import reduce_terminal
from sessions_app.core.base.events import Kind
from sessions_app.core.log.journal.types import Event
from sessions_app.core.terminals.screen import MOST_PARTS, Screen
from sessions_app.core.terminals.state import TerminalView
from sessions_app.core.terminals.types import Claim

Said = tuple[Kind, dict[str, Any]]

DATA = st.text(max_size=40).map(lambda text: (Kind.TERMINAL_DATA, {"delta": text}))
STARTED = st.sampled_from("abc").map(lambda name: (Kind.TERMINAL_COMMAND_STARTED, {"command": name, "line": "ls", "at": 5}))
ENDED = st.sampled_from("abc").map(lambda name: (Kind.TERMINAL_COMMAND_ENDED, {"command": name, "code": 1}))
OTHER = st.sampled_from(
    [
        (Kind.TERMINAL_CLEARED, {}),
        (Kind.TERMINAL_COMMANDS_AVAILABLE, {}),
        (Kind.TERMINAL_COMMAND_ENDED, {"command": "a"}),
        (Kind.TERMINAL_COMMAND_ENDED, {"command": "a", "code": 0, "ms": 3}),
    ]
)
EVENTS = st.lists(st.one_of(DATA, DATA, STARTED, ENDED, OTHER), max_size=40)


def fold(said: Sequence[Said], most: int) -> tuple[dict[str, Any], Screen]:
    """The state by the protocol's reducers, and the screen."""
    screen = Screen(most)
    state: Any = {"title": "", "content": [], "claim": {"kind": "client", "clientId": "c"}, "cols": 80, "rows": 24}
    for number, (kind, payload) in enumerate(said):
        event = Event(number, 1, kind, exact_json.dumps(payload))
        screen.apply(event.kind, event.data)
        action = action_of(event, "term:/1")
        assert action is not None
        state = reduce_terminal(state, action, 0)
        # As it is stored at a checkpoint.
        screen = Screen.read(screen.text(), most, detects=screen.detects)
    return state, screen


def text_of(content: list[dict[str, Any]]) -> str:
    return "".join(part["value"] if part["type"] == "unclassified" else part["output"] for part in content)


def shown(screen: Screen) -> dict[str, Any]:
    return state_of(TerminalView(1, "", Claim(client="c"), "", 80, 24, None, screen))


@pytest.mark.rule("R70", "R450", "R452")
@given(EVENTS)
def test_a_screen_is_what_the_reducers_make(said: list[Said]) -> None:
    state, screen = fold(said, 1_000_000)
    assert shown(screen) == state


@pytest.mark.rule("R311")
@given(EVENTS, st.integers(1, 60))
def test_a_limited_screen_is_the_end_of_the_output(said: list[Said], most: int) -> None:
    state, screen = fold(said, most)
    text = text_of(shown(screen)["content"])
    assert text_of(state["content"]).endswith(text)
    assert len(text) <= most
    # Only output is missing: what is shown has the same commands at its end.
    kept = [part for part in shown(screen)["content"] if part["type"] == "command"]
    there = [part for part in state["content"] if part["type"] == "command"]
    assert [part["commandId"] for part in kept] == [part["commandId"] for part in there][len(there) - len(kept) :]


@pytest.mark.rule("R311")
def test_a_cut_begins_with_a_line_and_parts_are_limited() -> None:
    screen = Screen(100)
    for number in range(100):
        screen.apply(Kind.TERMINAL_DATA, exact_json.dumps({"delta": f"line {number}\r\n"}))
    text = text_of(shown(screen)["content"])
    assert text.startswith("line 89\r\n")
    assert text.endswith("line 99\r\n")
    for number in range(2 * MOST_PARTS):
        screen.apply(Kind.TERMINAL_COMMAND_STARTED, exact_json.dumps({"command": str(number), "line": "", "at": 1}))
    assert len(screen.parts) == MOST_PARTS
