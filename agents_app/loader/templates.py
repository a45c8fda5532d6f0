"""Reads ``[agents.workspace]``: the template of new workspaces, and the network of the agent's commands."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from agents_app.loader.table import Table
from agents_app.outbound.policy import Allowance

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


@dataclass(frozen=True, slots=True)
class Files:
    """``template``: its absolute path. ``network``: the hosts that commands may reach; ``*``: every public one."""

    template: str | None
    network: tuple[str, ...]


def read(table: Table, folder: Path) -> Files:
    entry = table.table("workspace")
    found = Files(_template(entry, folder), _network(entry))
    entry.refuse_unknown()
    return found


def _network(entry: Table) -> tuple[str, ...]:
    if not entry.is_list("network"):
        return ("*",) if entry.flag("network", default=False, wanted="true, false or a list of hosts") else ()
    hosts = entry.texts("network") or ()
    for host in hosts:
        try:
            Allowance.read(host)
        except ValueError as error:
            entry.fault("network", f"{host!r}: {error}; for every public host write true")
    return hosts


def _template(entry: Table, folder: Path) -> str | None:
    """Whether it is within the limits is checked by the server (`core.workspaces.templates`)."""
    text = entry.text("template")
    if text is None:
        return None
    path = (folder / text).absolute()
    if (fault := _fault(text, path)) is not None:
        entry.fault("template", fault)
    return str(path)


def _fault(text: str, path: Path) -> str | None:
    if not text.strip():
        return "must not be empty"
    try:
        if path.is_dir():
            return None if os.access(path, os.R_OK | os.X_OK) else f"{text} cannot be read: Permission denied"
        # A FIFO would block here.
        if not stat.S_ISREG(path.stat().st_mode) or not path.name.lower().endswith(ARCHIVES):
            return f"{text} must be a folder or a file whose name ends with {', '.join(ARCHIVES[:-1])} or {ARCHIVES[-1]}"
        path.open("rb").close()
    except (OSError, ValueError) as error:
        return f"{text} cannot be read: {getattr(error, 'strerror', None) or 'not a path'}"
    return None
