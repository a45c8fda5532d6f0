"""Input that was typed before the prompt is shown, on a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from contextlib import ExitStack
from io import StringIO
from types import SimpleNamespace

import pytest

from agenthost.chat.keyboard import Keyboard
from agenthost.chat.screen import Screen


class Desk:
    """A keyboard whose readline is replaced: ``asked`` counts the prompts, and each line that it returns is ``edited``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.hand, terminal = pty.openpty()
        stack.callback(os.close, self.hand)
        source = stack.enter_context(os.fdopen(terminal))
        self.keyboard = Keyboard(Screen(StringIO(), StringIO(), colour=False), source, edits=False)
        self.initial: list[str] = []
        monkeypatch.setattr(self.keyboard, "_readline", SimpleNamespace(add_history=self.initial.count))
        monkeypatch.setattr(self.keyboard, "_edited", self._edited)
        monkeypatch.setattr(self.keyboard, "_has_pending_input", lambda: False)

    def _edited(self, _readline: object, _prompt: str, initial: str) -> str:
        self.initial.append(initial)
        return "edited"

    def type(self, keys: bytes) -> None:
        os.write(self.hand, keys)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(monkeypatch, stack)


def test_ctrl_d_right_before_the_prompt_ends_the_chat(desk: Desk) -> None:
    desk.type(b"\x04")
    with pytest.raises(EOFError):
        desk.keyboard.message("> ")
    assert desk.initial == []


def test_pasted_lines_before_ctrl_d_are_one_message_and_commands_their_own(desk: Desk) -> None:
    desk.type(b"one\\\ntwo\n\n/help\nthree\n\x04")
    assert [desk.keyboard.message("> ") for _ in range(3)] == ["one\ntwo\n", "/help", "three"]
    with pytest.raises(EOFError):
        desk.keyboard.message("> ")


def test_an_unfinished_line_is_edited_and_ctrl_d_behind_it_is_no_end(desk: Desk) -> None:
    desk.type(b"hal\x04")
    assert desk.keyboard.message("> ") == "edited"
    assert desk.initial == ["hal"]


def test_without_input_the_prompt_is_shown(desk: Desk) -> None:
    assert desk.keyboard.message("> ") == "edited"
    assert desk.initial == [""]
