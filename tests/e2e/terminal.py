"""Runs a program in a pseudo-terminal, with the input and output of a user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 60.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]")
# The chat's line that shows that it waits: a Braille sign, drawn again behind a saved cursor, and erased.
_WAITING = re.compile(r"\x1b7[^\x1b]*(?:\x1b\[[0-9;]*m[^\x1b]*)*\x1b8|\r\x1b\[K(?:\x1b\[2m)?[\u2800-\u28ff][^\n\r]*")
# Makes the pseudo-terminal the controlling terminal, for Ctrl-C and getpass.
_LAUNCH = (
    "import fcntl, os, sys, termios\n"
    "fd = os.open(sys.argv[1], os.O_RDWR)\n"
    "fcntl.ioctl(fd, termios.TIOCSCTTY, 0)\n"
    "for each in (0, 1, 2): os.dup2(fd, each)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class Terminal:
    """``raw`` is the whole output. ``expect`` searches it from the end of the last match."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path, *, columns: int = 100, rows: int = 40
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.raw = b""
        self._at = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, os.ttyname(theirs), *command],
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._theirs = theirs

    @property
    def text(self) -> str:
        """The whole output, without colours and the line that shows that the chat waits, and with plain line ends."""
        return _ESCAPES.sub("", _WAITING.sub("", self.raw.decode("utf-8", "replace"))).replace("\r\n", "\n").replace("\r", "")

    @property
    def since(self) -> str:
        """The output after the last match."""
        return self.text[self._at :]

    def expect(self, wanted: str, timeout: float = TIMEOUT) -> str:
        """Wait for this text; returns the output between the last match and this one."""
        until = time.monotonic() + timeout
        while (found := self.text.find(wanted, self._at)) < 0:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{wanted!r} did not come; there is:\n{self.text}")
        before = self.text[self._at : found]
        self._at = found + len(wanted)
        return before

    def expect_raw(self, wanted: bytes, timeout: float = TIMEOUT) -> None:
        """Wait for these bytes in what comes from now on; also those that a terminal overwrites."""
        start, until = len(self.raw), time.monotonic() + timeout
        while wanted not in self.raw[start:]:
            left = until - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(f"{wanted!r} did not come; there is:\n{self.text}")

    def resize(self, columns: int, rows: int = 40) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type keys, without Enter."""
        os.write(self._ours, text.encode())

    def send(self, line: str) -> None:
        self.type(line + "\n")

    def press(self, key: str) -> None:
        """Press Ctrl and this key."""
        os.write(self._ours, bytes([ord(key.upper()) - 64]))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, timeout: float = TIMEOUT) -> int:
        """Wait for the program's end while reading its output; returns its exit code."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end; there is:\n{self.text}"
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def interrupt_until(self, wanted: str, timeout: float = TIMEOUT) -> str:
        """Press Ctrl-C until this text appears. One just before a wait for input takes effect only with the next key."""
        until = time.monotonic() + timeout
        while True:
            self.press("c")
            with contextlib.suppress(AssertionError):
                return self.expect(wanted, 5)
            assert time.monotonic() < until, f"{wanted!r} did not come; there is:\n{self.text}"

    def interrupted(self, timeout: float = TIMEOUT) -> int:
        """Press Ctrl-C until the program ends; returns its exit code."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end; there is:\n{self.text}"
            self.press("c")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        return self.ends()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        os.close(self._ours)
        os.close(self._theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _read(self, timeout: float) -> bool:
        """Read available output, waiting up to the timeout. There is no end of file, because our side stays open."""
        ready, _, _ = select.select([self._ours], [], [], min(timeout, 0.5))
        if ready:
            self.raw += os.read(self._ours, 65536)
            return True
        return self.process.poll() is None
