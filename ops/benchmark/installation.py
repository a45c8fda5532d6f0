"""The server as it runs in production: Postgres, Redis, web and worker processes, all started for the measurement."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from ops import clean_environment, services
from ops.benchmark import processes
from ops.benchmark.load import Aap, Chat, local

ROOT = Path(__file__).resolve().parent.parent.parent
TENANT = "bench"
_START_SECONDS = 60.0
_AAP = "/aap/v3"
_BAD_USAGE = 2
"""The exit code of `ops/entrypoint` for options that it does not have."""
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
for tenant in sys.argv[1:]:
    call_command("create_tenant", tenant, stdout=StringIO(), stderr=StringIO())
    call_command("create_key", tenant, name="bench", stderr=StringIO())
"""


class InstallationError(Exception):
    """A process did not start. The text is the end of its log."""


class _Process:
    """A child process with its log in a file. The terminal's Ctrl-C does not reach it: `stop` ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], root: Path, log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check(self) -> None:
        if self.ended:
            raise InstallationError(f"a process ended: {self.log.read_text(errors='replace').strip()[-1500:]}")

    @property
    def ended(self) -> bool:
        return self.popen.poll() is not None

    @property
    def refused(self) -> bool:
        """Whether it ended because it does not know its options."""
        return self.popen.poll() == _BAD_USAGE

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


@contextmanager
def model_server(port: int = 0) -> Iterator[int]:
    """Run a scripted model server in its own process, on a free port if none is named; yields its port."""
    command = [sys.executable, "-m", "ops.benchmark.paced_model", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        listening = process.stdout.readline()
        if not listening:
            raise InstallationError(f"the scripted model server does not start on port {port}: the reason is above")
        yield int(listening)
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Server:
    """A server under measurement: where it is, and which processes it costs."""

    def parts(self) -> dict[str, list[int]]:
        """The process ids of each part; their descendants belong to it."""
        raise NotImplementedError

    def target(self, *keys: str) -> Aap | Chat:
        """The server for clients; without ``keys`` with the key of the tenant that most rows use."""
        raise NotImplementedError

    def cpu_by_part(self) -> dict[str, float]:
        return {name: processes.cpu_seconds(pids) for name, pids in self.parts().items()}

    def cpu_seconds(self) -> float:
        return sum(self.cpu_by_part().values())

    def memory_mib(self) -> float:
        """PSS of the server's own processes, without Postgres and Redis."""
        return processes.pss_mib(pid for name, pids in self.parts().items() if name not in STORES for pid in pids)

    def memory_by_part(self) -> dict[str, float]:
        """The same for each part alone, and for all together under an empty name: libraries that parts share count once there."""
        own = {name: processes.pss_mib(pids) for name, pids in self.parts().items() if name not in STORES}
        return {"": self.memory_mib(), **own}


STORES = ("Postgres", "Redis")


class Checkout:
    """Starts processes of one checkout, with its own code and its own .venv."""

    def __init__(self, root: Path, home: Path, environment: dict[str, str]) -> None:
        self.root, self.home = root, home
        # The entrypoint adds the checkout itself; a caller's PYTHONPATH could name another one.
        self.environment = {**clean_environment.inherited(), **environment}
        self.environment.pop("PYTHONPATH", None)
        self._started = 0

    def start(self, role: str, *options: str, **more: str) -> _Process:
        self._started += 1
        log = self.home / f"{role}-{self._started}.log"
        command = [str(self.root / "ops" / "entrypoint"), role, *options]
        return _Process(command, {**self.environment, **more}, self.root, log)

    def migrate(self) -> None:
        command = [str(self.root / "ops" / "entrypoint"), "migrate"]
        done = subprocess.run(command, env=self.environment, cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise InstallationError(f"migrating the database failed: {done.stderr.strip()[-1500:]}")

    def issue_keys(self, *tenants: str) -> list[str]:
        """One key for each of these new tenants."""
        return self.run_script(_ISSUE, *tenants).split()[-len(tenants) :]

    def run_script(self, script: str, *arguments: str) -> str:
        """Run the text of a Python script with the checkout's code and settings; returns its output."""
        python = self.root / ".venv" / "bin" / "python"
        done = subprocess.run(
            [str(python) if python.exists() else sys.executable, "-c", script, *arguments],
            env={**self.environment, "DJANGO_SETTINGS_MODULE": "agenthost.settings"},
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InstallationError(f"a script failed: {done.stderr.strip()[-1500:]}")
        return done.stdout


class Installation(Server):
    """A running server in its production shape. Its costs are those of all its processes, with Postgres and Redis."""

    def __init__(self, checkout: Checkout, postgres: services.Postgres, redis: services.Redis) -> None:
        self.checkout, self.postgres, self.redis = checkout, postgres, redis
        self._ports: list[int] = []
        self._webs: list[_Process] = []
        self._workers: list[_Process] = []
        self._terminals: list[_Process] = []
        self._key = ""

    # Processes

    def start_web(self) -> None:
        self._ports.append(services.free_port())
        self._webs.append(self.checkout.start("web", AGENTHOST_PORT=str(self._ports[-1])))

    def set_workers(self, count: int) -> None:
        """Start or stop workers until there are `count`, and wait until they are ready."""
        while len(self._workers) > count:
            self._workers.pop().stop()
        while len(self._workers) < count:
            self._workers.append(self.checkout.start("worker"))
        self._wait(lambda: self._workers_known() >= count, "the workers to be ready")

    def start_forked(self, webs: int, workers: int) -> None:
        """Start webs and workers as forks of one process each where the release has that, else one by one."""
        port = services.free_port()
        web = self.checkout.start("web", "--processes", str(webs), AGENTHOST_PORT=str(port))
        self._wait(lambda: _ready(port) or web.ended, "a web process to be ready")
        if not web.refused:
            web.check()
            self._ports.append(port)
            self._webs.append(web)
        else:
            for _ in range(webs):
                self.start_web()
            self.wait_ready()
        worker = self.checkout.start("worker", "--processes", str(workers))
        self._wait(lambda: self._workers_known() >= workers or worker.ended, "the workers to be ready")
        if not worker.refused:
            worker.check()
            self._workers.append(worker)
        else:
            self.set_workers(workers)

    def start_terminals(self) -> bool:
        """Start a terminal service and wait until terminals can be created. Whether the release has that role."""
        self._terminals.append(self.checkout.start("terminals"))
        service = self._terminals[-1]
        self._wait(lambda: service.ended or self.reports("terminals") == "on", "the terminal service to be ready")
        if service.refused:
            self._terminals.pop()
            return False
        service.check()
        return True

    def stop_terminals(self) -> None:
        while self._terminals:
            self._terminals.pop().stop()

    def reports(self, fact: str) -> str | None:
        """A fact of the first web's `/readyz`."""
        with urllib.request.urlopen(f"{self.origins[0]}/readyz", timeout=5) as answer:
            found: str | None = json.load(answer).get(fact)
        return found

    def wait_ready(self) -> None:
        for port in self._ports:
            self._wait(partial(_ready, port), "a web process to be ready")

    def stop(self) -> None:
        for process in [*self._terminals, *self._workers, *self._webs]:
            process.stop()

    def _workers_known(self) -> int:
        with self.database() as connection:
            row = connection.execute(
                "select count(*) from sessions_app_workerpresence where seen_at > now() - interval '15 seconds'"
            ).fetchone()
        return 0 if row is None else int(row[0])

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        _wait(true, what, [*self._webs, *self._workers])

    # Access for clients

    def issue_key(self, tenant: str) -> str:
        """A key of a new tenant."""
        return self.checkout.issue_keys(tenant)[0]

    @property
    def key(self) -> str:
        """The key of the tenant that most rows use."""
        self._key = self._key or self.issue_key(TENANT)
        return self._key

    @property
    def ports(self) -> list[int]:
        """Of the webs."""
        return list(self._ports)

    @property
    def origins(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def target(self, *keys: str) -> Aap:
        return Aap([local(port, _AAP) for port in self._ports], *(keys or (self.key,)))

    def database(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.postgres.url(), autocommit=True)

    # Resources

    def parts(self) -> dict[str, list[int]]:
        return {
            "web": [process.popen.pid for process in self._webs],
            "worker": [process.popen.pid for process in self._workers],
            **({"terminals": [process.popen.pid for process in self._terminals]} if self._terminals else {}),
            "Postgres": [] if self.postgres.pid is None else [self.postgres.pid],
            "Redis": [] if self.redis.pid is None else [self.redis.pid],
        }


class Embedded(Server):
    """A running server in one process, on SQLite."""

    def __init__(self, process: _Process, port: int, key: str) -> None:
        self._process, self._port, self._key = process, port, key

    def parts(self) -> dict[str, list[int]]:
        return {"server": [self._process.popen.pid]}

    def target(self, *keys: str) -> Aap:
        return Aap([local(self._port, _AAP)], *(keys or (self._key,)))


def _wait(true: Callable[[], bool], what: str, started: Sequence[_Process]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not true():
        for process in started:
            process.check()
        if time.monotonic() > until:
            raise InstallationError(f"waited {_START_SECONDS:g} s for {what}")
        time.sleep(0.05)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _settings(home: Path, model_port: int, models: Sequence[str]) -> dict[str, str]:
    agents = [_AGENT.format(model=model, port=model_port) for model in models]
    agents += [_LONG_TALK.format(model=model, port=model_port) for model in models[:1]]
    (home / "agents.toml").write_text("".join(agents))
    return {
        "AGENTHOST_SECRET_KEY": secrets.token_urlsafe(48),
        "AGENTHOST_KEY_RING": base64.b64encode(secrets.token_bytes(32)).decode(),
        "AGENTHOST_HOST": "127.0.0.1",
        "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1",
        "AGENTHOST_PLAIN_HTTP": "yes",
        # All load comes from one address, and most of it from one key.
        "AGENTHOST_CONNECTIONS_PER_ADDRESS": "4000",
        "AGENTHOST_AAP_STREAMS": "2000",
        "AGENTHOST_AAP_STREAMS_PER_KEY": "2000",
        "AGENTHOST_AHP_CONNECTIONS": "2000",
        "AGENTHOST_AHP_CONNECTIONS_PER_KEY": "2000",
        "AGENTHOST_VAR_DIR": str(home / "var"),
        "AGENTHOST_AGENTS_FILE": str(home / "agents.toml"),
    }


@dataclass(frozen=True, slots=True)
class Shape:
    """What an installation is started as. With ``forked``, processes of a role are forks of one, if the release has that."""

    root: Path = ROOT
    webs: int = 1
    workers: int = 1
    forked: bool = False
    python_path: Path | None = None
    """A folder whose `sitecustomize` every Python process loads."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of every installation."""


@contextmanager
def installed(
    home: Path, model_port: int, models: Sequence[str], shape: Shape, postgres: services.Postgres
) -> Iterator[Installation]:
    """Set up and run an installation from scratch; starts ``postgres`` if it does not run."""
    home.mkdir(mode=0o711, exist_ok=True)
    with ExitStack() as stack:
        stack.callback(postgres.stop)
        if postgres.pid is None:
            postgres.start()
        redis = services.Redis(home)
        stack.callback(redis.stop)
        redis.start()
        addresses = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url()}
        checkout = Checkout(shape.root, home, {**_settings(home, model_port, models), **addresses, **shape.settings})
        if shape.python_path is not None:
            checkout.environment["PYTHONPATH"] = str(shape.python_path)
        checkout.migrate()
        installation = Installation(checkout, postgres, redis)
        stack.callback(installation.stop)
        if shape.forked:
            installation.start_forked(shape.webs, shape.workers)
        else:
            for _ in range(shape.webs):
                installation.start_web()
            installation.set_workers(shape.workers)
            installation.wait_ready()
        yield installation


@contextmanager
def embedded(home: Path, model_port: int, models: Sequence[str], root: Path) -> Iterator[Embedded]:
    """Set up and run the embedded server from scratch."""
    home.mkdir(mode=0o711, exist_ok=True)
    port = services.free_port()
    checkout = Checkout(root, home, {**_settings(home, model_port, models), "AGENTHOST_PORT": str(port)})
    checkout.migrate()
    key = checkout.issue_keys(TENANT)[0]
    process = checkout.start("embedded")
    try:
        _wait(lambda: _ready(port), "the embedded server to be ready", [process])
        yield Embedded(process, port, key)
    finally:
        process.stop()
