"""The code of the previous release, for tests that run it beside the present one."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.paths import ROOT

NAMED_IN = ROOT / "sessions_app" / "migrations" / "previous_release.txt"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def name() -> str:
    """The tag or commit."""
    (line,) = [line.strip() for line in NAMED_IN.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return line


def git(*arguments: str) -> bytes | None:
    """What git prints; None without git, or where the commit is missing."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run([program, "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def checkout(directory: Path) -> Path:
    """Its files in a new directory, with packages that fit; skips the test where there are none."""
    # Not a worktree of git: it would stay in the repository's list if the tests are killed.
    packed = git("archive", "--format=tar", name())
    if packed is None:
        pytest.skip(f"the previous release, {name()}, is not in this checkout's history (a shallow clone, or no git)")
    directory.mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    if differing := _differing_packages(directory):
        done = subprocess.run([str(directory / "ops" / "bootstrap"), "--dev"], cwd=directory, capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"the previous release needs other packages than this one ({differing}), and they cannot be installed")
    return directory


def python_of(directory: Path) -> str:
    own = directory / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _differing_packages(directory: Path) -> str:
    """Packages of its lock that this checkout does not have in the same version."""
    theirs, ours = (dict(_PIN.findall((root / "requirements.lock").read_text())) for root in (directory, ROOT))
    return ", ".join(sorted(package for package, version in theirs.items() if ours.get(package) != version)[:5])
