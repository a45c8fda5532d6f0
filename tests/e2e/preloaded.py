"""Starts servers from a process that has imported their libraries, which saves two thirds of the CPU time of a start.

The process imports what needs no settings, and starts nothing. Each server is forked from it and then runs like
``ops/entrypoint ROLE``: with its own environment, session, working directory and output. Only on Linux, and only for servers
whose environment treats Python alike. Run as a program, this module is that process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARIES = (
    "aiohttp",
    "celery.app.amqp",
    "celery.app.task",
    "celery.worker.consumer",
    "cryptography.hazmat.primitives.asymmetric.ec",
    "cryptography.hazmat.primitives.ciphers.aead",
    "django.conf.global_settings",
    "django.contrib.admin.decorators",
    "django.core.handlers.asgi",
    "django.core.management",
    "django.db.migrations.executor",
    "django.template.loader",
    "django.views.generic",
    "fido2.server",
    "kombu.transport.redis",
    "markdown_it",
    "opentelemetry.trace",
    "orjson",
    "psycopg_pool",
    "redis.asyncio",
    "rest_framework.response",
    "uvicorn.config",
    "uvloop",
    "websockets.server",
    # Of ours, what knows no settings.
    "agents_app.loader",
    "agents_app.outbound",
    "agents_app.providers.exchange",
    "agents_app.runtime.interface",
    "sessions_app.ahp.transport.jsonrpc",
    "sessions_app.ahp.versions.v0_1.reducers",
    "sessions_app.ahp.versions.v0_1.wire.commands",
    "sessions_app.ahp.versions.v0_9.wire.commands",
    "sessions_app.ahp.versions.v1_0.wire.commands",
    "sessions_app.workspace.process",
    "sessions_app.workspace.sandbox",
    "sessions_app.workspace.search",
    "sessions_app.workspace.shell_output",
)
_CHUNK = 1 << 17
"""More than any request: a program's environment and arguments."""


# --- in the tests' process ---


class Program:
    """A forked server; has what the tests use of ``subprocess.Popen``."""

    def __init__(self, starter: Starter, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._starter = starter
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._starter.status_of(self.pid)
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Starter:
    """The process that servers are forked from, and its end of the connection."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = _of_python(environment)
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={**environment, "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C must not reach it: it reports how the servers ended.
                start_new_session=True,
            )

    def start(self, role: str, environment: Mapping[str, str], output: int) -> Program:
        return Program(self, self._ask({"role": role, "environment": dict(environment)}, [output]))

    def status_of(self, pid: int) -> int:
        return self._ask({"ended": pid}, [])

    def close(self) -> None:
        self._connection.close()
        self.process.wait(60)

    def _ask(self, request: Mapping[str, object], descriptors: Sequence[int]) -> int:
        message = json.dumps(request).encode()
        assert len(message) < _CHUNK
        with self._lock:
            socket.send_fds(self._connection, [message], list(descriptors))
            return int(self._connection.recv(100))


_starters: list[Starter] = []
_starting = threading.Lock()


def starter_for(environment: Mapping[str, str]) -> Starter | None:
    """The process from which a server with this environment can be forked; None if it must be started by itself."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open") or os.environ.get("AGENTHOST_TEST_THOROUGH"):
        return None
    with _starting:
        if not _starters:
            _starters.append(Starter(environment))
            atexit.register(_starters[0].close)
    return _starters[0] if _starters[0].environment == _of_python(environment) else None


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python and its libraries read before the server's own code runs."""
    prefixes = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "PSYCOPG_", "SSL_")
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


# --- in the process that servers are forked from ---


def _serve(connection: socket.socket) -> dict[str, object]:
    """Fork a server for each request; returns, in each of them, what it shall be."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _CHUNK, 1)
        if not message:
            os._exit(0)
        request: dict[str, object] = json.loads(message)
        if "ended" in request:
            _, status = os.waitpid(int(str(request["ended"])), 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            ready, own = os.pipe()
            answer = os.fork()
            if answer == 0:
                connection.close()
                os.setsid()
                os.close(ready)
                os.close(own)
                for descriptor in (1, 2):
                    os.dup2(descriptors[0], descriptor)
                os.close(descriptors[0])
                return request
            os.close(own)
            os.close(descriptors[0])
            # Until it has a session of its own, in which it can be killed with its children.
            os.read(ready, 1)
            os.close(ready)
        connection.send(str(answer).encode())


def main() -> None:
    # Not this folder, whose modules would hide others.
    sys.path[0] = str(ROOT)
    from agenthost import unused_imports

    gc.disable()
    with unused_imports.left_out():
        for name in LIBRARIES:
            importlib.import_module(name)
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request = _serve(connection)
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    # As ops/entrypoint sets them.
    os.environ.update(environment, PYTHONPATH=f"{environment['PYTHONPATH']}:{ROOT}", PYTHONUNBUFFERED="1")
    sys.argv = ["agenthost.processes", str(request["role"])]
    runpy.run_module("agenthost.processes", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
