"""Compiles the tests before several processes load them at once, each of which would compile all of them.

The first run in a checkout also compiles the libraries. Both take half a minute of CPU in each process that does it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Two processes for two cores; each half takes about as long as the other.
HALVES = (
    ("tests/pure", "tests/network", "tests/ops", "tests/requirements", "tests/workspace"),
    ("tests/core", "tests/faces", "tests/e2e", "tests/faults", "tests/wiring"),
)
FEW = 40
"""So many modules are compiled faster by the run itself."""
_TAG = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}"


@contextmanager
def made(environment: Mapping[str, str], tests: Path = ROOT / "tests") -> Iterator[None]:
    """At the end of the block the tests are compiled. Errors are left to the run, which shows them."""
    started = []
    if number_stale(tests) > FEW:
        for folders in HALVES:
            command = [sys.executable, "-m", "pytest", "--collect-only", "-qqq", *folders]
            quiet = subprocess.DEVNULL
            started.append(subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdin=quiet, stdout=quiet, stderr=quiet))
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
        raise
    finally:
        for process in started:
            process.wait()


def number_stale(tests: Path) -> int:
    """How many modules of tests have no compiled form, or one of another text."""
    return sum(is_stale(path) for path in tests.rglob("test_*.py"))


def is_stale(path: Path) -> bool:
    """By the hash of the source in pytest's file, whose form is that of a module's (PEP 552)."""
    try:
        with compiled_form(path).open("rb") as file:
            return file.read(16)[8:] != importlib.util.source_hash(path.read_bytes())
    except FileNotFoundError:
        return True


def compiled_form(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}.{_TAG}.pyc"
