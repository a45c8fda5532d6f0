"""Resolves the paths that a model writes, and words the failures of file operations for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from agents_app.errors import ToolFailed
from agents_app.tools.files.host import Fault, FileProblem, Path, Workspace, workspace

LONGEST_PATH = 4_096
NO_WORKSPACE = "this server has no workspaces: its operator has to set AGENTHOST_WORKSPACES_DIR"


def current() -> Workspace:
    """The workspace of the tool that is being called."""
    found = workspace.get()
    if found is None:
        raise ToolFailed(NO_WORKSPACE)
    return found


def resolve(cwd: Path, given: str) -> Path:
    """The absolute path of ``given``: relative to ``cwd``, absolute, or a ``file:`` URI.

    ``..`` above the root is refused. Whether the path is in the workspace is the host's decision.
    """
    text = unquote(given.removeprefix("file://")) if given.startswith("file:///") else given
    if not text.strip():
        raise ToolFailed("path is empty: give a path such as src/main.py, or . for the working directory")
    if len(text) > LONGEST_PATH or "\0" in text:
        raise ToolFailed(f"path has a NUL character or more than {LONGEST_PATH:,} characters")
    names: list[str] = [] if text.startswith("/") else list(cwd)
    for name in text.split("/"):
        if name == "..":
            if not names:
                raise ToolFailed(worded("outside", given))
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return tuple(names)


def shown(path: Sequence[str], cwd: Path) -> str:
    """``path`` as a model writes it best: relative to ``cwd`` if it is below it, else absolute."""
    if tuple(path[: len(cwd)]) == cwd:
        return "/".join(path[len(cwd) :]) or "."
    return "/" + "/".join(path)


_TEXTS: Mapping[Fault, str] = {
    "missing": "{path} does not exist; list_files shows what does",
    "outside": "{path} is outside of the workspace; give a path relative to the working directory",
    "is_directory": "{path} is a directory; list_files shows what is in it",
    "not_directory": "{path} is not a directory, or a part of this path is a file",
    "exists": "{path} exists already",
    "special": "{path} is neither a file nor a directory",
    "too_large": "{path} is too large",
    "too_many": "{path} has too many entries; give a more specific path or a pattern",
    "too_slow": "it took too long; give a more specific path or pattern",
    "no_room": "there is no room left in the workspace, and {path} was not changed; delete files, or write less",
    "bad_path": "{path} is not a path that a file can have",
    "bad_pattern": "the pattern is not valid",
    "not_permitted": "{path} cannot be opened: its permissions forbid it",
    "refused": "{path}: the operator's rules of access do not permit this",
    "needs_permission": "{path}: the operator's rules of access want the user to be asked about this path itself; call the "
    "tool with exactly this path",
    "unavailable": "the workspace's files cannot be used at the moment; try again later",
}


def worded(fault: Fault, given: str, detail: str = "") -> str:
    text = _TEXTS[fault].format(path=given)
    return f"{text} ({detail})" if detail else text


def failure(problem: FileProblem, given: str) -> ToolFailed:
    """The failure of a call, with the path as the model wrote it."""
    return ToolFailed(worded(problem.fault, given, problem.detail))
