"""Programs that are MCP servers: what is started, and the interface of what starts it.

This package cannot start anything: the server installs a launcher, whose programs run in sandboxes. Without one, such servers
are unavailable; nothing is ever run unconfined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agents_app.spec import ProgramOwner, ProgramWorkspace

WORKSPACE = "{workspace}"
"""In a command: the path of the workspace."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program with its option values filled in, for one owner.

    ``tenant`` None: the lists of tools and checks of operators, which have no tenant. ``session``: its public id; empty if
    the process is no session's, which is then given no workspace.
    """

    server: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False, hash=False)
    per: ProgramOwner
    tenant: int | None
    session: str
    workspace: ProgramWorkspace
    network: bool
    memory_bytes: int
    processes: int
    start_seconds: float
    idle_seconds: float
    lacks_secrets: bool
    """Whether a variable was left out because a session's value is missing."""


class CannotStart(Exception):
    """A program cannot be started. The text is a sentence for operators, without values of variables."""


class Running(Protocol):
    """A program that runs. ``close`` must be called."""

    async def read(self) -> bytes:
        """The next bytes of its output, at most 64 KiB; empty at the end. It is paused while nothing is read."""

    async def read_errors(self) -> bytes:
        """The same of its error output."""

    async def write(self, data: bytes) -> None:
        """Write all of ``data`` to its input; waits while it does not read. ConnectionError after its end."""

    async def close_input(self) -> None:
        """Tell it that nothing will follow."""

    async def wait(self) -> int | None:
        """Its exit code, when all its processes have ended; None if it died of a signal."""

    @property
    def killed_for(self) -> str | None:
        """The limit that it exceeded, in one sentence, if it was killed for that."""

    def kill(self) -> None:
        """Kill all its processes. Returns at once."""

    async def close(self) -> None:
        """Kill what still runs, and remove what was made for it."""


class Launcher(Protocol):
    """Starts programs in sandboxes."""

    @property
    def most(self) -> int:
        """Limit of programs of one event loop."""

    @property
    def most_of_tenant(self) -> int:
        """Limit of programs of one tenant in one event loop."""

    def fault(self) -> str | None:
        """Why this process can start no programs, in one sentence. The first call may take seconds."""

    async def start(self, program: Program) -> Running:
        """Start it; ``CannotStart`` if that is not possible."""

    async def deleted(self, sessions: Collection[str]) -> set[str]:
        """Those of the sessions with these public ids that do not exist any more."""


_factory: Callable[[], Launcher] | None = None
_launcher: Launcher | None = None


def install(factory: Callable[[], Launcher] | None) -> None:
    """Use the launcher that ``factory`` makes when the first program is needed."""
    global _factory, _launcher
    _factory, _launcher = factory, None


def launcher() -> Launcher:
    """The launcher of this process. ``CannotStart`` if there is none."""
    global _launcher
    if _launcher is None:
        if _factory is None:
            raise CannotStart("this process starts no MCP servers")
        _launcher = _factory()
    return _launcher


def fault() -> str | None:
    """Why no program can be started, in one sentence. The first call may take seconds."""
    try:
        return launcher().fault()
    except CannotStart as error:
        return str(error)
