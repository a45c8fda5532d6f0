"""The builtin tool ``read_file``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agents_app.errors import ToolFailed
from agents_app.tools.files import naming
from agents_app.tools.files.host import FileProblem, Files, Info, Path
from agents_app.tools.files.text import BOM, SNIFFED, binary_type, decoded, is_utf8, numbered, plural

MOST_LINES = 2_000
MOST_SHOWN = 64 * 1024
"""Characters of the lines in one result."""
MOST_SCANNED = 64 * 1024 * 1024
"""Bytes of a file that are read to find and count its lines."""
_STEP = 1024 * 1024
_KEPT_OF_A_LINE = 16 * 1024
"""Bytes of one line that are kept; the rest is only skipped."""


async def read_file(path: str, offset: int = 1, limit: int = MOST_LINES) -> str:
    """Reads a text file of the workspace. The result has its lines with their numbers, and says how to read on.

    Args:
        path: The file, relative to the working directory or absolute.
        offset: The number of the first line to read, from 1.
        limit: The most lines to read, up to 2000.
    """
    if offset < 1:
        raise ToolFailed("offset is the number of a line: 1 or more")
    if limit < 1:
        raise ToolFailed("limit is a number of lines: 1 or more")
    try:
        return await naming.current().run(lambda files: _read(files, path, offset, min(limit, MOST_LINES)))
    except FileProblem as problem:
        raise naming.failure(problem, path) from None


def file_at(files: Files, where: Path) -> Info:
    """The file; refuses anything else."""
    info = files.stat(where)
    if info.kind == "directory":
        raise FileProblem("is_directory")
    if info.kind != "file":
        raise FileProblem("special")
    return info


def refuse_binary(name: str, start: bytes, size: int, given: str) -> None:
    kind = binary_type(name, start)
    if kind is not None:
        raise ToolFailed(f"{given} is not a text file: {kind}, {plural(size, 'byte')}")


@dataclass(slots=True)
class _Window:
    """The lines to show, while all are counted."""

    first: int
    most: int
    lines: list[str] = field(default_factory=list)
    size: int = 0
    count: int = 0
    crlf: int = 0
    foreign: bool = False
    full: bool = False
    """No further line fits."""

    def add(self, raw: bytes, length: int) -> None:
        self.count += 1
        self.crlf += raw.endswith(b"\r")
        if self.count < self.first or self.full or len(self.lines) == self.most:
            return
        text = decoded(raw)
        self.foreign = self.foreign or not is_utf8(text)
        line = numbered(self.count, text.removeprefix(BOM) if self.count == 1 else text)
        if length > len(raw):
            line += " [the line is longer]"
        if self.lines and self.size + len(line) > MOST_SHOWN:
            self.full = True
            return
        self.lines.append(line)
        self.size += len(line) + 1


def _read(files: Files, given: str, first: int, most: int) -> str:
    where = naming.resolve(files.cwd, given)
    info = file_at(files, where)
    window = _Window(first, most)
    complete, empty = True, True
    for raw, length, start in _lines(files, where):
        if start is not None:
            refuse_binary(info.name, start, info.size, given)
            empty = False
        if raw is None:
            complete = False
            break
        window.add(raw, length)
    if empty:
        return f"{given} is empty."
    total = f"{window.count:,}" if complete else f"more than {window.count:,}"
    if not window.lines:
        raise ToolFailed(f"{given} has {total} line{'' if window.count == 1 else 's'}; offset {first:,} is behind its end")
    last = first + len(window.lines) - 1
    notes = []
    if complete and window.crlf and window.crlf >= window.count - 1:
        notes.append("lines end with CR LF")
    if window.foreign:
        notes.append("not all of it is UTF-8; other bytes are shown as \ufffd")
    head = f"{given}: lines {first:,} to {last:,} of {total}{''.join(f'; {note}' for note in notes)}"
    rest = [] if complete and last == window.count else [f"[there are more lines: continue with offset={last + 1}]"]
    return "\n".join([head, *window.lines, *rest])


def _lines(files: Files, where: Path) -> Iterator[tuple[bytes | None, int, bytes | None]]:
    """(the line without its line feed and cut, its length, the file's first bytes with the first line) of each line.

    A last item without a line: the file is longer than what is read.
    """
    held, length, offset = b"", 0, 0
    start: bytes | None = None
    first = True
    while data := files.read(where, offset, _STEP):
        if first:
            start, first = data[:SNIFFED], False
        offset += len(data)
        *ended, rest = data.split(b"\n")
        for piece in ended:
            whole = held + piece if held else piece
            yield whole[:_KEPT_OF_A_LINE], length + len(piece), start
            held, length, start = b"", 0, None
        length += len(rest)
        held = (held + rest)[:_KEPT_OF_A_LINE]
        if offset >= MOST_SCANNED:
            yield None, 0, start
            return
    if length:
        yield held, length, start
