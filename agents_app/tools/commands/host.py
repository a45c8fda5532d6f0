"""The interface between the tool ``run_command`` and the host that runs commands."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol

from agents_app.tools.caller import CurrentCall
from agents_app.tools.files.host import Path

Ending = Literal["exited", "killed", "timed_out", "background", "closed", "not_started", "unknown"]
"""How the wait for a command ended.

``exited``: with a code · ``killed``: without one, by a signal or a limit of the sandbox · ``timed_out``: at its time limit, and
killed · ``background``: a user lets it continue without the tool · ``closed``: a user has closed its terminal, which killed it ·
``not_started`` · ``unknown``: the process that ran it is gone.
"""


class CommandsAway(Exception):
    """No command can be run now. The text is the reason, for a model."""


@dataclass(frozen=True, slots=True)
class Command:
    """A line for a shell. ``seconds``: its time limit, from its start. ``cwd``: an existing directory of the workspace."""

    line: str
    cwd: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """``seconds``: how long it ran so far."""

    how: Ending
    code: int | None = None
    seconds: float = 0.0


class Commands(Protocol):
    """Runs the commands of one session's agent."""

    async def run(self, command: Command, call: CurrentCall, output: Callable[[str], None]) -> Ended:
        """Run a command once and wait for its end; ``CommandsAway`` if it was not started.

        ``output`` gets all that it prints, in pieces, with control sequences. If this is cancelled, the command is killed.
        """
        ...


commands: ContextVar[Commands | None] = ContextVar("commands", default=None)
"""Runs the commands of the run whose tool is called; None: the host runs none."""
