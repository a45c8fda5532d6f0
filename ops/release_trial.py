"""Installs a wheel in an environment of its own, and uses the server that it brings. Called by ops/release and its test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ops import environment
from ops.services import free_port

START_SECONDS = 120.0
_OWN_VARIABLES = ("PATH", "TMPDIR", "LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "PIP_NO_INDEX", "SSL_CERT_FILE")


class TrialFailed(Exception):
    """The installed package does not work. The text says what failed."""


@dataclass
class Installed:
    """An environment with the wheel, and a home directory of its own."""

    directory: Path

    @property
    def program(self) -> Path:
        return self.directory / "venv" / "bin" / "agenthost"

    @property
    def python(self) -> Path:
        return self.directory / "venv" / "bin" / "python"

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _OWN_VARIABLES if name in os.environ}
        return {**kept, "HOME": str(self.directory / "home"), "XDG_DATA_HOME": str(self.directory / "data")}

    def run(self, *command: str | Path, timeout: float = 600) -> str:
        """Run a command in an empty directory; returns its stdout."""
        elsewhere = self.directory / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        done = subprocess.run(
            list(map(str, command)),
            env=self.environment(),
            cwd=elsewhere,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            shown = " ".join(map(str, command))
            raise TrialFailed(f"{shown} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    @contextlib.contextmanager
    def up(self, port: int) -> Iterator[str]:
        """The server of ``agenthost up``, until the block ends; what it printed before it was ready."""
        (self.directory / "elsewhere").mkdir(exist_ok=True)
        log = self.directory / f"up-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(self.program), "up", "--port", str(port)],
                env=self.environment(), cwd=self.directory / "elsewhere", stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            until = time.monotonic() + START_SECONDS
            while not _is_ready(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise TrialFailed(f"agenthost up is not ready:\n{log.read_text()[-4000:]}")
                time.sleep(0.1)
            yield log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def install(wheel: Path, directory: Path, *, offline: bool) -> Installed:
    """A new environment with the lock's packages and the wheel. ``offline``: with those of .venv, by a path file."""
    installed = Installed(directory)
    (directory / "home").mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
    pip = (installed.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    if offline:
        (site,) = (directory / "venv" / "lib").glob("python*/site-packages")
        (own,) = (environment.HOME / "lib").glob("python*/site-packages")
        # Last in the path, so that the wheel's packages come from the wheel.
        (site / "packages-of-the-checkout.pth").write_text(f"{own}\n")
    else:
        pins = [pin for pin in environment.read_lock(environment.LOCK.read_text()) if environment.SERVER in pin.sets]
        locked = directory / "server.lock"
        locked.write_text("".join(pin.requirement() for pin in pins))
        installed.run(*pip, "--require-hashes", "--no-deps", "-r", locked, timeout=1800)
    installed.run(*pip, "--no-deps", "--no-index", wheel.absolute())
    return installed


def key_of(printed: str) -> str:
    found = re.search(r"^  Key +(ah_\S+)$", printed, re.MULTILINE)
    if found is None:
        raise TrialFailed(f"the first start printed no key:\n{printed[-3000:]}")
    return found[1]


def first_steps(installed: Installed, expected: str) -> None:
    """The version, the help, the examples, a first start and a turn."""
    shown = installed.run(installed.program, "version")
    if not shown.startswith(f"agenthost {expected} "):
        raise TrialFailed(f"agenthost version printed {shown!r}")
    installed.run(installed.program, "help")
    installed.run(installed.program, "example", "nginx")
    for name in ("kubernetes", "systemd"):
        installed.run(installed.program, "example", name, "--to", str(installed.directory / f"example-{name}"))
    port = free_port()
    with installed.up(port) as printed:
        answer = installed.run(installed.python, "-c", TURN, f"http://127.0.0.1:{port}", key_of(printed))
        if "I count to 3" not in answer:
            raise TrialFailed(f"the demo agent answered {answer!r}")


TURN = """
import sys
from agenthost.client import Client
with Client(*sys.argv[1:]) as client:
    print(client.create_session("demo").send("Count to 3.").result().text)
"""
