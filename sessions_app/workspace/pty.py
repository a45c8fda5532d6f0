"""A program in a sandbox on a pseudo-terminal of its own, which is also its controlling terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Mapping, Sequence

from sessions_app.workspace.process import BoxProcess, Stream, closed, launched
from sessions_app.workspace.sandbox import Box, owner

MOST_CELLS = 1000
# Linux: input is UTF-8, so that erasing a character removes all its bytes.
_IUTF8 = 0o040000


class PtyProcess:
    """Made by `start`. `close` must be called, or the terminal is left open."""

    def __init__(self, process: BoxProcess, terminal: Stream) -> None:
        self._process = process
        self._terminal = terminal
        self.pid = process.pid  # of bubblewrap, in the service's pid namespace

    @property
    def killed_for(self) -> str | None:
        """Why the sandbox was killed by the watchdog or for its memory, in one sentence; None if it was not."""
        return self._process.killed_for

    async def read(self) -> bytes:
        """The next output, at most 64 KiB; b"" at the end. While nobody reads, the program blocks in its write.

        For one reader at a time. Output that was printed before the end is returned before b"".
        """
        return await self._terminal.read()

    async def write(self, data: bytes) -> None:
        """Writes input; waits while the terminal's queue is full. Raises ConnectionError after the end.

        For one writer at a time.
        """
        self._process.awake()
        await self._terminal.write(data)

    def resize(self, cols: int, rows: int) -> None:
        """Sets the size in characters, each 1 to 1,000. The program in the foreground gets SIGWINCH. Nothing after the end."""
        if not self._terminal.closed:
            _resized(self._terminal.descriptor, cols, rows)

    def kill(self) -> None:
        """Kills every process of the sandbox. Returns at once; `wait` returns when they are gone. Safe to repeat."""
        self._process.kill()

    async def wait(self) -> int | None:
        """The exit code; None if the program died of a signal or was killed. Returns when no process of the box is left."""
        return await self._process.wait()

    async def close(self) -> None:
        """Kills what still runs, waits for its end, closes the terminal; a pending read returns b"". Safe to repeat."""
        await self._process.close()
        await self._terminal.close()


def _resized(descriptor: int, cols: int, rows: int) -> None:
    if not (1 <= cols <= MOST_CELLS and 1 <= rows <= MOST_CELLS):
        raise ValueError(f"size: {cols} x {rows}; columns and rows are 1 to {MOST_CELLS:,} each")
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


async def start(box: Box, argv: Sequence[str], environment: Mapping[str, str], *, cols: int = 80, rows: int = 24) -> PtyProcess:
    """Starts `argv` in `box` on a new pseudo-terminal. Raises NoSandbox if the sandbox could not be made.

    `environment` is added to one made from scratch (PATH, HOME, TERM, LANG, ...), and has to come from trusted callers: it can
    change what is loaded. Must run on a thread that lives as long as the box, such as that of the service's event loop.
    """
    master, slave = os.openpty()
    terminal = Stream(master)
    try:
        _resized(master, cols, rows)
        attributes = termios.tcgetattr(slave)
        attributes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        if who := owner(box.owner):
            os.fchown(slave, who[0], -1)
        errors_from, errors_to = os.pipe()
    except BaseException:
        closed(slave)
        await terminal.close()
        raise
    # Only until the program runs: then its errors go to the terminal.
    errors = Stream(errors_from)
    try:
        process = await launched(box, argv, environment, child=(slave, slave, errors_to), errors=errors, terminal=True)
    except BaseException:
        await terminal.close()
        raise
    finally:
        await errors.close()
    return PtyProcess(process, terminal)
