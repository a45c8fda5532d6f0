"""The builtin tools ``list_files`` and ``search_files``."""

from __future__ import annotations

from collections import deque

from agents_app.errors import ToolFailed
from agents_app.tools.files import naming
from agents_app.tools.files.host import FileProblem, Files, Found, Kind, Path
from agents_app.tools.files.text import on_one_line, plural, printable

MOST_ENTRIES = 1_000
MOST_IN_DIRECTORY = 10_000
MOST_DEPTH = 20
DEPTH = 3
MOST_MATCHES = 200
LONGEST_MATCH = 300
NOT_ENTERED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache"})
"""Directories that a listing names and does not enter, unless they are asked for: generated, and large."""


async def list_files(path: str = ".", pattern: str = "", depth: int = DEPTH) -> str:
    """Lists files and directories of the workspace, one a line, relative to the listed directory. Directories end with /.

    Args:
        path: The directory, relative to the working directory or absolute.
        pattern: A glob pattern such as *.py or src/**/*.ts: then only what matches is listed, at any depth.
        depth: How many levels of directories to list without a pattern.
    """
    if not 1 <= depth <= MOST_DEPTH:
        raise ToolFailed(f"depth is a number from 1 to {MOST_DEPTH}")
    try:
        if pattern:
            return await naming.current().run(lambda files: _found(files, path, pattern))
        return await naming.current().run(lambda files: _listed(files, path, depth))
    except FileProblem as problem:
        raise naming.failure(problem, path) from None


async def search_files(pattern: str, path: str = ".", glob: str = "") -> str:
    """Searches the text files of the workspace for a regular expression. The result has paths, line numbers and lines.

    Args:
        pattern: The regular expression, for example def \\w+_file.
        path: The directory or file to search in, relative to the working directory or absolute.
        glob: Search only in files that match this glob pattern, such as *.py.
    """
    if not pattern:
        raise ToolFailed("pattern is empty: give a regular expression")
    try:
        return await naming.current().run(lambda files: _searched(files, path, pattern, glob))
    except FileProblem as problem:
        raise naming.failure(problem, path) from None


def _listed(files: Files, given: str, depth: int) -> str:
    """Level by level, so that a listing that is cut has all of the upper levels; shown in the order of the paths."""
    where = naming.resolve(files.cwd, given)
    shown: list[tuple[tuple[str, ...], str]] = []
    cut = False
    levels: deque[tuple[Path, int]] = deque([((), 1)])
    while levels and not cut:
        below, level = levels.popleft()
        try:
            entries = files.list((*where, *below), MOST_IN_DIRECTORY)
        except FileProblem as problem:
            # A directory below the listed one may disappear, be closed or be too large.
            if not below:
                raise
            shown.append(((*below, ""), f"{on_one_line('/'.join(below))}/ [cannot be listed: {problem.fault.replace('_', ' ')}]"))
            continue
        for info in entries:
            if len(shown) == MOST_ENTRIES:
                cut = True
                break
            path = (*below, info.name)
            entered = info.kind == "directory" and level < depth and info.name not in NOT_ENTERED
            shown.append((path, _line("/".join(path), info.kind)))
            if entered:
                levels.append((path, level + 1))
    if not shown:
        return f"{given} is empty."
    lines = [line for _, line in sorted(shown)]
    if cut:
        lines.append(f"[only the first {MOST_ENTRIES:,} entries: give a subdirectory or a pattern for the others]")
    return "\n".join(lines)


def _line(name: str, kind: Kind) -> str:
    marks = {"directory": "/", "link": " [link]", "other": " [special file]", "file": ""}
    return on_one_line(name) + marks[kind]


def _found(files: Files, given: str, pattern: str) -> str:
    where = naming.resolve(files.cwd, given)
    named = files.find(where, pattern, MOST_ENTRIES)
    if not named.paths and not named.stopped:
        return f"Nothing in {given} matches {pattern}."
    lines = [_line("/".join(path[len(where) :]) or ".", kind) for path, kind in named.paths]
    if named.stopped:
        lines.append(f"[incomplete: {named.stopped}]")
    return "\n".join(lines)


def _searched(files: Files, given: str, pattern: str, glob: str) -> str:
    found = files.search(naming.resolve(files.cwd, given), pattern, glob, MOST_MATCHES)
    return _matches(found, files.cwd, given)


def _matches(found: Found, cwd: Path, given: str) -> str:
    if not found.matches:
        return f"[incomplete, nothing found yet: {found.stopped}]" if found.stopped else f"No line in {given} matches."
    names = {match.path for match in found.matches}
    lines = [f"{plural(len(found.matches), 'match')} in {plural(len(names), 'file')}:"]
    for match in found.matches:
        text = printable(match.text.rstrip("\r\n"))
        text = text if len(text) <= LONGEST_MATCH else text[:LONGEST_MATCH] + " [cut]"
        lines.append(f"{on_one_line(naming.shown(match.path, cwd))}:{match.line}: {text}")
    if found.stopped:
        lines.append(f"[incomplete: {found.stopped}]")
    return "\n".join(lines)
