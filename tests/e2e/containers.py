"""Processes that see what a container of ours would: its folders, a read-only root, and pid 1 of user 10001.

bubblewrap makes the container. The checkout is at /app, as in the image, or at another place; the system's own folders are those
of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg

from ops.check_kubernetes import USER
from ops.services import Postgres, Redis
from tests.e2e import server as servers
from tests.paths import ROOT

BWRAP = shutil.which("bwrap")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/root", "/home", "/srv", "/mnt")


def works() -> bool:
    """Whether this machine lets us make such containers."""
    if BWRAP is None:
        return False
    command = [BWRAP, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@dataclass
class Container:
    """A running container."""

    bwrap: subprocess.Popen[bytes]
    pid: int
    """Its first process, as this machine numbers it."""
    log: Path
    status: IO[str]
    """What bubblewrap reports; it must be able to write until its end."""

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        code = self.bwrap.wait(timeout)
        self.status.close()
        return code

    def kill(self) -> None:
        if self.bwrap.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.wait(30)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    mounts: Mapping[str, Path],
    log: Path,
    *,
    writable: Sequence[str] = (),
    app: str = "/app",
    seccomp: bytes | None = None,
) -> Container:
    """Start ``command`` in a container. ``mounts``: folders of this machine by their place, read-only but for ``writable``.

    ``app``: the place of the checkout, and the working directory. ``seccomp``: the filter of system calls.
    """
    assert BWRAP is not None
    options = ["--unshare-user", "--uid", str(USER), "--gid", str(USER), "--unshare-pid", "--as-pid-1", "--unshare-ipc"]
    options += ["--cap-drop", "ALL", "--die-with-parent", "--tmpfs", "/", "--dir", "/tmp"]
    for path in _SYSTEM:
        if Path(path).is_symlink():
            options += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            options += ["--ro-bind", path, path]
    # Entry by entry, so that there is place for what is mounted in these folders.
    for folder, place in ((Path("/etc"), "/etc"), (Path("/opt"), "/opt"), (ROOT, app)):
        for entry in sorted(folder.iterdir()):
            if str(Path(place, entry.name)) not in {*mounts, app}:
                options += ["--ro-bind-try", str(entry), f"{place}/{entry.name}"]
    for place, source in mounts.items():
        options += ["--bind" if place in writable else "--ro-bind", str(source), place]
    options += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", app, "--clearenv"]
    for name, value in {"PATH": "/usr/local/bin:/usr/bin:/bin", **environment}.items():
        options += ["--setenv", name, value]
    readable, writing = os.pipe()
    given = [writing]
    if seccomp is not None:
        filter_, end = os.pipe()
        os.write(end, seccomp)
        os.close(end)
        given.append(filter_)
        options += ["--seccomp", str(filter_)]
    with log.open("ab") as output:
        started = subprocess.Popen(
            [BWRAP, "--json-status-fd", str(writing), *options, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=given,
        )
    for descriptor in given:
        os.close(descriptor)
    status = os.fdopen(readable)
    first = status.readline()
    assert first, log.read_text()
    return Container(started, json.loads(first)["child-pid"], log, status)


@dataclass
class Secrets:
    """The values that an operator gives, in files of their names, and beside them the URL of the role that owns the tables."""

    directory: Path
    owner: Path


@contextlib.contextmanager
def services(directory: Path) -> Iterator[Secrets]:
    """A Postgres with the two roles of docs/production.md, a Redis, and the secrets for them."""
    with contextlib.ExitStack() as stack:
        postgres, redis = Postgres(directory), Redis(directory)
        for server in (postgres, redis):
            stack.callback(server.stop)
            server.start()
        url = stack.enter_context(servers.own_database(postgres.url()))
        with psycopg.connect(postgres.url(), autocommit=True) as administrator:
            for role in ("agenthost", "agenthost_run"):
                administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{servers.ROLE_PASSWORD}'".encode())
            administrator.execute(f'ALTER DATABASE "{url.rpartition("/")[2]}" OWNER TO agenthost'.encode())
        made = {name.removeprefix("AGENTHOST_").lower(): value for name, value in servers.installation_secrets().items()}
        values = {"database_url": servers.as_role(url, "agenthost_run"), "redis_url": redis.url(), **made}
        found = Secrets(directory / "secrets", directory / "owner")
        for folder, contents in ((found.directory, values), (found.owner, {"database_url": servers.as_role(url, "agenthost")})):
            folder.mkdir()
            for name, value in contents.items():
                (folder / name).write_text(value + "\n")
        yield found
