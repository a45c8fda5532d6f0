"""The builtin tool ``run_command``."""

from __future__ import annotations

from collections.abc import Callable

from agents_app.errors import ToolFailed
from agents_app.tools.caller import Allowance, allowance, current_call
from agents_app.tools.commands.excerpt import Cleaner, Excerpt
from agents_app.tools.commands.host import Command, CommandsAway, Ended, commands
from agents_app.tools.files import naming
from agents_app.tools.files.host import FileProblem, Files, Path

MOST_LINE = 16 * 1024
"""Bytes of a command."""
MOST_OUTPUT = 32 * 1024
"""Characters of the output in a result."""
MOST_AFTER_FAILURE = 4_000
NO_COMMANDS = "this server runs no commands: its operator has to set AGENTHOST_WORKSPACES_DIR and AGENTHOST_TERMINALS"
_ROOM = 400
"""Bytes of a result besides the output."""


async def run_command(command: str, timeout: float = 0, cwd: str = ".") -> str:
    """Runs a shell command (bash, or sh) in the workspace's sandbox and returns its exit code and its output.

    Each command has a shell of its own, which ends with all the processes that it has started. There is no keyboard: pass what
    the command asks for as arguments or in a file.

    Args:
        command: The command, for example: python3 -m unittest -q
        timeout: The most seconds it may run; 0, or a number above the server's limit, means that limit.
        cwd: The directory to run it in, relative to the working directory or absolute.
    """
    line = command.strip()
    if not line or "\0" in line:
        raise ToolFailed("command is empty or has a NUL character")
    size = len(line.encode("utf-8", "replace"))
    if size > MOST_LINE:
        raise ToolFailed(f"command has {size:,} bytes; the limit is {MOST_LINE:,}: write a script with write_file and run that")
    if timeout < 0:
        raise ToolFailed("timeout is a number of seconds, 0 or more")
    running, call = commands.get(), current_call.get()
    if running is None or call is None:
        raise ToolFailed(NO_COMMANDS)
    allowed = allowance.get() or Allowance(60.0, MOST_OUTPUT)
    seconds = min(timeout, allowed.seconds) if timeout else allowed.seconds
    where = await _directory(cwd)
    cleaner, excerpt = Cleaner(), Excerpt(_most_output(allowed.output_bytes))
    try:
        ended = await running.run(Command(line, where, seconds), call, lambda piece: excerpt.add(cleaner.feed(piece)))
    except CommandsAway as away:
        raise ToolFailed(f"the command was not run: {away}") from None
    excerpt.add(cleaner.end())
    return _result(ended, excerpt.text().strip("\n"), seconds)


# The tool keeps the time itself, so that a command that is killed has a result with its output.
run_command.__dict__["keeps_time"] = True


def _most_output(limit: int) -> int:
    # A character has at most four bytes.
    return max(0, min(MOST_OUTPUT, (limit - _ROOM) // 4))


async def _directory(given: str) -> Path:
    def look(files: Files) -> Path:
        path = naming.resolve(files.cwd, given)
        if path != files.cwd and files.stat(path).kind != "directory":
            raise FileProblem("not_directory")
        return path

    try:
        return await naming.current().run(look)
    except FileProblem as problem:
        raise naming.failure(problem, given) from None


def _result(ended: Ended, output: str, limit: float) -> str:
    if ended.how in _FAILURES:
        shown = f" Its output until then ends with:\n{output[-MOST_AFTER_FAILURE:]}" if output else ""
        raise ToolFailed(_FAILURES[ended.how] + shown)
    shown = f"\n{output}" if output else "\nIt printed nothing."
    return _FIRST_LINES[ended.how](ended, limit) + shown


def _ran(ended: Ended) -> str:
    return f"after {ended.seconds:.1f} s"


_FIRST_LINES: dict[str, Callable[[Ended, float], str]] = {
    "exited": lambda ended, _: f"Exit code {ended.code} {_ran(ended)}.",
    "killed": lambda ended, _: f"Killed {_ran(ended)}, without an exit code: by a signal, or by a limit of the sandbox.",
    "timed_out": lambda _, limit: f"Killed with all its processes at the time limit of {limit:g} s. Its output until then:",
    "closed": lambda ended, _: f"Killed {_ran(ended)}: a user has closed its terminal. Its output until then:",
    "background": lambda ended, _: (
        f"A user has put the command into the background {_ran(ended)}. It continues without you; you will not see its end. "
        "Its output so far:"
    ),
}
_FAILURES: dict[str, str] = {
    "not_started": "the command was not started.",
    "unknown": "the command's outcome is unknown: the process that ran it is gone. Look at its effects before you run it again.",
}
