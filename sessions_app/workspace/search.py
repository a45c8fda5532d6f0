"""Finds files by glob pattern, and lines by regular expression, for agents' tools.

Files are opened here, by descriptor, and their content is piped to a program that searches it: a sandbox that swaps links
cannot make that program open anything. The program is ripgrep if it is on the PATH, else Python's `re` in a process of its
own. Either is killed at the time limit, so that no expression blocks the server.
"""

from __future__ import annotations

import bisect
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, Literal

from sessions_app.workspace.entries import Entry, entry_of
from sessions_app.workspace.errors import BadPattern, Refused, Unsupported
from sessions_app.workspace.failures import translated
from sessions_app.workspace.globs import MOST_CHARACTERS, matcher
from sessions_app.workspace.paths import Path
from sessions_app.workspace.places import Descriptors, Place
from sessions_app.workspace.reading import chunks, open_regular
from sessions_app.workspace.tree import Tree
from sessions_app.workspace.walking import Limits as WalkLimits
from sessions_app.workspace.walking import below, open_if_permitted

Reached = Literal["", "files", "bytes", "matches", "seconds"]
Engine = Callable[[str, bool, int], list[str]]
"""The command for (expression, ignore_case, most bytes of a line)."""
_PEEK = 8192


@dataclass(frozen=True, slots=True)
class Limits:
    files: int = 100_000
    """Files and directories that are looked at."""
    bytes: int = 256 * 1024 * 1024
    """Content that is searched."""
    matches: int = 200
    line_bytes: int = 500
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line that matches."""

    path: Path
    number: int
    text: str


@dataclass(slots=True)
class Names:
    """Files and directories that match; ``reached`` names the limit at which the search ended, if any."""

    entries: list[tuple[Path, Entry]] = field(default_factory=list)
    reached: Reached = ""


@dataclass(slots=True)
class Lines:
    """Lines that match, by path and number; ``reached`` names the limit at which the search ended, if any.

    ``refused``: how many files were left out because reading them needs a permission (``Refused``).
    """

    lines: list[Line] = field(default_factory=list)
    reached: Reached = ""
    refused: int = 0


def find_names(
    tree: Tree, pattern: str, *, path: Path = (), skip: frozenset[str] = frozenset({".git"}), limits: Limits | None = None
) -> Names:
    """Files and directories below ``path`` whose path from there matches a glob pattern. Links are not followed.

    ``skip``: names of directories that are not entered.
    """
    limits, result = limits or Limits(), Names()
    matches, until = matcher(pattern), time.monotonic() + limits.seconds
    with tree.open() as at:
        for names, place, status in _below(at, path, skip, limits, result):
            if not matches(names):
                continue
            if len(result.entries) >= limits.matches:
                result.reached = "matches"
            elif time.monotonic() > until:
                result.reached = "seconds"
            else:
                result.entries.append(((*path, *names), entry_of(place.name, status)))
                continue
            break
    return result


def find_lines(
    tree: Tree,
    expression: str,
    *,
    path: Path = (),
    glob: str | None = None,
    ignore_case: bool = False,
    skip: frozenset[str] = frozenset({".git"}),
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Lines:
    """Lines that match a regular expression, in the regular files below ``path`` that match ``glob``. Links are not followed.

    Files with a NUL at the beginning are left out. Raises ``BadPattern``.
    """
    limits, result = limits or Limits(), Lines()
    matches = None if glob is None else matcher(glob)
    command = _command(expression, ignore_case, limits, engine)
    with tree.open() as at, _Program(command, limits) as program:
        for names, place, status in _below(at, path, skip, limits, result):
            if (matches is None or matches(names)) and not _pipe(program, place, (*path, *names), status):
                break
        result.lines, reached = program.finish()
    result.reached = reached or result.reached
    return result


def find_lines_of_file(
    tree: Tree,
    expression: str,
    path: Path,
    *,
    ignore_case: bool = False,
    limits: Limits | None = None,
    engine: Engine | None = None,
) -> Lines:
    """`find_lines` in one file. A link inside the tree is followed; the lines have the path that was given."""
    limits, result = limits or Limits(), Lines()
    command = _command(expression, ignore_case, limits, engine)
    with tree.open() as at, at.place(path, follow=True) as place, translated(path):
        at.check(place)
        status = place.status()
        with _Program(command, limits) as program:
            _pipe(program, place, path, status)
            result.lines, result.reached = program.finish()
    return result


def _command(expression: str, ignore_case: bool, limits: Limits, engine: Engine | None) -> list[str]:
    if not expression or len(expression) > MOST_CHARACTERS or any(character in expression for character in "\n\r\0"):
        raise BadPattern(f"an expression is one line of 1 to {MOST_CHARACTERS:,} characters")
    return (engine or usual())(expression, ignore_case, limits.line_bytes)


def _below(
    at: Descriptors, path: Path, skip: frozenset[str], limits: Limits, result: Names | Lines
) -> Iterator[tuple[Path, Place, os.stat_result]]:
    walk = WalkLimits(limits.files, strict=False, skip=frozenset(name.encode() for name in skip))
    with at.directory(path) as directory, translated(path):
        permits = _permits(at, Place(directory, b"."), result)
        for found in below(directory, path, walk, open_if_permitted):
            with suppress(UnicodeDecodeError):
                names = tuple(name.decode() for name in found.names)
                if permits is None or permits(names, found.status):
                    yield names, found.place, found.status
    if walk.reached:
        result.reached = "files"


def _permits(at: Descriptors, directory: Place, result: Names | Lines) -> Callable[[Path, os.stat_result], bool] | None:
    """Whether an entry below the directory may be in the result; None if there is no guard. Counts what a permission opens."""
    guard = at.guard
    if guard is None:
        return None
    above = at.real_path(directory)
    guard.check(above)

    def permits(names: Path, status: os.stat_result) -> bool:
        path = (*above, *names)
        if isinstance(result, Names):
            return not guard.hides(path)
        try:
            guard.check(path)
        except Refused as refused:
            result.refused += refused.path is not None and stat.S_ISREG(status.st_mode)
            return False
        return True

    return permits


def _pipe(program: _Program, place: Place, path: Path, status: os.stat_result) -> bool:
    """Give a file to the program, if it is text; False if the program takes no more."""
    try:
        descriptor = open_regular(place)
    except (OSError, Unsupported):
        return True
    try:
        if b"\0" in os.pread(descriptor, _PEEK, 0):
            return True
        return program.search(path, chunks(descriptor, 0, status.st_size))
    finally:
        os.close(descriptor)


class _Program:
    """The program that searches. All files are one input to it, and its line numbers are translated back."""

    def __init__(self, command: list[str], limits: Limits) -> None:
        self._limits = limits
        self._process = subprocess.Popen(  # noqa: S603 - a list, without a shell
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input: IO[bytes] = self._process.stdin
        self._output: IO[bytes] = self._process.stdout
        self._errors: IO[bytes] = self._process.stderr
        self._reached: Reached = ""
        self._found: list[tuple[int, bytes]] = []
        self._complaint = b""
        # The first line of each file in the input.
        self._starts: list[int] = []
        self._paths: list[Path] = []
        self._next_line, self._rest = 1, limits.bytes
        self._timer = threading.Timer(limits.seconds, self._stop, ("seconds",))
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]

    def __enter__(self) -> _Program:
        for thread in (self._timer, *self._readers):
            thread.daemon = True
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._timer.cancel()
        self._process.kill()
        for thread in self._readers:
            thread.join()
        self._process.wait()
        for pipe in (self._input, self._output, self._errors):
            with suppress(OSError):
                pipe.close()

    def _stop(self, reached: Reached) -> None:
        self._reached = self._reached or reached
        self._process.kill()

    def _read(self) -> None:
        # A line is "12:text"; longer ones were cut by the program.
        while line := self._output.readline(self._limits.line_bytes * 8 + 1000):
            number, colon, text = line.partition(b":")
            if not colon or not number.isdigit():
                continue
            if len(self._found) >= self._limits.matches:
                self._stop("matches")
                return
            self._found.append((int(number), text.rstrip(b"\r\n")[: self._limits.line_bytes]))

    def _read_errors(self) -> None:
        self._complaint = self._errors.read(2000)
        while self._errors.read(65536):
            pass

    def search(self, path: Path, content: Iterator[bytes]) -> bool:
        """Add a file to the input; False if the program takes no more."""
        self._starts.append(self._next_line)
        self._paths.append(path)
        last = b"\n"
        try:
            for piece in content:
                self._rest -= len(piece)
                if self._rest < 0:
                    self._reached = self._reached or "bytes"
                    return False
                self._input.write(piece)
                self._next_line += piece.count(b"\n")
                last = piece[-1:]
            if last != b"\n":
                self._input.write(b"\n")
                self._next_line += 1
        except BrokenPipeError:
            return False
        return True

    def finish(self) -> tuple[list[Line], Reached]:
        """The matches, when the program has searched all of its input."""
        with suppress(BrokenPipeError):
            self._input.close()
        for thread in self._readers:
            thread.join()
        if self._process.wait() not in (0, 1) and not self._reached:
            complaint = self._complaint.decode("utf-8", "replace").strip()
            raise BadPattern(f"not a regular expression: {complaint}")
        return [self._line(number, text) for number, text in self._found], self._reached

    def _line(self, number: int, text: bytes) -> Line:
        file = bisect.bisect_right(self._starts, number) - 1
        return Line(self._paths[file], number - self._starts[file] + 1, text.decode("utf-8", "replace"))


# --- the programs ---


@lru_cache(maxsize=1)
def usual() -> Engine:
    return ripgrep if shutil.which("rg") else python


def ripgrep(expression: str, ignore_case: bool, line_bytes: int) -> list[str]:
    program = shutil.which("rg") or "rg"
    options = ["--no-config", "--text", "--line-number", "--no-filename", "--no-heading", "--color=never", "--no-messages"]
    case = "--ignore-case" if ignore_case else "--case-sensitive"
    return [program, *options, case, f"--max-columns={line_bytes}", "--max-columns-preview", f"--regexp={expression}", "-"]


def python(expression: str, ignore_case: bool, line_bytes: int) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _PYTHON, expression, "i" if ignore_case else "", str(line_bytes)]


_PYTHON = """
import re, sys
try:
    search = re.compile(sys.argv[1], re.IGNORECASE if sys.argv[2] else 0).search
except (re.error, OverflowError, RecursionError) as error:
    sys.stderr.write(str(error))
    sys.exit(2)
most = int(sys.argv[3])
found = False
for number, line in enumerate(sys.stdin.buffer, 1):
    line = line.rstrip(b"\\n")
    if search(line.decode('utf-8', 'surrogateescape')):
        found = True
        sys.stdout.buffer.write(b"%d:%s\\n" % (number, line[:most]))
sys.exit(0 if found else 1)
"""
