"""The interface between the file tools and the host that has the files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")

Path = tuple[str, ...]
"""An absolute path as clients see it, by names: ``/src/a.py`` is ``("src", "a.py")``."""

Kind = Literal["file", "directory", "link", "other"]

Fault = Literal[
    "missing",
    "outside",
    "is_directory",
    "not_directory",
    "exists",
    "special",
    "too_large",
    "too_many",
    "too_slow",
    "no_room",
    "bad_path",
    "bad_pattern",
    "not_permitted",
    "refused",
    "needs_permission",
    "unavailable",
]


class FileProblem(Exception):
    """A file operation that failed. ``detail``: text for a model, without paths of the server; may be empty."""

    def __init__(self, fault: Fault, detail: str = "") -> None:
        super().__init__(f"{fault}: {detail}" if detail else fault)
        self.fault: Fault = fault
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Info:
    """A file, directory or link. ``version`` changes when the content changes. Links are reported with their target's size."""

    name: str
    kind: Kind
    size: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """A line that a search found. ``line`` counts from 1; ``text`` may be cut."""

    path: Path
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """``stopped``: why the search ended before it had looked at everything; empty if it did look at everything."""

    matches: Sequence[Match]
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """Paths that a pattern names, and ``stopped`` as in ``Found``. Directories have the kind ``directory``."""

    paths: Sequence[tuple[Path, Kind]]
    stopped: str = ""


class Files(Protocol):
    """The files of one workspace, while a function works on them in a thread. Every failure is a ``FileProblem``."""

    @property
    def cwd(self) -> Path:
        """The session's working directory."""
        ...

    def stat(self, path: Path) -> Info:
        """Links inside the workspace are followed."""
        ...

    def read(self, path: Path, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset`` on; empty at the end."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Create or replace the file and make missing directories. Readers see the old or the new content, never a part."""
        ...

    def list(self, path: Path, most: int) -> Sequence[Info]:
        """A directory's entries by name; ``too_many`` if there are more than ``most``."""
        ...

    def find(self, path: Path, pattern: str, most: int) -> Named:
        """The entries below a directory whose path relative to it, or whose name, matches a glob pattern."""
        ...

    def search(self, path: Path, expression: str, pattern: str, most: int) -> Found:
        """The lines that match a regular expression, in the file or below the directory ``path``.

        ``pattern``: only in files that ``find`` would find with it; empty: in all.
        """
        ...


class Workspace(Protocol):
    """A session's workspace, as a run gives it to its tools."""

    async def run(self, work: Callable[[Files], T]) -> T:
        """Call ``work`` in a thread for files, in the tenant's share. ``FileProblem`` if there is no workspace or no thread."""
        ...

    async def look(self, work: Callable[[Files], T]) -> T:
        """``run`` for work that only reads, before a client has permitted the call: a workspace that is not there is not made."""
        ...

    async def change(self, work: Callable[[Files], T]) -> T:
        """``run`` for work that writes: one at a time in a run, so that two edits of a file in one step both count."""
        ...


workspace: ContextVar[Workspace | None] = ContextVar("workspace", default=None)
"""The workspace of the run whose tool is called; None: the host has none."""
