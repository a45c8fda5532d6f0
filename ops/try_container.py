"""Runs every role as the image and compose.yaml would, without a container engine.

A temporary folder gets the files that the Dockerfile copies and an environment from the lock. The roles run there with their
own Postgres (with the two roles of compose.yaml) and Redis, and with secrets as files; as another user if this is root. Each
must become ready, and end on SIGTERM. The terminal service runs without privileges to gain and under the system call filter of
compose.yaml, and must be able to make sandboxes. Not covered: the base image, its Python, and the engine's other settings.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import platform
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from ops import check_container, services
from sessions_app.workspace import seccomp

ROOT = check_container.ROOT
# The user id in the Dockerfile; it owns only the data folder.
IMAGE_USER = 10001


def say(text: str) -> None:
    print(f"try_container: {text}", flush=True)


def megabytes(directory: Path) -> float:
    return sum(path.lstat().st_size for path in directory.rglob("*")) / 1e6


class Image:
    """The image's folder, and the roles that are started from it."""

    def __init__(self, home: Path, variables: dict[str, str]) -> None:
        self.app = home / "app"
        self.data = home / "data"
        self.files = home / "workspaces"
        self.variables = {**check_container.environment_without_settings(), **variables, "AGENTHOST_VAR_DIR": str(self.data)}

    def build(self) -> None:
        self.app.mkdir()
        self.data.mkdir(mode=0o700)
        self.files.mkdir(mode=0o700)
        check_container.lay_out((ROOT / "Dockerfile").read_text(), self.app)
        # What the build's first stage copies and runs.
        for name in ("requirements.lock", "ops/environment.py", "ops/sbom.py"):
            shutil.copy2(ROOT / name, self.app / name)
        subprocess.run([sys.executable, "-I", self.app / "ops" / "environment.py", "--with", ""], check=True)
        say("installed requirements.lock")
        environment = self.app / ".venv" / "bin" / "python"
        subprocess.run([environment, "-m", "ops.sbom", "--with", "", "--output", "sbom.json"], cwd=self.app, check=True)
        packages = len(json.loads((self.app / "sbom.json").read_text())["components"])
        say(f"wrote sbom.json, {packages} packages; {megabytes(self.app / '.venv'):.0f} MB of packages")
        if os.geteuid() == 0:
            for directory in (self.data, self.files):
                shutil.chown(directory, IMAGE_USER, IMAGE_USER)

    def start(self, role: str, **extra: str) -> subprocess.Popen[bytes]:
        # If other users cannot read this Python (it is in root's home), the roles run as root, with a message.
        other = IMAGE_USER if os.geteuid() == 0 and services.open_to_all(Path(sys.base_prefix)) else None
        if other is None and os.geteuid() == 0:
            say(f"{role} runs as root: other users cannot read this Python")
        return subprocess.Popen(
            [self.app / "ops" / "entrypoint", *role.split()],
            preexec_fn=partial(confine, compose_filter()) if role == "terminals" else None,  # noqa: PLW1509 - no threads here
            env={**self.variables, **extra},
            cwd=self.app,
            stdin=subprocess.DEVNULL,
            user=other,
            group=other,
            extra_groups=None if other is None else [],
        )


def compose_filter() -> bytes:
    """The system call filter of compose.yaml's terminal service, as the engine would load it."""
    options = yaml.safe_load((ROOT / "ops" / "compose.yaml").read_text())["services"]["terminals"]["security_opt"]
    profile = next(found for one in options if one.startswith("seccomp:") and (found := check_container.seccomp_profile(one)))
    machine = seccomp.MACHINES[platform.machine()]
    numbers = {
        name: pair[machine.column]
        for table in (seccomp.PERMISSION_DENIED, seccomp.NOT_IMPLEMENTED)
        for name, pair in table.items()
    }
    steps: list[seccomp.Step | seccomp.Label] = [seccomp.Step(seccomp.LD_W_ABS, seccomp.NUMBER)]
    for rule in profile["syscalls"]:
        for name in rule["names"]:
            if (number := numbers[name]) is not None:
                steps += [
                    seccomp.Step(seccomp.JEQ, number, no=f"after {name}"),
                    seccomp.Step(seccomp.RET, seccomp.RET_ERRNO | rule["errnoRet"]),
                    seccomp.Label(f"after {name}"),
                ]
    return seccomp.assemble([*steps, seccomp.Step(seccomp.RET, seccomp.RET_ALLOW)])


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_char_p))


_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2


def confine(filter_: bytes) -> None:
    """As the container: no privilege can be gained, and the filter. Called in the child, after it has changed its user."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(filter_) // 8, filter_)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was refused")


def wait_ready(port: int, terminals: str | None = None) -> None:
    """Wait until the server answers /readyz, and reports this of its terminals."""
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                found = json.load(answer)
            if terminals is None or found["terminals"] == terminals:
                return
            problem = f"terminals: {found['terminals']}"
        except (OSError, urllib.error.URLError) as error:
            problem = str(error)
        if time.monotonic() > until:
            raise SystemExit(f"try_container: not ready: {problem}")
        time.sleep(0.1)


def end(role: str, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    if code:
        raise SystemExit(f"try_container: {role} ended with {code} on SIGTERM")
    say(f"{role} ended on SIGTERM")


def two_roles(home: Path, postgres: services.Postgres) -> tuple[str, str]:
    """Make the Postgres roles as compose.yaml does; returns the URLs of the owner and of the role that runs."""
    passwords = {name: secrets.token_urlsafe(18) for name in ("owner", "run")}
    for name, password in passwords.items():
        (home / f"postgres_{name}_password").write_text(password + "\n")
    given = urlsplit(postgres.url())
    environment = {
        "PATH": f"{services.postgres_programs()}{os.pathsep}{os.environ['PATH']}",
        "SECRETS": str(home),
        "POSTGRES_USER": given.username or "",
        "PGHOST": given.hostname or "",
        "PGPORT": str(given.port),
        "PGPASSWORD": given.password or "",
    }
    create = ["psql", "--quiet", "--username", environment["POSTGRES_USER"], "--command", "create database agenthost"]
    subprocess.run([*create, "postgres"], env=environment, check=True)
    subprocess.run(["sh", ROOT / "ops" / "compose-roles.sh"], env=environment, check=True)
    say("made the two Postgres roles")
    place = f"{given.hostname}:{given.port}/agenthost"
    owner, runner = passwords["owner"], passwords["run"]
    return f"postgres://agenthost:{owner}@{place}", f"postgres://agenthost_run:{runner}@{place}"


def main() -> int:
    with ExitStack() as stack:
        home = stack.enter_context(services.folder())
        postgres, redis = services.Postgres(home), services.Redis(home)
        stack.callback(postgres.stop)
        postgres.start()
        stack.callback(redis.stop)
        redis.start()
        owner, runner = two_roles(home, postgres)
        values = {
            "DATABASE_URL": runner,
            "OWNER_URL": owner,
            "AGENTHOST_SECRET_KEY": secrets.token_urlsafe(48),
            "AGENTHOST_KEY_RING": base64.b64encode(secrets.token_bytes(32)).decode(),
        }
        variables = {
            "REDIS_URL": redis.url(),
            "AGENTHOST_ALLOWED_HOSTS": "127.0.0.1",
            "AGENTHOST_WORKSPACES_DIR": str(home / "workspaces"),
            "AGENTHOST_TERMINALS": "on",
        }
        for name, value in values.items():
            path = home / name.lower()
            path.write_text(value + "\n")
            path.chmod(0o444)
            if name != "OWNER_URL":
                variables[f"{name}_FILE"] = str(path)
        image = Image(home, variables)
        image.build()
        as_owner = {"DATABASE_URL_FILE": str(home / "owner_url"), "AGENTHOST_RUNTIME_ROLE": "agenthost_run"}
        if image.start("migrate", **as_owner).wait(600):
            raise SystemExit("try_container: migrate failed")
        say("migrated")
        port = services.free_port()
        running = {role: image.start(role, AGENTHOST_PORT=str(port)) for role in ("web", "worker", "terminals", "beat")}
        for process in running.values():
            stack.callback(process.kill)
        wait_ready(port, terminals="on")
        say("web answers /readyz, and the terminal service makes sandboxes")
        if image.start("healthy terminals").wait(30):
            raise SystemExit("try_container: the terminal service is not healthy")
        say("the terminal service is healthy")
        for role, process in running.items():
            end(role, process)
        clustered = {"DATABASE_URL_FILE", "REDIS_URL", "AGENTHOST_WORKSPACES_DIR"}
        image.variables = {name: value for name, value in image.variables.items() if name not in clustered}
        embedded = image.start("embedded", AGENTHOST_PORT=str(port))
        stack.callback(embedded.kill)
        wait_ready(port)
        say("embedded answers /readyz")
        end("embedded", embedded)
    print("try_container: every role ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
