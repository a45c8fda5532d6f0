"""Terminal input: messages, answers to questions, secrets, and commands while a turn runs."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import select
import signal
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import TextIO

from agenthost.chat.screen import Screen

_CONTINUES = "\\"
_ENDS = (b"\0", b"\x04")
"""What a terminal without canonical mode returns for a Ctrl-D that was pressed in canonical mode: Linux, others."""


class Keyboard:
    """Reads from the terminal. Raises EOFError for Ctrl-D and KeyboardInterrupt for Ctrl-C."""

    def __init__(self, screen: Screen, source: TextIO, *, edits: bool) -> None:
        """``edits``: use readline for editing and history, if it is available and the prompt goes to the terminal."""
        self._screen = screen
        self._source = source
        self._typed_ahead: deque[str] = deque()
        """Lines typed while a turn ran. They become messages, never answers to a question."""
        self._partial_line = b""
        """Text typed before a question, or an unfinished line. The next message begins with it."""
        self._at_end = False
        """Ctrl-D was pressed while a turn ran: the chat ends before the next message."""
        self._readline = _readline() if edits else None

    def set_completions(self, complete: Callable[[str], Sequence[str]]) -> None:
        """Set the function that returns the tab completions of a line."""
        if self._readline is None:
            return

        def completer(text: str, state: int) -> str | None:
            completions = complete(text)
            return completions[state] if state < len(completions) else None

        self._readline.set_completer(completer)
        self._readline.set_completer_delims("")
        is_libedit = "libedit" in (self._readline.__doc__ or "")
        self._readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def message(self, prompt: str) -> str:
        """The next message: one line, or several that were pasted or end in a backslash."""
        self._take_what_was_typed()
        if self._typed_ahead:
            line = self._typed_ahead.popleft()
            self._screen.line(f"{prompt}{line}")
            return line
        if self._at_end:
            raise EOFError
        lines = [self._line(prompt, edits=True)]
        while lines[-1].endswith(_CONTINUES):
            lines[-1] = lines[-1].removesuffix(_CONTINUES)
            lines.append(self._line("… " if self._screen.is_unicode else "... ", edits=True))
        # Input that is already available after a line was pasted together with it.
        while not lines[0].startswith("/") and self._has_pending_input():
            line = self._line("", edits=False)
            if line.startswith("/"):
                self._typed_ahead.append(line)
                break
            lines.append(line)
        text = "\n".join(lines)
        if self._readline is not None and text.strip():
            self._readline.add_history(text)
        return text

    def _take_what_was_typed(self) -> None:
        """Take input from before the prompt. Readline switches the terminal's mode, in which a Ctrl-D of before is no end."""
        if self._readline is None or self._at_end:
            return
        *lines, rest = (self._partial_line + self._pending_input()).split(b"\n")
        pasted: list[str] = []
        for text in map(self._decoded, lines):
            if text.startswith("/"):
                self._typed_ahead.extend(["\n".join(pasted), text])
                pasted.clear()
            else:
                pasted.append(text.removesuffix(_CONTINUES))
        self._typed_ahead.append("\n".join(pasted))
        self._typed_ahead = deque(text for text in self._typed_ahead if text.strip())
        # Behind text Ctrl-D is no end of input, as in a line that is being edited.
        self._at_end = rest.startswith(_ENDS)
        self._partial_line = b"" if self._at_end else rest.translate(None, b"".join(_ENDS))

    def begin_question(self) -> None:
        """Called before a question is shown: text typed until now cannot be its answer.

        It is kept as the beginning of the next message, where it can be edited, and is never sent without Enter.
        """
        typed = self._partial_line + self._pending_input()
        self._partial_line = b" ".join(line.strip() for line in typed.split(b"\n") if line.strip())

    def answer(self, prompt: str) -> str:
        """A line that answers a question."""
        self._screen.ask(prompt)
        return self._line("", edits=False).strip()

    def text(self, prompt: str) -> str:
        """An answer of one or more lines; a backslash at a line's end continues it."""
        lines = []
        self._screen.ask(prompt)
        while True:
            lines.append(self._line("", edits=False))
            if not lines[-1].endswith(_CONTINUES):
                return "\n".join(lines)
            lines[-1] = lines[-1].removesuffix(_CONTINUES)
            self._screen.ask("... ")

    def secret(self, prompt: str) -> str:
        """Read an answer without echo."""
        self.begin_question()
        self._screen.end_line()
        if not self._source.isatty():
            return getpass.getpass(prompt)
        # Not getpass, which drops input that was typed after the answer.
        with self._terminal_without(termios.ECHO):
            self._screen.ask(prompt)
            try:
                return self._line("", edits=False)
            finally:
                # Enter was not echoed either.
                self._screen.on_line_started()
                self._screen.end_line()

    def _line(self, prompt: str, *, edits: bool) -> str:
        initial = self._take_partial_line() if edits else ""
        if edits and self._readline is not None:
            return without_surrogates(self._edited(self._readline, prompt, initial))
        if prompt:
            self._screen.ask(prompt + initial, "bold")
        line = self._source.readline()
        self._screen.on_line_ended()
        if not line:
            raise EOFError
        return without_surrogates(initial + line.rstrip("\n"))

    def _edited(self, readline: ModuleType, prompt: str, initial: str) -> str:
        """Read a line with readline, starting with the text ``initial``. Ctrl-C drops a line that is not empty."""
        while True:
            try:
                readline.set_startup_hook(partial(readline.insert_text, initial) if initial else None)
                return input(self._screen.prompt(prompt))
            except KeyboardInterrupt:
                if not readline.get_line_buffer():
                    raise
                initial = ""
                self._screen.on_line_started()
                self._screen.end_line()
            finally:
                readline.set_startup_hook(None)

    def _take_partial_line(self) -> str:
        partial_line, self._partial_line = self._partial_line, b""
        return self._decoded(partial_line)

    def _decoded(self, typed: bytes) -> str:
        return without_surrogates(typed.decode(self._source.encoding or "utf-8", "replace"))

    def _has_pending_input(self) -> bool:
        return bool(select.select([self._source], [], [], 0.01)[0])

    def _pending_input(self) -> bytes:
        """The input that the terminal has buffered, including an unfinished line."""
        typed = b""
        if not self._source.isatty():
            return typed
        # In canonical mode a terminal returns whole lines only.
        with self._terminal_without(termios.ICANON):
            while select.select([self._source], [], [], 0)[0] and (data := os.read(self._source.fileno(), 65536)):
                typed += data
        return typed

    @contextlib.contextmanager
    def _terminal_without(self, flag: int) -> Iterator[None]:
        """Switch off a flag of the terminal's local modes; neither change discards input."""
        descriptor = self._source.fileno()
        before = termios.tcgetattr(descriptor)
        changed = [*before[:3], before[3] & ~flag, *before[4:]]
        termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
        try:
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    # --- while a turn runs ---

    @contextlib.contextmanager
    def listening(self, on_line: Callable[[str], bool], on_interrupt: Callable[[], None]) -> Iterator[None]:
        """In a running event loop: Ctrl-C calls ``on_interrupt``. Lines that ``on_line`` rejects are kept for later."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        listens = self._source.isatty()

        def readable() -> None:
            data = os.read(self._source.fileno(), 65536)
            if not data:
                self._at_end = True
                loop.remove_reader(self._source)
                return
            *lines, self._partial_line = (self._partial_line + data).split(b"\n")
            for line in lines:
                self._screen.on_line_ended()
                text = self._decoded(line)
                if not on_line(text) and text.strip():
                    self._typed_ahead.append(text)

        if listens:
            loop.add_reader(self._source, readable)
        try:
            yield
        finally:
            if listens:
                loop.remove_reader(self._source)
            loop.remove_signal_handler(signal.SIGINT)


def _readline() -> ModuleType | None:
    """The module readline; None if Python lacks it or the terminal cannot move its cursor."""
    if os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        import readline
    except ImportError:
        return None
    # Only messages belong in the history, not answers to questions.
    readline.set_auto_history(False)
    return readline


def without_surrogates(text: str) -> str:
    """Replace surrogates, which stand for undecodable bytes and cannot be stored."""
    return text.encode("utf-8", "replace").decode()
