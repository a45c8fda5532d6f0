"""The program ``agenthost`` of an installed package: roles, the operator's commands, and a first start.

The commands are an allow-list (catalogue.py): those of Django that empty or replace a database, or open a shell, are not among
them. A command that only prints imports nothing of the server.
"""

from __future__ import annotations

import difflib
import os
import platform
import sys
from collections.abc import Sequence

from agenthost.cli.catalogue import ALIASES, COMMANDS, GROUPS, Kind
from agents_app import installation

PROGRAM = "agenthost"
BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    given, *rest = (sys.argv[1:] if arguments is None else arguments) or ["help"]
    name = {"-h": "help", "--help": "help", "--version": "version", "-V": "version"}.get(given, given.replace("_", "-"))
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        return _unknown(given)
    match COMMANDS[name].kind:
        case Kind.ROLE:
            return _exec_role(name, rest)
        case Kind.MANAGEMENT:
            return _manage(name, rest)
    return _own(name, rest)


def _own(name: str, rest: list[str]) -> int:
    match name:
        case "version":
            print(f"{PROGRAM} {installation.version()} (Python {platform.python_version()})")  # noqa: T201 - the output
        case "up":
            from agenthost.cli import up

            return _quiet_at_the_end(up.main, rest)
        case "example":
            from agenthost.cli import examples

            return examples.main(rest)
        case "healthy":
            from agenthost import role_health

            return role_health.main(rest, installation.data_directory())
        case _:
            return _help(rest)
    return 0


def _quiet_at_the_end(command: object, rest: list[str]) -> int:
    from agenthost.command_line import CLOSED_PIPE, discard_stdout

    assert callable(command)
    try:
        return int(command(rest))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_stdout()
        return CLOSED_PIPE


def _exec_role(name: str, rest: list[str]) -> int:
    """Become the process of a role, as ops/entrypoint does."""
    sys.stdout.flush()
    os.environ["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "agenthost.processes", name, *rest]
    os.execv(command[0], command)  # noqa: S606 - this very program


def _manage(name: str, rest: list[str]) -> int:
    from agenthost import command_line

    # As for the roles: Python modules of agents may be in the working directory.
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - one import less
    return command_line.main([PROGRAM, name.replace("-", "_"), *rest])


def _help(rest: list[str]) -> int:
    if rest:
        name = ALIASES.get(rest[0].replace("_", "-"), rest[0].replace("_", "-"))
        if name not in COMMANDS:
            return _unknown(rest[0])
        if COMMANDS[name].kind is Kind.MANAGEMENT or name in ("up", "example"):
            return main([name, "--help"])
        print(f"usage: {PROGRAM} {name}{COMMANDS[name].usage}\n\n{COMMANDS[name].summary}")  # noqa: T201 - the output
        return 0
    width = max(map(len, COMMANDS))
    lines = [f"usage: {PROGRAM} COMMAND [...]      {PROGRAM} help COMMAND: its options", ""]
    for group, names in GROUPS.items():
        lines += [group, *(f"  {name:<{width}}  {COMMANDS[name].summary}" for name in names), ""]
    lines.append(f"Data is in {installation.data_directory()}, or where AGENTHOST_VAR_DIR says.")
    print("\n".join(lines))  # noqa: T201 - the output
    return 0


def _unknown(given: str) -> int:
    close = difflib.get_close_matches(given.lower().replace("_", "-"), [*COMMANDS, *ALIASES], n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]}?" if close else ""
    sys.stderr.write(f"{PROGRAM}: there is no command {given!r}.{hint} {PROGRAM} help lists all commands.\n")
    return BAD_USAGE
