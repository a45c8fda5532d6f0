"""Finds Postgres' own programs: pg_dump, pg_restore and psql that fit the server."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agenthost.backups.errors import BackupError

_NEEDED = ("pg_dump", "pg_restore", "psql")


def folder(*, server: int, dumped_with: int = 0) -> tuple[Path, int]:
    """The directory of programs for this server, and their major version.

    ``server``: its major version. pg_dump refuses newer servers, and pg_restore files of newer programs (``dumped_with``), so the
    programs must be at least as new; of several, those nearest to the server are taken.
    """
    least = max(server, dumped_with)
    found = {version: place for place in _places() if (version := _version(place)) is not None}
    if fitting := sorted(version for version in found if version >= least):
        return found[fitting[0]], fitting[0]
    if not found:
        problem = f"{', '.join(_NEEDED)} were not found on PATH"
    else:
        have = ", ".join(f"{version} in {place}" for version, place in sorted(found.items()))
        problem = f"the programs of Postgres are too old: {have}; at least version {least} is needed"
    raise BackupError(
        f"{problem}. Install the client of Postgres {least} (Debian, Ubuntu: apt-get install postgresql-client-{least}; Alpine:"
        f" apk add postgresql{least}-client), and put its directory on PATH."
    )


def _places() -> Iterator[Path]:
    on_path = shutil.which(_NEEDED[0])
    if on_path is not None:
        yield Path(on_path).parent
    for name in os.environ.get("PATH", "").split(os.pathsep):
        if name and (Path(name) / _NEEDED[0]).is_file():
            yield Path(name)
    # Where Debian, Red Hat and Homebrew keep each version.
    for pattern in (
        "usr/lib/postgresql/*/bin",
        "usr/pgsql-*/bin",
        "opt/homebrew/opt/postgresql@*/bin",
        "usr/local/opt/postgresql@*/bin",
    ):
        yield from Path("/").glob(pattern)


@functools.lru_cache(maxsize=64)
def _version(place: Path) -> int | None:
    """The lowest major version of the three programs; None if one is missing or does not run."""
    versions = []
    for name in _NEEDED:
        try:
            shown = subprocess.run(  # noqa: S603 - fixed arguments, without a shell
                [place / name, "--version"], capture_output=True, text=True, timeout=30, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r"(\d+)(?:\.\d+)*", shown)
        if found is None:
            return None
        versions.append(int(found[1]))
    return min(versions)
