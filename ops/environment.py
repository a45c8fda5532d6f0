"""The virtual environment: made when missing, brought to the lock when the lock changed.

Runs before anything is installed, so it knows the standard library alone. It is called by `ops/bootstrap`, which finds the
interpreter. Of callers at the same time one works and the others wait for it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
PYTHON = HOME / "bin" / "python"
# Written last: an installation that was cut off has no stamp, and is done again.
STAMP = HOME / "installed-lock"
# The Python below the one that runs this, which may be .venv's own (an activated environment).
BASE_PYTHON: str = getattr(sys, "_base_executable", sys.executable)
RUNTIME, DEV = "requirements.lock", "requirements-dev.lock"


class InstallationError(Exception):
    """The environment could not be made; the text says what to do."""


def say(text: str) -> None:
    print(f"ops/bootstrap: {text}", file=sys.stderr, flush=True)


@contextmanager
def alone() -> Iterator[None]:
    path = ROOT / "var" / "bootstrap.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing; waiting for it …")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(lock: str) -> str:
    return f"{lock} {hashlib.sha256((ROOT / lock).read_bytes()).hexdigest()}"


def stamp() -> str:
    try:
        return STAMP.read_text().strip()
    except FileNotFoundError:
        return ""


def satisfied(dev: bool) -> bool:
    # The dev lock holds everything the runtime lock holds, in the same versions (ops/lock sees to it).
    return works() and stamp() in ({digest(DEV)} if dev else {digest(DEV), digest(RUNTIME)})


def works() -> bool:
    """The environment's interpreter starts: it does not after its base Python was upgraded away, or the folder was moved."""
    if not PYTHON.exists():
        return False
    probe = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([PYTHON, "-I", "-c", probe], check=False, capture_output=True).returncode == 0


def make() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(f"making .venv with Python {version} …")
    if HOME.is_symlink() or not can_make():
        raise InstallationError(f"{HOME} is a symbolic link; remove it first" if HOME.is_symlink() else no_venv(version))
    shutil.rmtree(HOME, ignore_errors=True)
    made = subprocess.run([BASE_PYTHON, "-I", "-m", "venv", HOME], check=False, capture_output=True, text=True)
    if made.returncode:
        raise InstallationError(f"python -m venv failed: {(made.stdout + made.stderr).strip()[-800:]}")


def has_ensurepip() -> bool:
    command = [BASE_PYTHON, "-I", "-c", "import ensurepip, venv"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def can_make() -> bool:
    if has_ensurepip():
        return True
    # Debian splits venv off its Python. As root we may put it back; anyone else is told how.
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    say(f"installing Debian's {package} …")
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", package]):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=quiet)
        if done.returncode:
            raise InstallationError(f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}")
    return has_ensurepip()


def no_venv(version: str) -> str:
    return f"this Python has no venv; install it (Debian, Ubuntu: apt-get install python{version}-venv) and run this again"


def install(lock: str) -> None:
    say(f"installing {lock} (the first time this takes a minute) …")
    # -I: what stands on the caller's PYTHONPATH must not count as installed.
    command = [str(PYTHON), "-I", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run([*command, "--require-hashes", "-r", str(ROOT / lock)], check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise InstallationError(f"pip could not install {lock}; see above. Run this again when the cause is gone")
    STAMP.write_text(digest(lock) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="ops/bootstrap", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dev", action="store_true", help="also what tests and checks need")
    dev: bool = parser.parse_args().dev
    try:
        if satisfied(dev):
            return 0
        with alone():
            if satisfied(dev):
                return 0
            if not works():
                make()
            # A folder that once had the dev packages keeps them current, or a check would run with yesterday's.
            install(DEV if dev or stamp().startswith(DEV) else RUNTIME)
    except InstallationError as error:
        say(f"{error}.")
        return 1
    except OSError as error:
        advice = "run this as the owner of the checkout, or copy the checkout to a directory of yours"
        say(f"{error.filename}: {error.strerror}; {advice}.")
        return 1
    say("ready.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
