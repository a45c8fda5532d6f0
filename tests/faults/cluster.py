"""A production installation for fault tests: two webs, two workers, beat, its own Postgres and Redis."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.services import Postgres, free_port
from tests.e2e import agents_file
from tests.e2e import server as servers
from tests.e2e.server import Process, Server
from tests.paths import ROOT

SETTINGS = {
    "AGENTHOST_LEASE_SECONDS": "5",
    "AGENTHOST_RENEW_SECONDS": "0.5",
    # On a machine under pressure an outage of some seconds may become one of minutes.
    "AGENTHOST_DATABASE_OUTAGE_SECONDS": "180",
    "AGENTHOST_WORKER_GRACE_SECONDS": "1",
    "AGENTHOST_DRAIN_SECONDS": "150",
    # Answers of 10 MB arrive whole where the operator allows them.
    "AGENTHOST_MESSAGE_BYTES": str(12 * 2**20),
}
TAKEN_OVER_WITHIN = 30.0

AGENTS = """
[[agents]]
name = "impatient"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-impatient"
history = ["full"]
stream = ["delta", "message", "none"]
client_tools = false
images = []
limits = {{ connect = 10, first_output = 6, between_outputs = 4, retries = 1 }}
"""


def write_agents(directory: Path, model_url: str) -> Path:
    """The suite's agents, and one with short provider timeouts."""
    directory.mkdir(parents=True, exist_ok=True)
    path = agents_file.write(directory / "faults.toml", model_url)
    path.write_text(path.read_text() + AGENTS.format(model=model_url))
    return path


@dataclass
class Cluster:
    """``server`` with its Postgres and beat."""

    server: Server
    postgres: Postgres
    beat: Process = field(init=False)

    def __post_init__(self) -> None:
        self.beat = self.start_beat()

    # --- its processes ---

    def start_beat(self) -> Process:
        self.beat = self.server._start("beat")
        return self.beat

    def restart_web(self, index: int) -> Process:
        """Replace one web as a deploy does. Returns the old process when the new one is ready."""
        old = self.server.webs[index]
        old.terminate()
        # The old process keeps its port until its streams have ended, so the new one gets another.
        self.server.ports[index] = free_port()
        self.server.start_web(index)
        self.server.wait_ready(index)
        return old

    def replace_worker(self, index: int) -> Process:
        """Start a new worker, then send SIGTERM to the old one, without waiting for its end."""
        new = self.server._start("worker")
        wait_log(new, "worker_ready")
        old, self.server.workers[index] = self.server.workers[index], new
        old.terminate()
        return old

    def kill_worker(self, index: int) -> None:
        self.server.workers[index].kill()
        self.server.workers[index] = self.server._start("worker")

    def kill_web(self, index: int) -> None:
        """Kill the web with SIGKILL and start it again on its port, as a supervisor would."""
        self.server.webs[index].kill()
        self.server.start_web(index)

    def kill_beat(self) -> None:
        self.beat.kill()
        self.start_beat()

    def restart_all(self) -> None:
        for process in (*self.server.webs, *self.server.workers, self.beat):
            process.kill()
        self.heal()

    def heal(self) -> None:
        """Start all processes that are down, and wait until all are ready. Runs before and after every test."""
        if self.postgres.pid is None:
            self.postgres.start()
        redis = self.server.redis
        assert redis is not None
        if redis.pid is None:
            redis.start()
        self.restart_ended()
        for index in range(len(self.server.webs)):
            self.server.wait_ready(index)
        for worker in self.server.workers:
            wait_log(worker, "worker_ready")
        wait_log(self.beat, "beat is ready")

    def restart_ended(self) -> None:
        """Start processes that have ended, as a supervisor does. A process that starts while Postgres is down ends at once."""
        for index, worker in enumerate(self.server.workers):
            if not worker.alive:
                self.server.workers[index] = self.server._start("worker")
        for index, web in enumerate(self.server.webs):
            if not web.alive:
                self.server.start_web(index)
        if not self.beat.alive:
            self.start_beat()

    def close(self) -> None:
        self.beat.stop()

    # --- queries ---

    def ask(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with self.server.database() as connection:
            return connection.execute(sql.encode(), parameters).fetchall()

    def worker_of_the_run(self) -> int:
        """The index of the worker that executes the only run."""
        ((name,),) = self.ask("select worker from sessions_app_turn where state = 'running'")
        return next(i for i, each in enumerate(self.server.workers) if str(name) in each.log.read_text())

    def turns_running(self) -> int:
        ((count,),) = self.ask("select count(*) from sessions_app_turn where state in ('queued', 'running')")
        return int(str(count))

    def processes(self) -> list[Process]:
        return [*self.server.webs, *self.server.workers, self.beat]

    def orphaned_connections(self) -> list[tuple[object, ...]]:
        """Database connections that belong to none of the live processes."""
        ours = {port for process in self.processes() for port in local_ports(process.popen.pid)}
        delayed = self.ask(
            "select client_port, application_name, state, query from pg_stat_activity where datname = current_database()"
            " and application_name <> 'the test' and backend_type = 'client backend'"
        )
        return [row for row in delayed if row[0] not in ours]

    def backends(self) -> list[tuple[object, ...]]:
        return self.ask(
            "select pid, application_name, state, query from pg_stat_activity"
            " where datname = current_database() and application_name <> 'the test' and backend_type = 'client backend'"
        )


def local_ports(pid: int) -> set[int]:
    """The local ports of a process's TCP connections (IPv4)."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(descriptor.readlink()))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[1].partition(":")[2], 16) for line in lines if f"socket:[{line[9]}]" in sockets}


def wait_for(condition: Callable[[], object], what: str, timeout: float = 90.0) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until, f"not within {timeout:g} s: {what}"
        time.sleep(0.05)


def wait_log(process: Process, words: str, timeout: float = 120.0) -> None:
    def said() -> bool:
        assert process.alive, f"{process.role} has ended:\n{process.log.read_text()[-3000:]}"
        return words in process.log.read_text(errors="replace")

    wait_for(said, f"{process.role} logs {words!r}", timeout)


@contextlib.contextmanager
def running(
    directory: Path,
    model_url: str,
    postgres: Postgres,
    environment: Mapping[str, str] | None = None,
    root: Path = ROOT,
) -> Iterator[Cluster]:
    agents = {"AGENTHOST_AGENTS_FILE": str(write_agents(directory, model_url))}
    with servers.running(
        "production",
        directory,
        model_url,
        webs=2,
        workers=2,
        environment={**SETTINGS, **agents, **(environment or {})},
        database_url=postgres.url(),
        root=root,
    ) as server:
        cluster = Cluster(server, postgres)
        try:
            cluster.heal()
            yield cluster
        finally:
            if postgres.pid is None:
                # Needed by the teardown of the processes.
                postgres.start()
            cluster.close()


def is_root() -> bool:
    return os.geteuid() == 0
