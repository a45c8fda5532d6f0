"""Dumps and restores of Postgres with its own programs. Passwords are in their environment, never in their arguments."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.db import connection
from psycopg.conninfo import make_conninfo

from agenthost.backups import programs
from agenthost.backups.errors import BackupError
from agenthost.backups.streams import CHUNK, Part, Progress, chunks, new_file
from sessions_app.core.base.own_connection import connection_parameters

FILE = "database.dump"
_ENDS_SECONDS = 60.0
_NEWER_SETTING = b"SET transaction_timeout = 0;\n"
"""Written by pg_restore 17 and newer, unknown to older servers."""


def server_version() -> int:
    """The server's major version."""
    connection.ensure_connection()
    return int(connection.connection.info.server_version) // 10000


def program_arguments(extra: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The address for the programs' ``--dbname``, and their environment."""
    parameters: dict[str, Any] = connection_parameters()
    password = parameters.pop("password", None)
    # Timeouts of requests are not for a dump.
    parameters["options"] = "-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
    parameters["application_name"] = "agenthost backup"
    allowed = {name: str(value) for name, value in parameters.items() if value is not None and isinstance(value, str | int)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    # Only the programs' own messages are shown, in English.
    environment |= {"LC_ALL": "C", **({"PGPASSWORD": str(password)} if password else {}), **(extra or {})}
    return make_conninfo(**allowed), environment


def dump(folder: Path, snapshot: str, progress: Progress) -> tuple[Part, int]:
    """Write the database as of this exported snapshot; the file, and the version of the program that wrote it."""
    place, version = programs.folder(server=server_version())
    address, environment = program_arguments()
    arguments = [
        *("--format=custom", "--compress=1", "--no-owner", "--no-privileges", "--no-comments", "--no-publications"),
        *(
            "--no-subscriptions",
            "--no-security-labels",
            "--no-unlogged-table-data",
            f"--snapshot={snapshot}",
            f"--dbname={address}",
        ),
    ]
    with _program([place / "pg_dump", *arguments], environment, stdout=subprocess.PIPE) as (running, errors):
        assert running.stdout is not None
        with new_file(folder, FILE, progress) as file:
            for data in chunks(running.stdout):
                file.write(data)
            _require_success("pg_dump", running, errors)
            return file.close(), version


def restore(dumped: Path, dumped_with: int, afterwards: str, progress: Progress) -> None:
    """Load a dump and run the statement ``afterwards``, in one transaction: all of it is stored, or nothing.

    psql commits by an explicit COMMIT at the end of its input, so an input that ends early changes nothing.
    """
    server = server_version()
    place, _ = programs.folder(server=server, dumped_with=dumped_with)
    address, environment = program_arguments()
    reading: list[str | Path] = [place / "pg_restore", "--no-owner", "--no-privileges", "--no-comments", "--file=-", dumped]
    writing: list[str | Path] = [
        place / "psql",
        "--no-psqlrc",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--output=/dev/null",
        "--file=-",
        f"--dbname={address}",
    ]
    with (
        _program(reading, environment, stdout=subprocess.PIPE) as (source, source_errors),
        _program(writing, environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as (target, target_errors),
    ):
        assert source.stdout is not None
        assert target.stdin is not None
        try:
            target.stdin.write(b"BEGIN;\n")
            first = source.stdout.read(CHUNK)
            target.stdin.write(first.replace(_NEWER_SETTING, b"") if server < 17 else first)
            for data in chunks(source.stdout):
                target.stdin.write(data)
                progress.add(len(data))
            _require_success("pg_restore", source, source_errors)
            target.stdin.write(f"\n{afterwards};\nCOMMIT;\n".encode())
            target.stdin.close()
        except BrokenPipeError:
            target.wait(_ENDS_SECONDS)
        _require_success("psql", target, target_errors)


@contextmanager
def _program(
    arguments: Sequence[str | Path], environment: Mapping[str, str], **streams: Any
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A program that does not outlive the block."""
    with tempfile.TemporaryFile() as errors:
        running = subprocess.Popen(  # noqa: S603 - a list, without a shell
            [str(each) for each in arguments], env=dict(environment), stderr=errors, **{"stdin": subprocess.DEVNULL, **streams}
        )
        try:
            yield running, errors
        finally:
            if running.poll() is None:
                running.kill()
            running.wait(_ENDS_SECONDS)
            for stream in (running.stdin, running.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        continue


def _require_success(name: str, running: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    if code := running.wait(_ENDS_SECONDS):
        errors.seek(0)
        lines = errors.read(64 * 1024).decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if "error" in line.lower() or "fatal" in line.lower()), lines[0] if lines else "")
        raise BackupError(f"{name} failed with exit code {code}: {reason[:500]}")
