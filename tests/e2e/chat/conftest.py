"""The terminal chat against a server that runs: the suite's agents, and the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from agents_app import registry
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.server import Server
from tests.e2e.terminal import Terminal
from tests.fakes.foreign_server import ForeignServer, foreign_server
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT

PROGRAM = [sys.executable, "-m", "agenthost.chat"]


@pytest.fixture(scope="package")
def hall(tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer) -> Iterator[Server]:
    """The server of these tests: embedded, for the chat knows it by its protocol alone."""
    directory = tmp_path_factory.mktemp("hall")
    agents_file.write(directory / "agents.toml", _model_server.url)
    demo = registry.BUILTIN_FILE.read_text().split("[[agents]]")[1].partition("# Served only")[0]
    file = directory / "with_demo.toml"
    file.write_text(f"{(directory / 'agents.toml').read_text()}\n[[agents]]{demo.replace('delay = 0.03', 'delay = 0')}")
    # Nobody dies here, so the leases are the product's: short ones run out by themselves on a machine under pressure.
    variables = {"AGENTHOST_AGENTS_FILE": str(file), "AGENTHOST_LEASE_SECONDS": "", "AGENTHOST_RENEW_SECONDS": ""}
    with servers.running("embedded", directory, _model_server.url, environment=variables) as running:
        yield running


@dataclass
class Desk:
    """Starts chats. The key it gives them must never be seen."""

    server: Server
    directory: Path

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {
            **kept,
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
        """The chat as a script runs it: no terminal anywhere."""
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


@pytest.fixture
def desk(hall: Server, tmp_path: Path) -> Desk:
    return Desk(hall, tmp_path)


@pytest.fixture
def chat(desk: Desk) -> Iterator[Callable[..., Terminal]]:
    """Chats at terminals; each must end without a trace of the key, or of Python."""
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
    """A server of the protocol that is none of ours."""
    with foreign_server() as server:
        yield server
