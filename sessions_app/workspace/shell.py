"""The interactive shell of a terminal, with marks that show where commands begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shell:
    """What to start and how to read its output: `start(box, shell.argv, {**shell.environment, ...})`, `ShellOutput(shell.nonce)`."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    nonce: str | None  # None: a shell without integration; no command is ever reported


def shell(root: Path | None = None) -> Shell:
    """bash with marks if the box's root has it, else sh."""
    raise NotImplementedError
