"""A program in a sandbox on a pseudo-terminal of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessions_app.workspace.sandbox import Box


class PtyProcess:
    pid: int  # of bubblewrap, in the service's pid namespace

    @property
    def killed_for(self) -> str | None:
        """Why the watchdog killed the sandbox, in one sentence; None if it did not."""
        raise NotImplementedError

    async def read(self) -> bytes:
        """The next output, at most 64 KiB; b"" at the end. While nobody reads, the program blocks in its write."""
        raise NotImplementedError

    async def write(self, data: bytes) -> None:
        """Writes input; waits while the terminal's input queue is full. Raises ConnectionError after the end."""
        raise NotImplementedError

    def resize(self, cols: int, rows: int) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Kills every process of the sandbox. Returns at once; `wait` returns when they are gone. Safe to repeat."""
        raise NotImplementedError

    async def wait(self) -> int | None:
        """The exit code; None if the program died of a signal or was killed."""
        raise NotImplementedError

    async def close(self) -> None:
        """Kills what still runs, waits for the end, closes every descriptor. Safe to repeat."""
        raise NotImplementedError


async def start(box: Box, argv: Sequence[str], environment: Mapping[str, str], *, cols: int = 80, rows: int = 24) -> PtyProcess:
    """Starts `argv` in `box`. Raises NoSandbox if the sandbox could not be made."""
    raise NotImplementedError
