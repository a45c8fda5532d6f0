"""The builtin tools ``write_file`` and ``edit_file``.

A file need not be read before it is changed. ``edit_file`` finds its place by the exact old text, which proves that the model
knows this part of the file as it is now; ``write_file`` returns the difference to the content that it replaced. A rule "read
it first" would need a memory of each session's reads, which a turn that moves to another worker does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents_app.errors import ToolFailed
from agents_app.runtime.interface import FileEdit, FileState
from agents_app.tools.caller import edits, seen
from agents_app.tools.files import differences, naming
from agents_app.tools.files.edits import replace
from agents_app.tools.files.host import FileProblem, Files, Info, Path
from agents_app.tools.files.reading import file_at, refuse_binary
from agents_app.tools.files.text import SNIFFED, binary_type, count_lines, decoded, encoded, is_utf8, plural, uses_crlf

MOST_EDITED = 2 * 1024 * 1024
"""Bytes of a file that ``edit_file`` edits and of which ``write_file`` shows the difference."""


async def write_file(path: str, content: str) -> str:
    """Writes a text file of the workspace: creates it, with missing directories, or replaces all of its content.

    Args:
        path: The file, relative to the working directory or absolute.
        content: The whole new content.
    """
    if not is_utf8(content):
        raise ToolFailed("content has characters that have no UTF-8 form (half of a surrogate pair)")
    try:
        return await naming.current().change(lambda files: _write(files, path, content))
    except FileProblem as problem:
        raise naming.failure(problem, path) from None


async def edit_file(path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:
    """Replaces text in a file of the workspace. old_text must be in the file exactly, with its indentation, and only once.

    Args:
        path: The file, relative to the working directory or absolute.
        old_text: The text to replace, without the line numbers that read_file shows.
        new_text: The text to put in its place; empty to delete it.
        replace_all: Replace every place where old_text is, not only one.
    """
    if not is_utf8(new_text):
        raise ToolFailed("new_text has characters that have no UTF-8 form (half of a surrogate pair)")
    try:
        return await naming.current().change(lambda files: _edit(files, path, old_text, new_text, everywhere=replace_all))
    except FileProblem as problem:
        raise naming.failure(problem, path) from None


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of one file that can be made. ``text``: what the model gets when it is made."""

    where: Path
    before: Info | None
    data: bytes
    edit: FileEdit
    text: str


def preview_write(files: Files, given: Mapping[str, Any]) -> FileEdit:
    """The change that ``write_file`` would make now."""
    return _writing(files, given["path"], given["content"]).edit


def preview_edit(files: Files, given: Mapping[str, Any]) -> FileEdit:
    """The change that ``edit_file`` would make now."""
    everywhere = given.get("replace_all", False)
    return _editing(files, given["path"], given["old_text"], given["new_text"], everywhere=everywhere).edit


def _write(files: Files, given: str, content: str) -> str:
    change = _writing(files, given, content)
    _require_seen(change, given)
    return _made(files, change, given)


def _edit(files: Files, given: str, old: str, new: str, *, everywhere: bool) -> str:
    # The old text is what a client has seen: other parts of the file may have changed since.
    return _made(files, _editing(files, given, old, new, everywhere=everywhere), given)


def _writing(files: Files, given: str, content: str) -> _Change:
    where = naming.resolve(files.cwd, given)
    if not where:
        raise FileProblem("is_directory")
    data = encoded(content)
    lines = plural(count_lines(content), "line")
    found = _before(files, where)
    if found is None:
        edit = _file_edit(where, None, data, differences.Counts(count_lines(content), 0))
        return _Change(where, None, data, edit, f"Created {given} ({lines}).")
    info, old = found
    if old is None or binary_type(info.name, old[:SNIFFED]) is not None:
        edit = _file_edit(where, FileState(info.size, old), data, differences.Counts(count_lines(content), 0))
        return _Change(where, info, data, edit, f"Overwrote {given} ({lines}; before: {plural(info.size, 'byte')}).")
    was = decoded(old)
    compared = differences.compare(was, content)
    edit = _file_edit(where, FileState(len(old), old), data, compared.counts)
    if not compared.groups:
        return _Change(where, info, data, edit, f"{given} had exactly this content already ({lines}).")
    ends = ""
    if uses_crlf(was) and not uses_crlf(content) and "\n" in content:
        ends = " The lines of the file ended with CR LF; those of the new content do not."
    said = f"Overwrote {given} ({lines}; before: {count_lines(was):,}).{ends}\n{differences.unified(compared, given)}"
    return _Change(where, info, data, edit, said)


def _before(files: Files, where: Path) -> tuple[Info, bytes | None] | None:
    """The file that is there, and its content unless it is too large; None: there is none."""
    try:
        info = file_at(files, where)
    except FileProblem as problem:
        if problem.fault != "missing":
            raise
        return None
    return info, files.read(where, 0, MOST_EDITED) if info.size <= MOST_EDITED else None


def _editing(files: Files, given: str, old: str, new: str, *, everywhere: bool) -> _Change:
    where = naming.resolve(files.cwd, given)
    info = file_at(files, where)
    if info.size > MOST_EDITED:
        raise ToolFailed(f"{given} has {info.size:,} bytes; edit_file edits files of up to {MOST_EDITED:,}")
    data = files.read(where, 0, MOST_EDITED + 1)
    refuse_binary(info.name, data[:SNIFFED], len(data), given)
    before = decoded(data)
    edited = replace(before, old, new, given, everywhere=everywhere)
    after = encoded(edited.content)
    found = differences.compare(before, edited.content)
    how = f"Replaced {edited.count:,} places in {given}" if edited.count > 1 else f"Edited {given}"
    text = f"{how} (+{found.counts.added} -{found.counts.removed} lines).\n{differences.unified(found, given)}"
    return _Change(where, info, after, _file_edit(where, FileState(len(data), data), after, found.counts), text)


def _made(files: Files, change: _Change, given: str) -> str:
    """Make the change. ``ToolFailed`` if something else has changed the file since it was read."""
    if change.before is not None and change.edit.before is not None and change.edit.before.content is not None:
        now = files.stat(change.where)
        if (now.version, now.size) != (change.before.version, change.before.size):
            raise ToolFailed(
                f"{given} was changed by something else at this moment, and was left as it is: read it and try again"
            )
    files.write(change.where, change.data)
    recorded = edits.get()
    if recorded is not None:
        recorded.append(change.edit)
    return change.text


def _require_seen(change: _Change, given: str) -> None:
    """Refuse to replace a content that is not the one that the client saw when it permitted the call."""
    path, before = change.edit.path, change.edit.before
    if path not in seen.get():
        return
    now = None if before is None else before.digest
    # The same content again: the call is repeated after its worker has died.
    if now != seen.get()[path] and not (before is not None and before.content == change.data):
        raise ToolFailed(
            f"{given} has changed since the client saw the difference and permitted this, and was left as it is:"
            " read it and try again"
        )


def _file_edit(where: Path, before: FileState | None, after: bytes, counts: differences.Counts) -> FileEdit:
    return FileEdit("/" + "/".join(where), before, FileState(len(after), after), counts.added, counts.removed)
