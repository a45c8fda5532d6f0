"""Simulates a disk that takes 3 ms per fsync: a small library that is built here and preloaded into Postgres."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psycopg

from ops import services

MILLISECONDS = 3
_TRIES = 20
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static int slowly(const char *name, int file) {
    struct timespec pause = {0, %d * 1000000L};
    int (*real)(int) = (int (*)(int)) dlsym(RTLD_NEXT, name);
    nanosleep(&pause, 0);
    return real(file);
}
int fsync(int file) { return slowly("fsync", file); }
int fdatasync(int file) { return slowly("fdatasync", file); }
"""


class NoSlowDiskError(Exception):
    """A slow disk cannot be simulated here. The text says why."""


@contextmanager
def postgres(home: Path) -> Iterator[services.Postgres]:
    """Run a Postgres on such a disk."""
    library = _built(home)
    server = services.Postgres(home, crash_safe=True)
    before = os.environ.get("LD_PRELOAD")
    # The server and its children inherit it; no other process is started meanwhile.
    os.environ["LD_PRELOAD"] = str(library)
    try:
        server.start()
    finally:
        if before is None:
            del os.environ["LD_PRELOAD"]
        else:
            os.environ["LD_PRELOAD"] = before
    try:
        took = _commit_seconds(server) * 1000
        if took < MILLISECONDS:
            raise NoSlowDiskError(f"a commit took only {took:.1f} ms")
        yield server
    finally:
        server.stop()


def _built(home: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoSlowDiskError("there is no C compiler")
    library = home / "slow_disk.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    done = subprocess.run(command, input=_SOURCE % MILLISECONDS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSlowDiskError(f"building the library failed: {done.stderr.strip()[-300:]}")
    # Postgres runs under another account.
    library.chmod(0o755)
    return library


def _commit_seconds(server: services.Postgres) -> float:
    took = []
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("create table slow_disk_try (n int)")
        for number in range(_TRIES):
            began = time.monotonic()
            connection.execute("insert into slow_disk_try values (%s)", (number,))
            took.append(time.monotonic() - began)
        connection.execute("drop table slow_disk_try")
    return median(took)
