"""The server as it runs in production: Postgres, Redis, web and worker processes, all started for the measurement."""

from __future__ import annotations

import base64
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from ops import clean_environment, services
from ops.benchmark import measure
from ops.benchmark.load import Ours

ROOT = Path(__file__).resolve().parent.parent.parent
TENANT = "bench"
_START_SECONDS = 60.0
_AGENT = """
[[agents]]
name = "{model}"
version = "1.0.0"
model = "openai-chat:{model}"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "none"
history = ["full"]
stream = ["delta"]
"""
LONG_TALK = "long-talk"
"""An agent that summarises the turns that no longer fit into its model's context."""
_LONG_TALK = f"""
[[agents]]
name = "{LONG_TALK}"
version = "1.0.0"
model = "openai-chat:{{model}}"
base_url = "http://127.0.0.1:{{port}}/v1"
api_key = "none"
stream = ["delta"]
context_tokens = 2000
compaction = "summarise"
"""
_ISSUE = """
import sys, django
from io import StringIO
django.setup()
from django.core.management import call_command
call_command("create_tenant", sys.argv[1], stdout=StringIO(), stderr=StringIO())
call_command("create_key", sys.argv[1], name="bench", stderr=StringIO())
"""


class InstallationError(Exception):
    """A process did not start. The text is the end of its log."""


class _Process:
    """A child process with its log in a file. The terminal's Ctrl-C does not reach it: `stop` ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check(self) -> None:
        if self.popen.poll() is not None:
            raise InstallationError(f"a process ended: {self.log.read_text(errors='replace').strip()[-1500:]}")

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


@contextmanager
def model_server() -> Iterator[int]:
    """Run a scripted model server in its own process; yields its port."""
    process = subprocess.Popen([sys.executable, "-m", "ops.benchmark.paced_model"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Installation:
    """A running server. Its costs are those of all its processes, with Postgres and Redis."""

    def __init__(self, home: Path, environment: dict[str, str], postgres: services.Postgres, redis: services.Redis) -> None:
        self._home, self._environment = home, environment
        self._postgres, self._redis = postgres, redis
        self._ports: list[int] = []
        self._webs: list[_Process] = []
        self._workers: list[_Process] = []
        self._key = ""

    # Processes

    def _start(self, role: str, **more: str) -> _Process:
        log = self._home / f"{role}-{len(self._webs) + len(self._workers)}.log"
        return _Process([str(ROOT / "ops" / "entrypoint"), role], {**self._environment, **more}, log)

    def start_web(self) -> None:
        self._ports.append(services.free_port())
        self._webs.append(self._start("web", AGENTHOST_PORT=str(self._ports[-1])))

    def set_workers(self, count: int) -> None:
        """Start or stop workers until there are `count`, and wait until they are ready."""
        while len(self._workers) > count:
            self._workers.pop().stop()
        while len(self._workers) < count:
            self._workers.append(self._start("worker"))
        self._wait(lambda: self._workers_known() >= count, "the workers to be ready")

    def wait_ready(self) -> None:
        for port in self._ports:
            self._wait(partial(_ready, port), "a web process to be ready")

    def stop(self) -> None:
        for process in [*self._workers, *self._webs]:
            process.stop()

    def _workers_known(self) -> int:
        with self.database() as connection:
            row = connection.execute(
                "select count(*) from sessions_app_workerpresence where seen_at > now() - interval '15 seconds'"
            ).fetchone()
        return 0 if row is None else int(row[0])

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _START_SECONDS
        while not true():
            for process in [*self._webs, *self._workers]:
                process.check()
            if time.monotonic() > until:
                raise InstallationError(f"waited {_START_SECONDS:g} s for {what}")
            time.sleep(0.05)

    # Access for clients

    def issue_key(self, tenant: str) -> str:
        """A key of a new tenant."""
        environment = {**self._environment, "DJANGO_SETTINGS_MODULE": "agenthost.settings"}
        done = subprocess.run(
            [sys.executable, "-c", _ISSUE, tenant], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise InstallationError(f"creating a key failed: {done.stderr.strip()[-1500:]}")
        return done.stdout.split()[-1]

    def target(self, key: str = "") -> Ours:
        if not key:
            self._key = key = self._key or self.issue_key(TENANT)
        return Ours(self._ports, key)

    def database(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._environment["DATABASE_URL"], autocommit=True)

    # Resources

    @property
    def own_pids(self) -> list[int]:
        return [process.popen.pid for process in [*self._webs, *self._workers]]

    @property
    def store_pids(self) -> list[int]:
        return [pid for pid in (self._postgres.pid, self._redis.pid) if pid is not None]

    def cpu_seconds(self) -> float:
        return measure.cpu_seconds([*self.own_pids, *self.store_pids])

    def cpu_by_part(self) -> dict[str, float]:
        parts: dict[str, list[int | None]] = {
            "web": [process.popen.pid for process in self._webs],
            "worker": [process.popen.pid for process in self._workers],
            "Postgres": [self._postgres.pid],
            "Redis": [self._redis.pid],
        }
        return {name: measure.cpu_seconds(pid for pid in pids if pid is not None) for name, pids in parts.items()}


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def installed(
    home: Path, model_port: int, models: Sequence[str], *, webs: int, workers: int, postgres: services.Postgres
) -> Iterator[Installation]:
    """Set up and run an installation from scratch; starts ``postgres`` if it does not run."""
    home.mkdir(mode=0o711, exist_ok=True)
    agents = [_AGENT.format(model=model, port=model_port) for model in models]
    agents += [_LONG_TALK.format(model=model, port=model_port) for model in models[:1]]
    (home / "agents.toml").write_text("".join(agents))
    with ExitStack() as stack:
        stack.callback(postgres.stop)
        if postgres.pid is None:
            postgres.start()
        redis = services.Redis(home)
        stack.callback(redis.stop)
        redis.start()
        environment = {
            **clean_environment.inherited(),
            "DATABASE_URL": postgres.url(),
            "REDIS_URL": redis.url(),
            "AGENTHOST_SECRET_KEY": secrets.token_urlsafe(48),
            "AGENTHOST_KEY_RING": base64.b64encode(secrets.token_bytes(32)).decode(),
            "AGENTHOST_HOST": "127.0.0.1",
            "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1",
            "AGENTHOST_PLAIN_HTTP": "yes",
            "AGENTHOST_VAR_DIR": str(home / "var"),
            "AGENTHOST_AGENTS_FILE": str(home / "agents.toml"),
        }
        command = [str(ROOT / "ops" / "entrypoint"), "migrate"]
        migrated = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if migrated.returncode:
            raise InstallationError(f"migrating the database failed: {migrated.stderr.strip()[-1500:]}")
        installation = Installation(home, environment, postgres, redis)
        stack.callback(installation.stop)
        for _ in range(webs):
            installation.start_web()
        installation.set_workers(workers)
        installation.wait_ready()
        yield installation
