"""Makes the virtual environment .venv and installs the locked packages in it.

Runs before anything is installed, so it uses the standard library only. `ops/bootstrap` finds the interpreter and calls it,
and so does the image's build. Safe to run several times at once: one process installs, the others wait for it.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import hashlib
import json
import operator
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv"
PYTHON = HOME / "bin" / "python"
LOCK = ROOT / "requirements.lock"
# Written last: an installation that was cut off is completed by the next run.
STAMP = HOME / "installed.json"
# The Python that .venv is based on; the one that runs this may be .venv's own (an activated environment).
BASE_PYTHON: str = getattr(sys, "_base_executable", sys.executable)

SERVER, DEV, DOCS, ALL = "server", "dev", "docs", "all"
"""Names of package sets: what every installation has, everything but docs, what makes the site of the documentation, every extra.
Each extra is a set too."""
MOST_PROCESSES = 4
LINE_EVERY_SECONDS = 4.0
"""Progress is one line that is rewritten on a terminal, and a new line this often elsewhere."""
_REWRITE_SECONDS = 0.2
_OUTPUT_LINES = 25


class InstallationError(Exception):
    """The environment cannot be made. The text says what to do."""


def say(text: str) -> None:
    print(f"ops/bootstrap: {text}", file=sys.stderr, flush=True)


# --- the lock ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pin:
    """One package of the lock, in one version."""

    name: str
    version: str
    marker: str
    sets: frozenset[str]
    """The package sets that need it."""
    via: tuple[str, ...]
    """The packages that need it, or pyproject.toml."""
    hashes: tuple[str, ...]

    def requirement(self) -> str:
        """As pip reads it."""
        marker = f" ; {self.marker}" if self.marker else ""
        return " \\\n".join((f"{self.name}=={self.version}{marker}", *(f"    --hash={each}" for each in self.hashes))) + "\n"


_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ; (.+?))? \\$")
_HASH = re.compile(r"^    --hash=(sha256:[0-9a-f]+)(?: \\)?$")
_SETS = re.compile(r"^    # for ([a-z0-9-]+(?:, [a-z0-9-]+)*)$")
_VIA = re.compile(r"^    # via (.+)$")


def read_lock(text: str) -> list[Pin]:
    """The pins of a lock as `ops/lock` writes it. Raises ValueError for a line or package that is not of that form."""
    found: list[Pin] = []
    lines = text.splitlines()
    while lines:
        start = lines.pop(0)
        pinned = _PINNED.match(start)
        if pinned is None:
            raise ValueError(f"not a pinned requirement: {start.strip()[:80]}")
        hashes = []
        while lines and (matched := _HASH.match(lines[0])):
            hashes.append(matched[1])
            lines.pop(0)
        if not hashes:
            raise ValueError(f"{pinned[1]} has no hash")
        sets = _SETS.match(lines.pop(0)) if lines else None
        if sets is None:
            raise ValueError(f"{pinned[1]} has no line that names its sets (# for {SERVER})")
        via = _VIA.match(lines.pop(0)) if lines else None
        if via is None:
            raise ValueError(f"{pinned[1]} has no line that names the packages which need it (# via django)")
        sets_of, via_of = frozenset(sets[1].split(", ")), tuple(via[1].split(", "))
        found.append(Pin(pinned[1], pinned[2], pinned[3] or "", sets_of, via_of, tuple(hashes)))
    return found


def extras(pins: Sequence[Pin]) -> list[str]:
    return sorted(frozenset().union(*(pin.sets for pin in pins)) - {SERVER, DEV, DOCS})


def chosen(pins: Sequence[Pin], sets: Collection[str]) -> list[Pin]:
    """The pins of these sets. The set dev is everything but what only docs needs."""
    return [pin for pin in pins if not pin.sets.isdisjoint(sets) or (DEV in sets and pin.sets != {DOCS})]


def digest(pins: Sequence[Pin]) -> str:
    return hashlib.sha256("".join(pin.requirement() for pin in pins).encode()).hexdigest()


# --- markers -----------------------------------------------------------------------------------------

_COMPARISONS: Mapping[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def platform_values(python_version: str) -> dict[str, str]:
    """The values that markers compare with, for this machine and a CPython of this version."""
    return {
        "implementation_name": "cpython",
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": "CPython",
        "platform_system": platform.system(),
        "python_full_version": python_version,
        "python_version": ".".join(python_version.split(".")[:2]),
        "sys_platform": sys.platform,
    }


def applies(marker: str, values: Mapping[str, str]) -> bool:
    """Whether a marker holds. Raises ValueError for what the markers of locks do not need, such as `in`."""
    return not marker or _holds(ast.parse(marker, mode="eval").body, marker, values)


def _holds(node: ast.expr, marker: str, values: Mapping[str, str]) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_holds(part, marker, values) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_holds(part, marker, values) for part in parts)
        case ast.Compare(left=ast.Name(id=name), ops=[comparison], comparators=[ast.Constant(value=str(text))]) if name in values:
            if type(comparison) in _COMPARISONS:
                compare = _COMPARISONS[type(comparison)]
                if name.startswith("python_"):
                    return bool(compare(_numbers(values[name]), _numbers(text)))
                if isinstance(comparison, ast.Eq | ast.NotEq):
                    return bool(compare(values[name], text))
    raise ValueError(f"a marker that ops/environment.py does not understand: {marker}")


def _numbers(version: str) -> tuple[int, ...]:
    """A Python version to compare with: 3.13.0rc1 counts as 3.13.0, and 3.13 as well."""
    numbers = [int(match[0]) if (match := re.match(r"\d+", part)) else 0 for part in version.split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))


# --- the environment ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """A .venv that works."""

    packages: Path
    python_version: str

    def installed(self) -> dict[str, set[str]]:
        """Name to versions of all packages that are completely installed: pip writes RECORD last."""
        found: dict[str, set[str]] = {}
        for record in self.packages.glob("*.dist-info/RECORD"):
            name, _, version = record.parent.name.removesuffix(".dist-info").rpartition("-")
            found.setdefault(_same_name(name), set()).add(_same_version(version))
        return found


def _same_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _same_version(version: str) -> str:
    return re.sub(r"(?<![0-9A-Za-z])0+(?=\d)", "", version)


def find() -> Environment | None:
    """.venv; None if it is missing, its base Python is gone, or the folder was moved."""
    if not PYTHON.exists():
        return None
    probe = "import json, pip, platform, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), platform.python_version()]))"
    done = subprocess.run([PYTHON, "-I", "-c", probe], check=False, capture_output=True, text=True)
    if done.returncode:
        return None
    packages, version = json.loads(done.stdout)
    return Environment(Path(packages), version) if _numbers(version) >= (3, 11) else None


def stamp() -> tuple[frozenset[str], str]:
    """The sets that are installed, and the digest of their pins."""
    try:
        found = json.loads(STAMP.read_text())
        return frozenset(found["sets"]), str(found["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return frozenset(), ""


def make() -> Environment:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(f"making .venv with Python {version}")
    if HOME.is_symlink() or not can_make():
        raise InstallationError(f"{HOME} is a symbolic link; remove it first" if HOME.is_symlink() else no_venv(version))
    shutil.rmtree(HOME, ignore_errors=True)
    made = subprocess.run([BASE_PYTHON, "-I", "-m", "venv", HOME], check=False, capture_output=True, text=True)
    if made.returncode:
        raise InstallationError(f"python -m venv failed: {(made.stdout + made.stderr).strip()[-800:]}")
    found = find()
    if found is None:
        raise InstallationError(f"python -m venv made an environment without a working pip in {HOME}")
    return found


def has_ensurepip() -> bool:
    command = [BASE_PYTHON, "-I", "-c", "import ensurepip, venv"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def can_make() -> bool:
    if has_ensurepip():
        return True
    # Debian has venv in a package of its own. Root installs it; other users get the command in the error.
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    say(f"installing Debian's {package}")
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", package]):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=quiet)
        if done.returncode:
            raise InstallationError(f"{' '.join(command)} failed: {done.stderr.strip()[-400:]}")
    return has_ensurepip()


def no_venv(version: str) -> str:
    return f"this Python has no venv; install it (Debian, Ubuntu: apt-get install python{version}-venv) and run this again"


# --- installing --------------------------------------------------------------------------------------


def missing(pins: Sequence[Pin], there: Environment) -> list[Pin]:
    values, installed = platform_values(there.python_version), there.installed()
    return [
        pin
        for pin in pins
        if applies(pin.marker, values) and _same_version(pin.version) not in installed.get(_same_name(pin.name), ())
    ]


def install(pins: Sequence[Pin], there: Environment) -> None:
    """Install the pins that are missing, with several pips side by side.

    Most of pip's time is spent on the pages of the index, one package after another; so two of them take half the time.
    They share nothing: each has its own packages, looks for no dependencies (the lock has all) and at no installed package.
    """
    wanted = missing(pins, there)
    if not wanted:
        return
    installed = there.installed()
    outdated = [pin.name for pin in wanted if _same_name(pin.name) in installed]
    if outdated:
        _uninstall(outdated)
    say(f"installing {len(wanted)} packages")
    with tempfile.TemporaryDirectory() as scratch:
        running = []
        try:
            for number, part in enumerate(_parts(wanted)):
                file = Path(scratch) / f"{number}.txt"
                file.write_text("".join(pin.requirement() for pin in part))
                running.append(Pip(file))
            _watch(running, wanted, there)
        finally:
            for pip in running:
                pip.end()


def _parts(pins: Sequence[Pin]) -> list[list[Pin]]:
    """One part for each process. Packages with many files, which take longest, are spread evenly."""
    processes = max(1, min(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1, MOST_PROCESSES))
    ordered = sorted(pins, key=lambda pin: -len(pin.hashes))
    return [part for number in range(processes) if (part := ordered[number::processes])]


def _pip(*arguments: str) -> list[str]:
    # -I: packages on the caller's PYTHONPATH must not count as installed.
    return [str(PYTHON), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]


def _uninstall(names: Sequence[str]) -> None:
    """Remove versions that the lock no longer has: the pips that install do not look for them."""
    done = subprocess.run(_pip("uninstall", "--yes", "--quiet", *names), check=False, capture_output=True, text=True)
    if done.returncode:
        raise InstallationError(f"pip could not remove outdated packages: {done.stderr.strip()[-800:]}")


class Pip:
    """A pip that installs the requirements of one file."""

    def __init__(self, requirements: Path) -> None:
        options = ("--require-hashes", "--no-deps", "--ignore-installed", "--no-warn-script-location", "--progress-bar=off")
        self._process = subprocess.Popen(
            _pip("install", *options, "-r", str(requirements)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.found = 0
        """Packages that it has looked up and fetched, or is fetching."""
        self._output: list[str] = []
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            # The second is what pip writes for packages that are files on this machine.
            if line.startswith(("Collecting ", "Processing ")):
                self.found += 1
            else:
                self._output = [*self._output, line][-_OUTPUT_LINES:]
            if "Retrying" in line:
                # Otherwise an index that does not answer looks like slow work.
                say(line.strip())

    def failed(self) -> bool:
        return self._process.poll() not in (None, 0)

    def is_done(self) -> bool:
        return self._process.poll() is not None

    def output(self) -> str:
        self._reader.join(5)
        return "".join(self._output).rstrip()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()


def _watch(running: Sequence[Pip], wanted: Sequence[Pin], there: Environment) -> None:
    progress = Progress(len(wanted))
    while not all(pip.is_done() for pip in running) and not any(pip.failed() for pip in running):
        time.sleep(_REWRITE_SECONDS)
        progress.show(min(sum(pip.found for pip in running), len(wanted)), len(wanted) - len(missing(wanted, there)))
    progress.close()
    for pip in running:
        if pip.failed():
            print(pip.output(), file=sys.stderr)
            raise InstallationError("pip failed, see above. Run this again when the cause is removed")
    if left := missing(wanted, there):
        raise InstallationError(f"pip reported success but did not install {', '.join(pin.name for pin in left)}")


class Progress:
    """The counter that shows how far the installation is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + LINE_EVERY_SECONDS
        self._shown = ""

    def show(self, fetched: int, installed: int) -> None:
        text = f"fetched {fetched}, installed {installed} of {self._total} packages"
        if self._terminal:
            print(f"\rops/bootstrap: {text} ", end="", file=sys.stderr, flush=True)
        elif text != self._shown and time.monotonic() >= self._next:
            say(text)
            self._next = time.monotonic() + LINE_EVERY_SECONDS
            self._shown = text

    def close(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def alone() -> Iterator[None]:
    """One process at a time."""
    path = ROOT / "var" / "bootstrap.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is installing; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_current(there: Environment | None, sets: frozenset[str], pins: Sequence[Pin]) -> bool:
    return there is not None and stamp() == (sets, digest(chosen(pins, sets)))


def bring_about(asked: Collection[str], pins: Sequence[Pin]) -> None:
    """Have these sets installed, and those that are installed already."""

    def wanted() -> frozenset[str]:
        return stamp()[0] & {DEV, DOCS, *extras(pins)} | {SERVER, *asked}

    if is_current(find(), wanted(), pins):
        return
    with alone():
        there, sets = find(), wanted()
        if is_current(there, sets, pins):
            return
        selected = chosen(pins, sets)
        install(selected, there or make())
        STAMP.write_text(json.dumps({"sets": sorted(sets), "digest": digest(selected)}) + "\n")
        added = ", ".join(sorted(sets - {SERVER, DEV}))
        say(f"ready, with {added}" if added else "ready")


def sets_asked(given: Sequence[str], known: Sequence[str], *, dev: bool) -> set[str]:
    """The sets that the options --with and --dev name. Raises ValueError with the name of an extra that does not exist."""
    named = {name.strip() for value in given for name in value.split(",")} - {""}
    for name in sorted(named - {ALL, DOCS, *known}):
        raise ValueError(name)
    if dev or ALL in named:
        named |= {*known}
    return named - {ALL} | ({DEV} if dev else set())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="ops/bootstrap",
        description="Makes .venv, or brings it up to date with requirements.lock.",
        epilog="Extras and development packages that are installed stay, and are kept up to date, when this runs again without "
        "naming them. To be rid of them remove .venv and run this again.",
    )
    parser.add_argument(
        "--with",
        dest="extras",
        metavar="EXTRA[,EXTRA]...",
        action="append",
        default=[],
        help="also these extras: pydantic-ai, bedrock, oidc, vertex or all (docs/providers.md says which agents need one); "
        "docs for ops/site",
    )
    parser.add_argument("--dev", action="store_true", help="also all extras and the packages that tests and checks need")
    arguments = parser.parse_args()
    try:
        pins = read_lock(LOCK.read_text())
        try:
            asked = sets_asked(arguments.extras, extras(pins), dev=arguments.dev)
        except ValueError as unknown:
            parser.error(f"--with {unknown}: there is no such extra; there are {', '.join((*extras(pins), ALL, DOCS))}")
        bring_about(asked, pins)
    except InstallationError as error:
        say(f"{error}.")
        return 1
    except ValueError as error:
        say(f"{LOCK.name}: {error}.")
        return 1
    except OSError as error:
        advice = "run this as the owner of the checkout, or copy the checkout to a directory of yours"
        say(f"{error.filename}: {error.strerror}; {advice}.")
        return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
