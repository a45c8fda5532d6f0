"""The services of ops/systemd, run as their units say: command, environment, credentials, writable folders, system calls.

bubblewrap stands in for systemd. RestrictNamespaces and the options that hide parts of /proc and /sys are not imitated.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import httpx
import pytest

from ops import clean_environment, try_container
from ops.services import folder, free_port
from sessions_app.workspace import seccomp
from tests import systemd_units
from tests.e2e import containers
from tests.e2e.client import Client
from tests.e2e.containers import Container, Secrets
from tests.paths import ROOT
from tests.systemd_units import Unit

ANALYZE = shutil.which("systemd-analyze")
NUMBERS = Path(f"/usr/include/{platform.machine()}-linux-gnu/asm/unistd_64.h")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not containers.works(), reason="bubblewrap makes no container here"),
    pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze, which knows the sets of system calls"),
    pytest.mark.skipif(not NUMBERS.exists(), reason="there are no numbers of system calls (apt-get install linux-libc-dev)"),
]
PATIENCE = 120.0
APP = "/opt/agenthost"
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
EPERM, EAFNOSUPPORT = 1, 97
REFUSE_EXECUTABLE = """
import ctypes, os, sys
# PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
if ctypes.CDLL(None, use_errno=True).prctl(65, 1, 0, 0, 0):
    sys.exit("this kernel has no PR_SET_MDWE")
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Memory cannot be both writable and executable from here on, as with MemoryDenyWriteExecute."""


@cache
def calls(name: str) -> frozenset[str]:
    """The system calls of a name or of a set such as @system-service."""
    if not name.startswith("@"):
        return frozenset({name})
    listed = subprocess.run([str(ANALYZE), "syscall-filter", name], capture_output=True, text=True, check=True).stdout
    inner = [line.strip() for line in listed.splitlines()[1:] if line.startswith("    ") and not line.strip().startswith("#")]
    return frozenset().union(*(calls(each) for each in inner))


def system_call_filter(unit: Unit) -> bytes:
    """A program for the kernel that allows what SystemCallFilter and RestrictAddressFamilies allow."""
    numbers = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", NUMBERS.read_text())}
    # What systemd always allows is in @default.
    allowed = calls("@default")
    for line in unit.all("SystemCallFilter"):
        named = frozenset().union(*(calls(each) for each in line.removeprefix("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    steps: list[seccomp.Step | seccomp.Label] = [
        seccomp.Step(seccomp.LD_W_ABS, seccomp.NUMBER),
        seccomp.Step(seccomp.JEQ, numbers["socket"], no="calls"),
        seccomp.Step(seccomp.LD_W_ABS, seccomp.low(0)),
    ]
    for family in " ".join(unit.all("RestrictAddressFamilies")).split():
        steps += [seccomp.Step(seccomp.JEQ, FAMILIES[family], no=f"not {family}"), seccomp.Step(seccomp.RET, seccomp.RET_ALLOW)]
        steps.append(seccomp.Label(f"not {family}"))
    steps += [seccomp.Step(seccomp.RET, seccomp.RET_ERRNO | EAFNOSUPPORT), seccomp.Label("calls")]
    for name in sorted(allowed & numbers.keys()):
        steps += [seccomp.Step(seccomp.JEQ, numbers[name], no=f"not {name}"), seccomp.Step(seccomp.RET, seccomp.RET_ALLOW)]
        steps.append(seccomp.Label(f"not {name}"))
    return seccomp.assemble([*steps, seccomp.Step(seccomp.RET, seccomp.RET_ERRNO | EPERM)])


@dataclass
class Machine:
    directory: Path
    secrets: Secrets
    running: list[Container] = field(default_factory=list)

    def credentials(self, unit: Unit) -> Path:
        """The folder that systemd would make of LoadCredential."""
        made = self.directory / unit.name / "credentials"
        made.mkdir(parents=True)
        for name, source in unit.credentials.items():
            owner = source.endswith("_owner")
            shutil.copy((self.secrets.owner if owner else self.secrets.directory) / name, made / name)
        return made

    def start(self, name: str, *command: str, **extra: str) -> Container:
        """The service, or with ``command`` another program that is confined in the same way."""
        unit = systemd_units.read(name)
        place = self.directory / unit.name
        if place.exists():
            shutil.rmtree(place)
        settings = self.directory / "etc"
        state = self.directory / "state"
        for path in (settings, state):
            path.mkdir(exist_ok=True)
        shutil.copy(systemd_units.FOLDER / "settings.env", settings)
        lines = (line.split("=", 1) for line in (settings / "settings.env").read_text().splitlines() if line[:1] not in ("", "#"))
        environment = {**dict(lines), **unit.environment, **extra}
        entry = list(command or unit.command)
        if unit.one("MemoryDenyWriteExecute") == "yes":
            entry = [f"{APP}/.venv/bin/python", "-c", REFUSE_EXECUTABLE, *entry]
        directory = unit.all("StateDirectory")[0].split()[0]
        mounts = {
            f"/run/credentials/{name}": self.credentials(unit),
            "/etc/agenthost": settings,
            f"/var/lib/{directory}": state,
            "/tmp": self._temporary(place),
        }
        container = containers.run(
            entry,
            environment,
            mounts,
            place / "log",
            writable=[f"/var/lib/{directory}", "/tmp"],
            app=APP,
            seccomp=system_call_filter(unit),
        )
        self.running.append(container)
        return container

    @staticmethod
    def _temporary(place: Path) -> Path:
        made = place / "tmp"
        made.mkdir()
        return made


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with folder() as home, containers.services(home) as secrets:
        made = Machine(tmp_path_factory.mktemp("machine"), secrets)
        yield made
        for container in made.running:
            container.kill()


def answers(container: Container, port: int, path: str) -> None:
    """Wait for a 200."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=10).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert container.bwrap.poll() is None, container.log.read_text()
        assert time.monotonic() < until, container.log.read_text()
        time.sleep(0.1)


def test_services_run_turns_and_drain_under_the_limits_of_their_units(machine: Machine) -> None:
    migration = machine.start("agenthost-migrate.service")
    assert migration.wait(PATIENCE) == 0, migration.log.read_text()
    port, metrics = free_port(), free_port()
    # Plain HTTP, because there is no proxy here. The ports are those of this test.
    here = {"AGENTHOST_PLAIN_HTTP": "yes", "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1", "AGENTHOST_METRICS_PORT": "0"}
    web = machine.start("agenthost-web@8000.service", **here, AGENTHOST_PORT=str(port))
    worker = machine.start("agenthost-worker@1.service", **{**here, "AGENTHOST_METRICS_PORT": str(metrics)})
    answers(worker, metrics, "/healthz")
    answers(worker, metrics, "/metrics")
    answers(web, port, "/readyz")
    manage = [f"{APP}/.venv/bin/python", "manage.py"]
    printed = ""
    for command in (["create_tenant", "acme"], ["create_key", "acme", "--name", "backend"]):
        done = machine.start("agenthost-web@8001.service", *manage, *command, **here)
        assert done.wait(PATIENCE) == 0, done.log.read_text()
        printed = done.log.read_text()
    client = Client(f"http://127.0.0.1:{port}", printed.split()[-1])
    try:
        with client.stream(client.create("demo"), "Hello!") as stream:
            stream.until("text_delta")
            web.terminate()
            worker.terminate()
            assert stream.rest()[-1].data["stopReason"] == "end_turn"
    finally:
        client.close()
    for container in (web, worker):
        assert container.wait(PATIENCE) == 0, container.log.read_text()


@pytest.mark.sandbox
def test_the_terminal_service_makes_sandboxes_under_the_system_calls_of_its_unit(machine: Machine, tmp_path: Path) -> None:
    """Not in a container, in which no sandbox could be made; so without the unit's user and read-only folders."""
    unit = systemd_units.read("agenthost-terminals.service")
    assert machine.start("agenthost-migrate.service").wait(PATIENCE) == 0
    workspaces = tmp_path / "workspaces"
    workspaces.mkdir()
    files = {key: str(machine.secrets.directory / Path(value).name) for key, value in unit.environment.items() if "_FILE" in key}
    shared = {**clean_environment.inherited(), **files, "AGENTHOST_WORKSPACES_DIR": str(workspaces), "AGENTHOST_TERMINALS": "on"}
    here = {
        **shared,
        "AGENTHOST_VAR_DIR": str(tmp_path),
        "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1",
        "AGENTHOST_PORT": str(free_port()),
    }
    entrypoint = str(ROOT / "ops" / "entrypoint")
    with contextlib.ExitStack() as stack, (tmp_path / "log").open("ab") as log:

        def start(role: str, limits: Callable[[], None] | None) -> None:
            process = subprocess.Popen([entrypoint, role], env=here, stdout=log, stderr=log, preexec_fn=limits)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)

        def terminals() -> object:
            with contextlib.suppress(httpx.TransportError):
                found = httpx.get(f"http://127.0.0.1:{here['AGENTHOST_PORT']}/readyz", trust_env=False, timeout=30)
                return found.json().get("terminals")
            return None

        # A web's first answer makes the volume this database's own.
        start("web", None)
        until = time.monotonic() + PATIENCE
        while terminals() is None:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.1)
        start("terminals", partial(try_container.confine, system_call_filter(unit)))
        while terminals() != "on":
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.1)


MOUNT = """
import ctypes, os
ctypes.CDLL(None, use_errno=True).mount(0, 0, 0, 0, 0)
raise OSError(ctypes.get_errno(), "mount")
"""


@pytest.mark.parametrize(
    ("attempt", "refused"),
    [
        ("import mmap; mmap.mmap(-1, 4096, prot=7)", "PermissionError"),
        ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "Address family not supported"),
        (MOUNT, "PermissionError: [Errno 1] mount"),
        ("open('/opt/agenthost/agenthost/new', 'w')", "OSError: [Errno 30] Read-only file system"),
    ],
    ids=["executable memory", "netlink", "mount", "write to the code"],
)
def test_the_limits_are_in_force(machine: Machine, attempt: str, refused: str) -> None:
    """Otherwise the test above would prove nothing."""
    done = machine.start("agenthost-web@8000.service", f"{APP}/.venv/bin/python", "-c", attempt)
    assert done.wait(PATIENCE) == 1
    assert refused in done.log.read_text()
