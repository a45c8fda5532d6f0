"""The terminal chat against a server that runs: the suite's agents, and the demo."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.server import Server
from tests.e2e.terminal import Terminal
from tests.fakes.foreign_server import ForeignServer, foreign_server
from tests.paths import ROOT

PROGRAM = [sys.executable, "-m", "agenthost.chat"]


@dataclass
class PipedChat:
    process: subprocess.Popen[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def read(self, count: int = 100) -> bytes:
        """The next bytes of stdout."""
        return os.read(self.stdout.fileno(), count)


@dataclass
class Desk:
    """Starts chats, and checks that none of them shows its key."""

    server: Server
    directory: Path

    def environment(self, **extra: str) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "AGENTHOST_URL": self.server.origin(),
            "AGENTHOST_KEY": self.server.keys.alice,
            **extra,
        }

    def chat(self, *arguments: str, columns: int = 100, **environment: str) -> Terminal:
        command = [*PROGRAM, *arguments]
        return Terminal(command, self.environment(**environment), self.directory, columns=columns)

    def once(
        self, *arguments: str, given: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the chat to its end without a terminal, as a script does."""
        done = subprocess.run(
            [*PROGRAM, *arguments],
            env=self.environment(**(environment or {})),
            cwd=self.directory,
            input=given if given is not None else "",
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        assert self.server.keys.alice not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    @contextlib.contextmanager
    def piped(self, *arguments: str, **environment: str) -> Iterator[PipedChat]:
        """The chat as a script runs it, with pipes that the test reads while it runs."""
        with subprocess.Popen(
            [*PROGRAM, *arguments],
            env=self.environment(**environment),
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            yield PipedChat(process, process.stdout, process.stderr)


@pytest.fixture
def desk(hall: Server, tmp_path: Path) -> Desk:
    return Desk(hall, tmp_path)


@pytest.fixture
def chat(desk: Desk) -> Iterator[Callable[..., Terminal]]:
    """Starts chats at terminals, and checks that none shows its key or a traceback."""
    started: list[Terminal] = []

    def start(*arguments: str, columns: int = 100, **environment: str) -> Terminal:
        started.append(desk.chat(*arguments, columns=columns, **environment))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()
    for terminal in started:
        assert desk.server.keys.alice not in terminal.text
        assert "Traceback" not in terminal.text, terminal.text


@pytest.fixture
def stranger() -> Iterator[ForeignServer]:
    """An AAP server that is not Agenthost."""
    with foreign_server() as server:
        yield server
