"""A workspace in memory, for tests of agents that have the file tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from agents_app.tools.files.host import FileProblem, Files, Found, Info, Kind, Match, Named, Path
from agents_app.tools.files.text import SNIFFED, binary_type, decoded, lines_of

T = TypeVar("T")
CWD: Path = ("workspace",)


class MemoryWorkspace:
    """host.Workspace and host.Files in memory. ``content``: by path relative to the working directory ``/workspace``.

    Patterns are those of ``fnmatch``, with ``**`` like ``*``. ``room``: the bytes that all files together may have.
    """

    def __init__(self, content: Mapping[str, str | bytes], room: int | None = None) -> None:
        self._files: dict[Path, bytes] = {}
        self._versions: dict[Path, int] = {}
        self._room = room
        for name, text in content.items():
            self._set((*CWD, *name.split("/")), text.encode() if isinstance(text, str) else text)

    @property
    def content(self) -> dict[str, str]:
        """The files by path, bytes that are not UTF-8 replaced."""
        return {"/".join(path[len(CWD) :]): data.decode(errors="replace") for path, data in sorted(self._files.items())}

    @property
    def cwd(self) -> Path:
        return CWD

    async def run(self, work: Callable[[Files], T]) -> T:
        return work(self)

    async def look(self, work: Callable[[Files], T]) -> T:
        return work(self)

    async def change(self, work: Callable[[Files], T]) -> T:
        return work(self)

    # --- host.Files ---

    def stat(self, path: Path) -> Info:
        self._require_inside(path)
        if path in self._files:
            return Info(path[-1], "file", len(self._files[path]), self._versions[path])
        if path == CWD or any(each[: len(path)] == path for each in self._files):
            return Info(path[-1], "directory")
        above = next((path[:length] for length in range(len(CWD), len(path)) if path[:length] in self._files), None)
        raise FileProblem("missing" if above is None else "not_directory")

    def read(self, path: Path, offset: int, length: int) -> bytes:
        self._require_inside(path)
        return self._files[path][offset : offset + length]

    def write(self, path: Path, data: bytes) -> None:
        try:
            if self.stat(path).kind == "directory":
                raise FileProblem("is_directory")
        except FileProblem as problem:
            if problem.fault != "missing":
                raise
        others = sum(len(content) for each, content in self._files.items() if each != path)
        if self._room is not None and others + len(data) > self._room:
            raise FileProblem("no_room")
        self._set(path, data)

    def list(self, path: Path, most: int) -> Sequence[Info]:
        if self.stat(path).kind != "directory":
            raise FileProblem("not_directory")
        names = sorted({each[len(path)] for each in self._files if each[: len(path)] == path})
        if len(names) > most:
            raise FileProblem("too_many")
        return [self.stat((*path, name)) for name in names]

    def find(self, path: Path, pattern: str, most: int) -> Named:
        self.stat(path)
        found: list[tuple[Path, Kind]] = [
            (each, "file") for each in sorted(self._files) if each[: len(path)] == path and _matches(each[len(path) :], pattern)
        ]
        return Named(found[:most], f"more than {most} paths match" if len(found) > most else "")

    def search(self, path: Path, expression: str, pattern: str, most: int) -> Found:
        try:
            wanted = re.compile(expression)
        except re.error as error:
            raise FileProblem("bad_pattern", str(error)) from None
        start = self.stat(path)
        below = [path] if start.kind == "file" else [each for each, _ in self.find(path, pattern or "*", 10_000).paths]
        found = [match for each in below for match in self._lines(each, wanted)]
        return Found(found[:most], f"more than {most} lines match" if len(found) > most else "")

    def _lines(self, path: Path, wanted: re.Pattern[str]) -> Iterator[Match]:
        data = self._files[path]
        if binary_type(path[-1], data[:SNIFFED]) is None:
            for number, line in enumerate(lines_of(decoded(data)), 1):
                if wanted.search(line.rstrip("\r\n")):
                    yield Match(path, number, line)

    def _set(self, path: Path, data: bytes) -> None:
        self._files[path] = data
        self._versions[path] = self._versions.get(path, 0) + 1

    def _require_inside(self, path: Path) -> None:
        if path[: len(CWD)] != CWD:
            raise FileProblem("outside")


def _matches(names: Path, pattern: str) -> bool:
    return fnmatchcase("/".join(names), pattern.replace("**/", "*")) or (bool(names) and fnmatchcase(names[-1], pattern))
