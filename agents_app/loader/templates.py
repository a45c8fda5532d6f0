"""Reads the template of new workspaces from ``[agents.workspace]``."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agents_app.loader.table import Table

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


def read(table: Table, folder: Path) -> str | None:
    """Its absolute path. Whether it is within the limits is checked by the server (`core.workspaces.templates`)."""
    entry = table.table("workspace")
    text = entry.text("template")
    entry.refuse_unknown()
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
