"""Real Agenthost servers: processes of ``ops/entrypoint``, embedded or in production mode."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx
import psycopg

from ops import migrated_database
from ops.services import Redis, free_port
from tests.e2e import agents_file
from tests.e2e import preloaded as preloading
from tests.e2e.client import Client
from tests.fakes.tools import DIRECTORY_VARIABLE, ToolBox
from tests.paths import ROOT

START_SECONDS = 120.0
SHORT_TIMES = {
    # Long enough for renewals in time on a busy machine.
    "AGENTHOST_LEASE_SECONDS": "5",
    "AGENTHOST_RENEW_SECONDS": "0.5",
    "AGENTHOST_SWEEP_SECONDS": "0.25",
    "AGENTHOST_QUEUE_GRACE_SECONDS": "0.5",
    "AGENTHOST_WORKER_GRACE_SECONDS": "2",
    "AGENTHOST_DRAIN_SECONDS": "2",
    "AGENTHOST_KEEPALIVE_SECONDS": "0.5",
}
DEFAULT_LEASES = {"AGENTHOST_LEASE_SECONDS": "", "AGENTHOST_RENEW_SECONDS": "", "AGENTHOST_SWEEP_SECONDS": ""}
"""For tests that kill no process. Short leases expire on a busy machine, and an idle embedded server that sweeps often uses a
tenth of a core."""
PATIENT = {"AGENTHOST_DATABASE_POOL_WAIT": "60"}
"""For tests that are not about the 503 of a request that got no connection in time."""
MAKE_KEYS = """
import sys, django
django.setup()
from django.core.management import call_command
from django.db import connection
from io import StringIO
for line in sys.stdin:
    tenants, *keys = line.split()
    made = []
    for tenant in tenants.split(","):
        call_command("create_tenant", tenant, stdout=StringIO())
    for wanted in keys:
        tenant, name, scopes, agents = wanted.split("/")
        out = StringIO()
        call_command("create_key", tenant, name=name, scopes=scopes, stdout=out, **({"agents": agents} if agents else {}))
        made.append(out.getvalue().strip().splitlines()[-1])
    connection.close()
    if hasattr(connection, "close_pool"):
        connection.close_pool()
    print(*made, flush=True)
"""
"""Creates all keys of a server in one process, because each start of Django takes a second."""
CAST = (
    "alice/all/*/",
    "bob/all/*/",
    "alice/read/meta:read,sessions:read/",
    "alice/meta/meta:read/",
    "alice/without-meta/sessions:read,sessions:write/",
    "alice/echo/*/echo",
)


@dataclass
class Keys:
    """Keys of two tenants with all scopes, and keys of the first one with fewer."""

    alice: str
    bob: str
    reader: str
    meta_only: str
    without_meta: str
    echo_only: str


class Process:
    """A process of one role, which logs to a file."""

    def __init__(
        self,
        role: str,
        environment: Mapping[str, str],
        log: Path,
        *arguments: str,
        preloaded: bool = True,
        root: Path = ROOT,
    ) -> None:
        self.role = role
        self.log = log
        self.popen: subprocess.Popen[bytes] | preloading.Program
        starter = preloading.starter_for(environment) if preloaded and not arguments and root == ROOT else None
        with log.open("ab") as output:
            if starter is not None:
                self.popen = starter.start(role, environment, output.fileno())
                return
            self.popen = subprocess.Popen(
                [str(root / "ops" / "entrypoint"), role, *arguments],
                env={**environment, "PYTHONPATH": str(root)},
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # A process group, so that SIGKILL also ends the children, as a machine failure would.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(60)

    def terminate(self) -> None:
        """Send SIGTERM, so that it drains; does not wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.terminate()

    def stop(self, timeout: float = 30.0) -> None:
        self.terminate()
        try:
            self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)


@dataclass
class Server:
    """A running installation. ``shape`` is ``embedded`` or ``production``."""

    shape: str
    directory: Path
    environment: dict[str, str]
    tools: ToolBox
    keys: Keys = field(default_factory=lambda: Keys("", "", "", "", "", ""))
    forked: int = 1
    """How many processes each web and each worker is."""
    preloaded: bool = True
    """Its processes may be forked from one that has imported the libraries."""
    root: Path = ROOT
    """The code of processes that are started from now on; another one for those of another release."""
    ports: list[int] = field(default_factory=list)
    webs: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    terminals: list[Process] = field(default_factory=list)
    redis: Redis | None = None
    owner: dict[str, str] = field(default_factory=dict)
    """In production: the database URL for ``migrate``, which uses another role than the other processes."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _clients: list[Client] = field(default_factory=list)
    _key_maker: subprocess.Popen[str] | None = None

    # --- processes ---

    def _start(self, role: str, *options: str, **extra: str) -> Process:
        log = self.directory / f"{role}-{next(self._numbers)}.log"
        arguments = [*options, *(["--processes", str(self.forked)] if self.forked > 1 and role in ("web", "worker") else [])]
        return Process(role, {**self.environment, **extra}, log, *arguments, preloaded=self.preloaded, root=self.root)

    def start_web(self, index: int | None = None) -> Process:
        """Start a web process (embedded: the only process). ``index`` restarts one on its old port."""
        role = "embedded" if self.shape == "embedded" else "web"
        if index is None:
            self.ports.append(free_port())
            index = len(self.ports) - 1
        process = self._start(role, AGENTHOST_PORT=str(self.ports[index]))
        if index < len(self.webs):
            self.webs[index] = process
        else:
            self.webs.append(process)
        return process

    def start_worker(self, *options: str, **extra: str) -> Process:
        process = self._start("worker", *options, **extra)
        self.workers.append(process)
        return process

    def start_terminals(self) -> Process:
        """Start a terminal service (production: embedded servers have one)."""
        process = self._start("terminals")
        self.terminals.append(process)
        return process

    def start(self, *, webs: int = 1, workers: int = 1) -> None:
        """Start all processes and wait until they are ready."""
        old = len(self.ports)
        for index in range(max(old, webs)):
            self.start_web(index if index < old else None)
        if self.shape == "production":
            for _ in range(workers):
                self.start_worker()
        for index in range(len(self.webs)):
            self.wait_ready(index)

    def wait_ready(self, index: int = 0, timeout: float = START_SECONDS) -> None:
        until = time.monotonic() + timeout
        while True:
            process = self.webs[index]
            assert process.alive, f"{process.role} ended while it started:\n{process.log.read_text()[-4000:]}"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(self.origin(index) + "/readyz", timeout=20, trust_env=False, verify=False).status_code == 200:
                    return
            assert time.monotonic() < until, f"not ready within {timeout} s:\n{self.log_text()[-4000:]}"
            time.sleep(0.05)

    def wait_metrics(self, port: int, timeout: float = START_SECONDS) -> None:
        """Wait until a process serves its metrics at this port."""
        until = time.monotonic() + timeout
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=20, trust_env=False).status_code == 200:
                    return
            assert time.monotonic() < until, f"no metrics within {timeout} s:\n{self.log_text()[-4000:]}"
            time.sleep(0.05)

    def restore(self, *, workers: int = 1) -> None:
        """Start the processes that a test has ended."""
        for index, web in enumerate(self.webs):
            if not web.alive:
                self.start_web(index)
        if self.shape == "production":
            self.workers = [worker for worker in self.workers if worker.alive]
            for _ in range(workers - len(self.workers)):
                self.start_worker()
        for index in range(len(self.webs)):
            self.wait_ready(index)

    def kill_workers(self) -> None:
        """Kill the processes that run turns (the workers, or the embedded process) with SIGKILL."""
        for process in self.workers if self.shape == "production" else self.webs:
            process.kill()
        self.workers.clear()

    def stop(self) -> None:
        processes = [*self.webs, *self.workers, *self.terminals]
        for process in processes:
            process.terminate()
        for process in processes:
            process.stop()
        self.workers.clear()
        self.terminals.clear()

    def kill(self) -> None:
        for process in [*self.webs, *self.workers, *self.terminals]:
            process.kill()
        self.workers.clear()
        self.terminals.clear()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.stop()
        self.stop_making_keys()

    # --- clients ---

    def origin(self, index: int = 0) -> str:
        return f"http://127.0.0.1:{self.ports[index]}"

    def client(self, key: str | None, index: int = 0) -> Client:
        client = Client(self.origin(index), key)
        self._clients.append(client)
        return client

    @property
    def alice(self) -> Client:
        return self.client(self.keys.alice)

    # --- operator commands ---

    def manage(self, *arguments: str, code: str | None = None) -> str:
        """Run a management command, or ``code`` with Django's settings; returns stdout."""
        command = [sys.executable, "-c", code, *arguments] if code else [sys.executable, "manage.py", *arguments]
        environment = {**self.environment, "DJANGO_SETTINGS_MODULE": "agenthost.settings"}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def make_keys(self, *wanted: str) -> list[str]:
        """Create keys, each given as tenant/name/scopes/agents, and their tenants."""
        if self._key_maker is None or self._key_maker.poll() is not None:
            self.stop_making_keys()
            with (self.directory / "keys.log").open("ab") as log:
                self._key_maker = subprocess.Popen(
                    [sys.executable, "-c", MAKE_KEYS],
                    env={**self.environment, "PYTHONPATH": str(self.root), "DJANGO_SETTINGS_MODULE": "agenthost.settings"},
                    cwd=self.root,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        maker = self._key_maker
        assert maker.stdin is not None
        assert maker.stdout is not None
        tenants = ",".join(sorted({one.split("/")[0] for one in wanted}))
        maker.stdin.write(" ".join([tenants, *wanted]) + "\n")
        maker.stdin.flush()
        made = maker.stdout.readline().split()
        assert len(made) == len(wanted), (self.directory / "keys.log").read_text()[-4000:]
        return made

    def stop_making_keys(self) -> None:
        if self._key_maker is not None:
            with self._key_maker as maker:
                maker.kill()
            self._key_maker = None

    def new_tenant(self) -> Client:
        """A client of a new tenant, which has no sessions."""
        return self.client(self.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0])

    def log_text(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("*.log")))

    def database(self) -> psycopg.Connection[tuple[object, ...]]:
        """A separate connection to the server's Postgres."""
        return psycopg.connect(self.owner["DATABASE_URL"], autocommit=True, application_name="the test")


def base_environment(directory: Path, tools: ToolBox) -> dict[str, str]:
    keep = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV", "TMPDIR", "TZ")
    inherited = {name: os.environ[name] for name in keep if name in os.environ}
    return {
        **inherited,
        **SHORT_TIMES,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        "PYTHONUNBUFFERED": "1",
        "AGENTHOST_HOST": "127.0.0.1",
        "AGENTHOST_ALLOWED_HOSTS": "*",
        "AGENTHOST_PLAIN_HTTP": "yes",
        "AGENTHOST_STAFF_SECOND_FACTOR": "no",
        "AGENTHOST_VAR_DIR": str(directory / "var"),
        "AGENTHOST_WORKSPACES_DIR": str(directory / "workspaces"),
        "AGENTHOST_AGENTS_FILE": str(directory / "agents.toml"),
        DIRECTORY_VARIABLE: str(tools.directory),
    }


RUNNING: list[Server] = []
"""The running servers, so that a failed test can show their logs."""


@contextlib.contextmanager
def running(
    shape: str,
    directory: Path,
    model_url: str,
    *,
    webs: int = 1,
    workers: int = 1,
    forked: int = 1,
    preloaded: bool = True,
    environment: Mapping[str, str] | None = None,
    database_url: str | None = None,
    root: Path = ROOT,
) -> Iterator[Server]:
    """A new installation with its own database, the agents of the tests and the keys."""
    directory.mkdir(parents=True, exist_ok=True)
    tools = ToolBox(directory / "tools")
    agents_file.write(directory / "agents.toml", model_url)
    with contextlib.ExitStack() as stack:
        variables = {**base_environment(directory, tools), **(environment or {})}
        server = Server(shape, directory, variables, tools, forked=forked, preloaded=preloaded, root=root)
        if database_url is not None or not _KINDS_OF_DATA.isdisjoint(environment or {}):
            if shape == "production":
                server.environment |= stack.enter_context(own_services(server, database_url or os.environ["DATABASE_URL"]))
            install(server)
        else:
            stack.enter_context(from_template(server))
        stack.callback(server.close)
        RUNNING.append(server)
        stack.callback(RUNNING.remove, server)
        server.start(webs=webs, workers=workers)
        yield server


_KINDS_OF_DATA = frozenset({"AGENTHOST_VAR_DIR", "AGENTHOST_SECRET_KEY", "AGENTHOST_KEY_RING", "DATABASE_URL"})
"""With one of these variables a server needs its own data instead of a copy of the template."""


def install(server: Server) -> None:
    """Migrate the server's database, and create tenants and keys."""
    migrate(server)
    server.keys = Keys(*server.make_keys(*CAST))
    server.stop_making_keys()


def migrate(server: Server) -> None:
    """Bring the server's database to the schema of its code."""
    migrated = subprocess.run(
        [str(server.root / "ops" / "entrypoint"), "migrate"],
        env={**server.environment, **server.owner, "PYTHONPATH": str(server.root)},
        cwd=server.root,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stdout + migrated.stderr


def installation_secrets() -> dict[str, str]:
    return {
        "AGENTHOST_SECRET_KEY": secrets.token_urlsafe(32),
        "AGENTHOST_KEY_RING": base64.b64encode(secrets.token_bytes(32)).decode(),
    }


@contextlib.contextmanager
def own_services(server: Server, given: str) -> Iterator[dict[str, str]]:
    """A new database on the given Postgres, and a separate Redis, so that two clusters do not share events."""
    with own_role(given) as role, own_database(given) as url, own_redis(server):
        server.owner = {"DATABASE_URL": url, "AGENTHOST_RUNTIME_ROLE": role}
        assert server.redis is not None
        # As in production, the processes use another role than the one that owns the tables.
        yield {"DATABASE_URL": as_role(url, role), "REDIS_URL": server.redis.url(), **installation_secrets()}


@contextlib.contextmanager
def own_redis(server: Server) -> Iterator[None]:
    server.redis = Redis(server.directory)
    server.redis.start()
    try:
        yield
    finally:
        server.redis.stop()


# --- templates: an installation that is migrated once, with tenants and keys, and copied for each server ---

SHARED = "AGENTHOST_TEST_SHARED"
"""A directory in which the processes of one run of ops/test share templates."""
_TEMPLATES: dict[str, Server] = {}
_made = contextlib.ExitStack()


@contextlib.contextmanager
def from_template(server: Server) -> Iterator[None]:
    """Copy the data of the template with the same shape to the server."""
    template = _template(server.shape)
    server.keys = template.keys
    if server.shape == "embedded":
        shutil.copytree(template.directory / "var", server.directory / "var")
        yield
        return
    given, source = os.environ["DATABASE_URL"], template.owner["DATABASE_URL"]
    role = template.owner["AGENTHOST_RUNTIME_ROLE"]
    with own_database(given, source.rpartition("/")[2]) as url, own_redis(server):
        assert server.redis is not None
        server.owner = {**template.owner, "DATABASE_URL": url}
        server.environment |= {
            **{name: template.environment[name] for name in ("AGENTHOST_SECRET_KEY", "AGENTHOST_KEY_RING")},
            "DATABASE_URL": as_role(url, role),
            "REDIS_URL": server.redis.url(),
        }
        yield


def _template(shape: str) -> Server:
    if shape not in _TEMPLATES:
        shared = os.environ.get(SHARED)
        if shared is None:
            directory = Path(_made.enter_context(tempfile.TemporaryDirectory(prefix=f"{shape}-template-")))
            _TEMPLATES[shape] = _make_template(shape, directory, _made)
        else:
            _TEMPLATES[shape] = _shared_template(shape, Path(shared) / shape)
    return _TEMPLATES[shape]


def _shared_template(shape: str, directory: Path) -> Server:
    """The template that one process of the run makes and all use. Its database is removed with the run's Postgres."""
    directory.mkdir(parents=True, exist_ok=True)
    described = directory / "template.json"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not described.exists():
            template = _make_template(shape, directory, None)
            facts = {"keys": asdict(template.keys), "owner": template.owner, "environment": template.environment}
            described.write_text(json.dumps(facts))
            return template
    facts = json.loads(described.read_text())
    template = Server(shape, directory, facts["environment"], ToolBox(directory / "tools"), Keys(**facts["keys"]))
    template.owner = facts["owner"]
    return template


def _make_template(shape: str, directory: Path, stack: contextlib.ExitStack | None) -> Server:
    """``stack``: for the end of its database and role; None: they stay."""
    tools = ToolBox(directory / "tools")
    agents_file.write(directory / "agents.toml", "http://127.0.0.1:1")
    template = Server(shape, directory, base_environment(directory, tools), tools)
    if shape == "embedded":
        install(template)
        return template
    given = os.environ["DATABASE_URL"]
    role, url = create_role(given), create_database(given, migrated_database.name() or "template1")
    if stack is not None:
        stack.callback(drop_role, given, role)
        stack.callback(drop_database, given, url)
    template.owner = {"DATABASE_URL": url, "AGENTHOST_RUNTIME_ROLE": role}
    with own_redis(template):
        assert template.redis is not None
        addresses = {"DATABASE_URL": as_role(url, role), "REDIS_URL": template.redis.url()}
        template.environment |= {**addresses, **installation_secrets()}
        install(template)
    return template


def forget_templates() -> None:
    """Called at the end of a test run."""
    _TEMPLATES.clear()
    _made.close()


@contextlib.contextmanager
def own_database(given: str, template: str = "template1") -> Iterator[str]:
    """Create a database on the given Postgres and drop it at the end; yields its URL."""
    url = create_database(given, template)
    try:
        yield url
    finally:
        drop_database(given, url)


def create_database(given: str, template: str = "template1") -> str:
    name = f"test_agenthost_e2e_{secrets.token_hex(6)}"
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    address, _, _ = given.partition("?")
    return f"{address.rpartition('/')[0]}/{name}"


def drop_database(given: str, url: str) -> None:
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)'.encode())


ROLE_PASSWORD = "only-for-tests"


@contextlib.contextmanager
def own_role(given: str) -> Iterator[str]:
    """Create a role that owns nothing and drop it at the end, after its database."""
    name = create_role(given)
    try:
        yield name
    finally:
        drop_role(given, name)


def create_role(given: str) -> str:
    name = f"test_agenthost_{secrets.token_hex(6)}"
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{ROLE_PASSWORD}'".encode())
    return name


def drop_role(given: str, name: str) -> None:
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(f'DROP ROLE "{name}"'.encode())


def as_role(url: str, role: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{role}:{ROLE_PASSWORD}@{rest.rpartition('@')[2]}"


def shapes() -> Sequence[str]:
    """``production`` is included if a Postgres is configured, as by ops/test."""
    given = os.environ.get("DATABASE_URL", "").startswith("postgres")
    return ["embedded", "production"] if given else ["embedded"]
