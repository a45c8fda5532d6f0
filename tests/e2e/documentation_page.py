"""Runs the commands of a documentation page against a real server and compares their output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ops.services import free_port
from tests.e2e import server as servers
from tests.paths import ROOT

PORT_ON_THE_PAGE = "127.0.0.1:8000"
KEY_ON_THE_PAGE = "KEY=ah_…"
START = "ops/quickstart"
PATIENCE = 60.0
"""Seconds for one block of commands."""
MASKS = (
    (re.compile(r"\b(sess|call|turn|req|ah)_[A-Za-z0-9_-]{16,}"), r"(\1)"),
    (re.compile(r"^id: [0-9a-f]{28}$", re.MULTILINE), "id: (position)"),
    # The number of words per delta varies.
    (re.compile(r'^data: \{"delta":".*"\}$', re.MULTILINE), 'data: {"delta":"(words)"}'),
)


@dataclass(frozen=True)
class Block:
    """A block of commands, and the output that the page shows below it."""

    line: int
    commands: str
    form: str
    shown: str


def blocks(page: str) -> list[Block]:
    found = [
        (match.start(), match.end(), match[1], match[2])
        for match in re.finditer(r"^```(\w*)\n(.*?)^```\n", page, re.MULTILINE | re.DOTALL)
    ]
    following = {start: (form, text) for start, _end, form, text in found if form != "sh"}
    return [
        Block(page.count("\n", 0, start) + 1, text, *following.get(end, ("", "")))
        for start, end, form, text in found
        if form == "sh"
    ]


def masked(text: str) -> str:
    text = text.replace("\r\n", "\n")
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return text


def lines_fit(shown: str, said: str) -> bool:
    """Compare line by line. A line ``…`` matches any lines, and ``…`` in a line matches any text."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in masked(shown).strip("\n").split("\n")
    )
    return re.fullmatch(pattern, masked(said).strip("\n") + "\n") is not None


def value_fits(shown: Any, said: Any) -> bool:
    """``…`` matches any members as a key, any elements as an element, and any text in a string."""
    match shown, said:
        case str(), str():
            return lines_fit(shown.replace("\n", "\\n"), said.replace("\n", "\\n"))
        case dict(), dict():
            keys = [key for key in shown if key != "…"]
            rest = [key for key in said if key not in keys]
            return ("…" in shown or not rest) and all(key in said and member_fits(key, shown[key], said[key]) for key in keys)
        case list(), list():
            if not shown:
                return not said
            if shown[0] == "…":
                return any(value_fits(shown[1:], said[skipped:]) for skipped in range(len(said) + 1))
            return bool(said) and value_fits(shown[0], said[0]) and value_fits(shown[1:], said[1:])
        case _:
            return bool(shown == said) and type(shown) is type(said)


def member_fits(key: str, shown: Any, said: Any) -> bool:
    # Whether a provider's end is seen within the second that a cancel waits for it depends on the machine.
    return isinstance(said, bool) if key == "providerClosed" else value_fits(shown, said)


def fits(block: Block, said: str) -> bool:
    if block.form != "json":
        return lines_fit(block.shown, said)
    try:
        return value_fits(json.loads(block.shown), json.loads(said))
    except json.JSONDecodeError:
        return False


class Reader:
    """A reader who follows the page: a shell, and a terminal in which the server runs.

    ``at`` is where the shell stands, ``more`` what its environment has beyond the usual (``{port}`` is the server's).
    """

    def __init__(self, directory: Path, at: Path | None = None, more: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.log = directory / "server.log"
        self.complaints = directory / "complaints"
        self._server: subprocess.Popen[bytes] | None = None
        keep = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
        self._environment = {
            **{name: os.environ[name] for name in keep if name in os.environ},
            "PYTHONUNBUFFERED": "1",
            "AGENTHOST_VAR_DIR": str(directory / "var"),
            "AGENTHOST_DRAIN_SECONDS": "2",
            "AGENTHOST_WORKER_GRACE_SECONDS": "2",
            **{name: value.replace("{port}", str(self.port)) for name, value in (more or {}).items()},
        }
        with self.complaints.open("wb") as complaints:
            self._shell = subprocess.Popen(
                ["sh"],
                cwd=at or directory,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
            )

    def follow(self, block: Block) -> str:
        """Run the block; returns its output."""
        if block.commands.rstrip().endswith(START):
            return self.serve(block.commands.rstrip())
        commands = block.commands.replace(PORT_ON_THE_PAGE, f"127.0.0.1:{self.port}")
        if KEY_ON_THE_PAGE in commands:
            commands = commands.replace(KEY_ON_THE_PAGE, f"KEY={self.key()}")
        return self.type(commands)

    def type(self, commands: str) -> str:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        end = f"end of block {time.monotonic_ns()}"
        self._shell.stdin.write(f"{commands}\nprintf '\\n%s: %d\\n' '{end}' $?\n".encode())
        self._shell.stdin.flush()
        too_long = threading.Timer(PATIENCE, os.killpg, (self._shell.pid, signal.SIGKILL))
        too_long.start()
        try:
            said: list[str] = []
            for line in self._shell.stdout:
                said.append(line.decode())
                if said[-1].startswith(end):
                    break
        finally:
            too_long.cancel()
        text = "".join(said)
        assert text.endswith(f"\n{end}: 0\n"), f"{commands}\n{text}\n{self.complaints.read_text()}"
        return text.removesuffix(f"\n{end}: 0\n")

    def serve(self, command: str) -> str:
        """Restart the server with the page's commands; returns its output until it serves."""
        self.stop_server()
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                ["sh", "-c", f"{command} --port {self.port}"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + servers.START_SECONDS
        while True:
            assert self._server.poll() is None, self.log.read_text()
            with contextlib.suppress(httpx.TransportError):
                if (
                    httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=20, trust_env=False, verify=False).status_code
                    == 200
                ):
                    return self.log.read_bytes()[before:].decode().replace(f"127.0.0.1:{self.port}", PORT_ON_THE_PAGE)
            assert time.monotonic() < until, self.log.read_text()
            time.sleep(0.05)

    def key(self) -> str:
        match = re.search(r"^ +Key +(ah_\S+)", self.log.read_text(), re.MULTILINE)
        assert match is not None, self.log.read_text()
        return match[1]

    def stop_server(self) -> None:
        if self._server is None:
            return
        os.killpg(self._server.pid, signal.SIGTERM)
        try:
            self._server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait(10)
        self._server = None

    def close(self) -> None:
        self.stop_server()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
