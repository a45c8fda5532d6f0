"""Starts MCP servers as programs in sandboxes, for ``agents_app.mcp``."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from django.conf import settings

from agents_app.mcp.programs import WORKSPACE, CannotStart, Program
from sessions_app.core.base import database
from sessions_app.core.base.errors import DomainError
from sessions_app.core.programs import private
from sessions_app.core.programs.private import PrivateDirectory
from sessions_app.core.sandboxes import network
from sessions_app.core.workspaces import directories, owners, threads, trees
from sessions_app.core.workspaces.places import Place
from sessions_app.models import Session
from sessions_app.workspace import sandbox
from sessions_app.workspace.limits import GIB, MIB, Limits
from sessions_app.workspace.process import PipedProcess, start_piped
from sessions_app.workspace.sandbox import HOME, Box, NoSandbox

PRIVATE_AT = "/private"
"""Where a program that gets no workspace sees its own directory."""
_PRIVATE_BYTES, _PRIVATE_FILES = 256 * MIB, 50_000
_LOOKED_INTO = ("tmp", "var", "node_modules")
"""First segments of paths from which programs load code or settings by default."""
OFF = "programs are off on this server (AGENTHOST_MCP_COMMANDS)"
_NO_NETWORK = f"it needs the network; {network.OFF}"
_NO_WORKSPACES = "it needs a workspace, and this server has none (AGENTHOST_WORKSPACES_DIR)"


class SandboxLauncher:
    """See agents_app.mcp.programs.Launcher."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked = False

    @property
    def most(self) -> int:
        return int(settings.AGENTHOST_MCP_PROCESSES)

    @property
    def most_of_tenant(self) -> int:
        return int(settings.AGENTHOST_TENANT_MCP_PROCESSES)

    def fault(self) -> str | None:
        if not settings.AGENTHOST_MCP_COMMANDS:
            return OFF
        for mount in settings.AGENTHOST_MCP_MOUNTS:
            if not mount.is_dir():
                return f"AGENTHOST_MCP_MOUNTS: {mount} is no directory"
        with self._lock:
            # It is remembered; of several first callers one tries.
            return sandbox.check(root=settings.AGENTHOST_SANDBOX_ROOT, uid=settings.AGENTHOST_SANDBOX_UID)

    async def start(self, program: Program) -> RunningProgram:
        if (why := await asyncio.to_thread(self._first_fault, program)) is not None:
            raise CannotStart(why)
        if program.workspace != "none" and program.session and program.tenant is not None:
            place = await _workspace(program.tenant, program.session)
            return await _started(program, _box_of(program, place), lambda: None)
        own = await _made(owners.uid_of(program.tenant))
        return await _started(program, _own_box(program, own.contents), own.remove)

    async def deleted(self, sessions: Collection[str]) -> set[str]:
        left = await database.run(_existing, sorted(sessions))
        return set(sessions) - left

    def _first_fault(self, program: Program) -> str | None:
        if (why := self.fault()) is not None:
            return why
        if program.network and network.is_off():
            return _NO_NETWORK
        if program.workspace != "none" and settings.AGENTHOST_WORKSPACES_DIR is None:
            return _NO_WORKSPACES
        with self._lock:
            looked, self._looked = self._looked, True
        if not looked:
            private.remove_left()
        return None


class RunningProgram:
    """See agents_app.mcp.programs.Running."""

    def __init__(self, process: PipedProcess, remove: Callable[[], None]) -> None:
        self._process, self._remove = process, remove
        self.read = process.stdout.read
        self.read_errors = process.errors.read
        self.write = process.stdin.write
        self.close_input = process.stdin.close
        self.wait = process.wait
        self.kill = process.kill

    @property
    def killed_for(self) -> str | None:
        return self._process.killed_for

    async def close(self) -> None:
        try:
            await self._process.close()
        finally:
            await asyncio.to_thread(self._remove)


async def _started(program: Program, box: Box, remove: Callable[[], None]) -> RunningProgram:
    environment = {"HOME": PRIVATE_AT if box.mounted_at == PRIVATE_AT else HOME, **program.env}
    if program.workspace != "none":
        environment["AGENTHOST_WORKSPACE"] = box.mounted_at
    command = [part.replace(WORKSPACE, box.mounted_at) for part in program.command]
    try:
        return RunningProgram(await start_piped(box, command, environment), remove)
    except BaseException as error:
        await asyncio.to_thread(remove)
        # ValueError: variables that are too long for a command line.
        if isinstance(error, NoSandbox | ValueError):
            raise CannotStart(str(error)) from None
        raise


async def _made(uid: int) -> PrivateDirectory:
    making = asyncio.ensure_future(asyncio.to_thread(PrivateDirectory, uid))
    try:
        return await asyncio.shield(making)
    except OSError as error:
        raise CannotStart(f"no private directory could be made for it: {error.strerror}") from None
    except asyncio.CancelledError:
        making.add_done_callback(_remove_unused)
        raise


def _remove_unused(made: asyncio.Future[PrivateDirectory]) -> None:
    if not made.cancelled() and made.exception() is None:
        made.get_loop().run_in_executor(None, made.result().remove)


def _own_box(program: Program, tree: Path) -> Box:
    return Box(
        tree=tree,
        mounted_at=PRIVATE_AT,
        cwd=PRIVATE_AT,
        root=settings.AGENTHOST_SANDBOX_ROOT,
        outlet=network.of_program(program.tenant, program.server) if program.network else None,
        machine_network=program.network and network.is_machines(),
        limits=_limits(program, _PRIVATE_BYTES, _PRIVATE_FILES),
        cgroups=settings.AGENTHOST_SANDBOX_CGROUPS,
        owner=owners.uid_of(program.tenant),
        group=str(program.tenant or ""),
        mounts=settings.AGENTHOST_MCP_MOUNTS,
    )


def _box_of(program: Program, place: Place) -> Box:
    """The box with a workspace. It is not the directory in which the program starts: runtimes load code from there."""
    root: Path | None = settings.AGENTHOST_SANDBOX_ROOT
    _refuse_to_hide(place.mounted_at, program, root)
    trees.give_to_owner(place)
    return Box(
        tree=place.directory / "tree",
        mounted_at=place.mounted_at,
        cwd=HOME,
        root=root,
        outlet=network.of_program(program.tenant, program.server) if program.network else None,
        machine_network=program.network and network.is_machines(),
        limits=_limits(program, settings.AGENTHOST_WORKSPACE_BYTES, settings.AGENTHOST_WORKSPACE_FILES),
        cgroups=settings.AGENTHOST_SANDBOX_CGROUPS,
        owner=owners.uid_of(program.tenant),
        group=str(program.tenant or ""),
        writable=program.workspace == "write",
        mounts=settings.AGENTHOST_MCP_MOUNTS,
    )


def _refuse_to_hide(place: str, program: Program, root: Path | None) -> None:
    """A client chooses the place of its workspace: it must not become the place of the operator's program.

    The program has secrets in its variables that a client's program would get.
    """
    first = place.split("/")[1]
    named = re.compile(rf"/{re.escape(first)}(?![\w.-])")
    hidden = first in {*_LOOKED_INTO, *(mount.parts[1] for mount in settings.AGENTHOST_MCP_MOUNTS)}
    if (
        hidden
        or (root is not None and (root / first).exists())
        or any(map(named.search, (*program.command, *program.env.values())))
    ):
        raise CannotStart(f"the session's workspace is at {place}, a place that the operator's programs use")


def _limits(program: Program, disk_bytes: int, disk_files: int) -> Limits:
    return Limits(
        memory_bytes=program.memory_bytes,
        processes=program.processes,
        file_bytes=min(disk_bytes, GIB),
        disk_bytes=disk_bytes,
        disk_files=disk_files,
        temporary_bytes=min(_PRIVATE_BYTES, program.memory_bytes),
    )


async def _workspace(tenant: int, session: str) -> Place:
    try:
        return await threads.run(tenant, _of_session, tenant, session)
    except DomainError as error:
        raise CannotStart(f"the session's workspace cannot be used: {error}") from None


def _of_session(tenant: int, session: str) -> Place:
    found = Session.objects.filter(tenant_id=tenant, public_id=session).first()
    if found is None:
        raise CannotStart("the session was deleted")
    return directories.of_session(found)


def _existing(sessions: list[str]) -> set[str]:
    return set(Session.objects.filter(public_id__in=sessions).values_list("public_id", flat=True))
