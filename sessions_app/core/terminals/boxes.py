"""The sandboxes of terminals: what runs where, and why none can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from sessions_app.core import workspaces
from sessions_app.core.sandboxes import network
from sessions_app.core.terminals.services import Claimed
from sessions_app.core.workspaces import Place, owners, trees, volume
from sessions_app.workspace import paths
from sessions_app.workspace.limits import Limits
from sessions_app.workspace.sandbox import Box, NoDirectory
from sessions_app.workspace.shell import Shell, shell, shell_of_command

NO_WORKSPACES = "this server has no workspaces (AGENTHOST_WORKSPACES_DIR)"


@dataclass(frozen=True, slots=True)
class Started:
    """All that is needed to start a terminal's shell."""

    place: Place
    box: Box
    shell: Shell
    environment: Mapping[str, str]


def fault() -> str:
    """Why this process can run no terminals; empty if it can. Blocks: a sandbox is tried."""
    if settings.AGENTHOST_WORKSPACES_DIR is None:
        return NO_WORKSPACES
    if (away := volume.fault()) is not None:
        return away.problem
    return owners.fault() or ""


def prepare(claimed: Claimed) -> Started:
    """The box, shell and environment of a terminal. NoDirectory if its workspace was removed."""
    place = None if claimed.workspace is None else workspaces.of_row(claimed.workspace, claimed.cwd)
    if place is None:
        raise NoDirectory("its workspace was removed")
    root = settings.AGENTHOST_SANDBOX_ROOT
    trees.give_to_owner(place)
    box = Box(
        tree=place.directory / "tree",
        mounted_at=place.mounted_at,
        cwd=place.mounted_path,
        root=root,
        outlet=network.of_terminal(claimed.tenant, claimed.public_id, claimed.network, is_clients=claimed.command is None),
        machine_network=network.is_machines(),
        limits=Limits(
            memory_bytes=settings.AGENTHOST_SANDBOX_MEMORY_BYTES,
            processes=settings.AGENTHOST_SANDBOX_PROCESSES,
            lifetime_seconds=settings.AGENTHOST_TERMINAL_LIFETIME_SECONDS,
            disk_bytes=settings.AGENTHOST_WORKSPACE_BYTES,
            disk_files=settings.AGENTHOST_WORKSPACE_FILES,
        ),
        cgroups=settings.AGENTHOST_SANDBOX_CGROUPS,
        owner=owners.uid_of(claimed.tenant),
        group=str(claimed.tenant),
    )
    found = shell(root) if claimed.command is None else shell_of_command(claimed.command, root)
    environment = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": place.mounted_at, **found.environment}
    if claimed.trace is not None:
        # The variable that OpenTelemetry's tools for programs read.
        environment["TRACEPARENT"] = claimed.trace
    return Started(place, box, found, environment)


def uri_of(path: str) -> str:
    """The URI of an absolute path inside a box."""
    return paths.uri_of(tuple(name for name in path.split("/") if name))
