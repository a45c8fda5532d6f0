"""The sandbox: one bubblewrap command line for a box around a workspace's tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sessions_app.workspace.limits import Limits

DEFAULT_OWNER = 64_321


class NoSandbox(Exception):
    """A sandbox cannot be had, or one could not be started. The text is a sentence for operators, without secrets."""


@dataclass(frozen=True)
class Box:
    tree: Path
    mounted_at: str
    cwd: str
    root: Path | None = None
    network: bool = False
    limits: Limits = field(default_factory=Limits)
    cgroups: Path | None = None
    owner: int = DEFAULT_OWNER


def owner(uid: int = DEFAULT_OWNER) -> tuple[int, int] | None:
    """The (uid, gid) that sandboxes run as when this process is root; None otherwise: they run as this process."""
    raise NotImplementedError


def check(*, root: Path | None = None, uid: int = DEFAULT_OWNER) -> str | None:
    """Starts a box once and returns why none can be had, in one sentence; None if one can. Blocks; cached per arguments."""
    raise NotImplementedError
