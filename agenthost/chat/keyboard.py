"""What a person types: messages, answers to questions, secrets, and words while a turn runs."""

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


class Keyboard:
    """A terminal's keyboard. EOFError: its user has left (Ctrl-D); KeyboardInterrupt: Ctrl-C."""

    def __init__(self, screen: Screen, source: TextIO, *, edits: bool) -> None:
        """``edits``: lines may be edited and called back, where readline is there and the prompt goes to the terminal."""
        self._screen = screen
        self._source = source
        self._ahead: deque[str] = deque()
        """Lines typed while a turn ran; they are messages, never answers to a question."""
        self._half = b""
        """What was typed before a question, or of a line that has no end yet; the next message begins with it."""
        self._readline = _readline() if edits else None

    def completes(self, words: Callable[[str], Sequence[str]]) -> None:
        """What the tab key offers for the beginning of a line."""
        if self._readline is None:
            return

        def offered(text: str, state: int) -> str | None:
            found = words(text)
            return found[state] if state < len(found) else None

        self._readline.set_completer(offered)
        self._readline.set_completer_delims("")
        is_libedit = "libedit" in (self._readline.__doc__ or "")
        self._readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def message(self, prompt: str) -> str:
        """What to say next: a line, or several that were pasted or end in a backslash."""
        if self._ahead:
            line = self._ahead.popleft()
            self._screen.line(f"{prompt}{line}")
            return line
        lines = [self._line(prompt, edits=True)]
        while lines[-1].endswith(_CONTINUES):
            lines[-1] = lines[-1].removesuffix(_CONTINUES)
            lines.append(self._line("… " if self._screen.is_unicode else "... ", edits=True))
        # What is there already when a line has ended was pasted with it.
        while not lines[0].startswith("/") and self._more_is_there():
            line = self._line("", edits=False)
            if line.startswith("/"):
                self._ahead.append(line)
                break
            lines.append(line)
        text = "\n".join(lines)
        if self._readline is not None and text.strip():
            self._readline.add_history(text)
        return text

    def begin_question(self) -> None:
        """Called before a question's first word is shown: what was typed until now cannot be its answer.

        It is kept for the next message, where it can be edited, and is never sent without Enter.
        """
        typed = self._half + self._typed_so_far()
        self._half = b" ".join(line.strip() for line in typed.split(b"\n") if line.strip())

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
        """An answer that is not shown."""
        self.begin_question()
        self._screen.end_line()
        if not self._source.isatty():
            return getpass.getpass(prompt)
        # getpass drops what was typed behind the answer before it returns.
        with self._terminal_without(termios.ECHO):
            self._screen.ask(prompt)
            try:
                return self._line("", edits=False)
            finally:
                # The Enter was not shown either.
                self._screen.line_was_begun()
                self._screen.end_line()

    def _line(self, prompt: str, *, edits: bool) -> str:
        begun = self._take_half() if edits else ""
        if edits and self._readline is not None:
            return storable(self._edited(self._readline, prompt, begun))
        if prompt:
            self._screen.ask(prompt + begun, "bold")
        line = self._source.readline()
        self._screen.line_was_ended()
        if not line:
            raise EOFError
        return storable(begun + line.rstrip("\n"))

    def _edited(self, readline: ModuleType, prompt: str, begun: str) -> str:
        """A line that begins with ``begun``; Ctrl-C in the middle of one drops it."""
        while True:
            try:
                readline.set_startup_hook(partial(readline.insert_text, begun) if begun else None)
                return input(self._screen.prompt(prompt))
            except KeyboardInterrupt:
                if not readline.get_line_buffer():
                    raise
                begun = ""
                self._screen.line_was_begun()
                self._screen.end_line()
            finally:
                readline.set_startup_hook(None)

    def _take_half(self) -> str:
        half, self._half = self._half, b""
        return half.decode(self._source.encoding or "utf-8", "replace")

    def _more_is_there(self) -> bool:
        return bool(select.select([self._source], [], [], 0.01)[0])

    def _typed_so_far(self) -> bytes:
        """What the terminal holds, a line that was not ended included."""
        typed = b""
        if not self._source.isatty():
            return typed
        # A terminal gives whole lines only, unless it is told otherwise.
        with self._terminal_without(termios.ICANON):
            while select.select([self._source], [], [], 0)[0] and (data := os.read(self._source.fileno(), 65536)):
                typed += data
        return typed

    @contextlib.contextmanager
    def _terminal_without(self, flag: int) -> Iterator[None]:
        """The terminal's local mode without ``flag``; what was typed stays in the terminal at both changes."""
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
        """Within a running loop: Ctrl-C calls ``on_interrupt``. What ``on_line`` does not take is kept for later."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        listens = self._source.isatty()

        def readable() -> None:
            data = os.read(self._source.fileno(), 65536)
            if not data:
                loop.remove_reader(self._source)
                return
            *lines, self._half = (self._half + data).split(b"\n")
            for line in lines:
                self._screen.line_was_ended()
                text = storable(line.decode(self._source.encoding or "utf-8", "replace"))
                if not on_line(text) and text.strip():
                    self._ahead.append(text)

        if listens:
            loop.add_reader(self._source, readable)
        try:
            yield
        finally:
            if listens:
                loop.remove_reader(self._source)
            loop.remove_signal_handler(signal.SIGINT)


def _readline() -> ModuleType | None:
    """None where Python was built without it, or the terminal cannot move its cursor."""
    if os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        import readline
    except ImportError:
        return None
    # Answers to questions are no messages to call back.
    readline.set_auto_history(False)
    return readline


def storable(text: str) -> str:
    """Bytes that are no letters come as half characters, which nothing can store."""
    return text.encode("utf-8", "replace").decode()
