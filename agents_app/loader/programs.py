"""Reads the command of an MCP server that is started as a program."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agents_app import options
from agents_app.loader.table import Table
from agents_app.spec import PROGRAM_OWNERS, PROGRAM_WORKSPACES, OptionSpec, ProgramSpec

MOST_PARTS, LONGEST_COMMAND = 200, 32 * 1024
MOST_MEMORY, LEAST_MEMORY = 64 * 1024**3, 16 * 1024**2
_MOST_PROCESSES = 10_000
_LONGEST_SECONDS = 24 * 3600.0
_KEYS = ("env", "per", "workspace", "network", "memory_bytes", "processes", "start_seconds", "idle_seconds")
_ELSEWHERE = ("args", "cwd")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# With these a value chooses what code runs.
_OF_CODE = re.compile(
    r"LD_.*|PATH|HOME|ENV|BASH_ENV|SHELLOPTS|BASHOPTS|IFS|PYTHON.*|NODE_.*|NPM_CONFIG_.*|npm_config_.*|UV_.*|PERL5?.*|RUBY.*|GEM_.*"
    r"|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|DENO_.*|BUN_.*|GIT_.*|LUA_.*|GCONV_PATH|LOCPATH|AGENTHOST_WORKSPACE"
)


def read(entry: Table) -> ProgramSpec | None:
    for key in _ELSEWHERE:
        if entry.has(key):
            # Read, so that it is not reported as an unknown key too.
            entry.ask(key)
            entry.fault(key, "write the arguments in command" if key == "args" else "a server starts in a directory of its own")
    if not entry.has("command"):
        for key in _KEYS:
            if entry.has(key):
                entry.ask(key)
                entry.fault(key, "has no effect without command")
        return None
    command = entry.texts("command")
    own = ProgramSpec(())
    program = ProgramSpec(
        command=command or (),
        env=_env(entry),
        per=entry.word("per", PROGRAM_OWNERS) or own.per,
        workspace=entry.word("workspace", PROGRAM_WORKSPACES) or own.workspace,
        network=entry.flag("network", default=own.network),
        memory_bytes=entry.whole("memory_bytes", own.memory_bytes, LEAST_MEMORY),
        processes=entry.whole("processes", own.processes),
        start_seconds=entry.seconds("start_seconds") or own.start_seconds,
        idle_seconds=entry.seconds("idle_seconds") or own.idle_seconds,
    )
    _check(program, command, entry)
    return program if command else None


def _check(program: ProgramSpec, command: tuple[str, ...] | None, entry: Table) -> None:
    parts = program.command
    if command is not None and (not parts or not parts[0].strip()):
        entry.fault("command", "names no program")
    elif len(parts) > MOST_PARTS or sum(len(part.encode("utf-8", "surrogatepass")) for part in parts) > LONGEST_COMMAND:
        entry.fault("command", f"is longer than {MOST_PARTS} parts or {LONGEST_COMMAND:,} bytes")
    elif parts and "{workspace}" in parts[0]:
        entry.fault("command", "the program must not be in the workspace, where clients can change it")
    if any("{workspace}" in part for part in parts) and program.workspace == "none":
        entry.fault("command", '{workspace} needs workspace = "read" or "write"')
    if program.per == "tenant" and program.workspace != "none":
        entry.fault("workspace", 'a workspace is a session\'s: it needs per = "session"')
    for key, value, most in (
        ("memory_bytes", program.memory_bytes, MOST_MEMORY),
        ("processes", program.processes, _MOST_PROCESSES),
        ("start_seconds", program.start_seconds, _LONGEST_SECONDS),
        ("idle_seconds", program.idle_seconds, _LONGEST_SECONDS),
    ):
        if value > most:
            entry.fault(key, f"must be at most {most:g}" if isinstance(most, float) else f"must be at most {most}")


def _env(entry: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in entry.mapping("env").items():
        if not _VARIABLE.fullmatch(name):
            entry.fault("env", f"{name!r} is not a variable's name")
        elif not isinstance(value, str) or "\x00" in value:
            entry.fault("env", f"{name} must be a string without U+0000")
        else:
            found[name] = value
    return found


def check_places(program: ProgramSpec, by_name: Mapping[str, OptionSpec], entry: Table) -> None:
    """Which of the agent's options may be used in which variable."""
    for variable, template in program.env.items():
        for name in options.places(template, by_name):
            option = by_name.get(name)
            if option is None:
                entry.fault("env", f"there is no option {name} (for the plain text write {{{{{name}}}}})")
            elif option.type != "select" and _OF_CODE.fullmatch(variable):
                reason = f"{variable} decides what code runs; the option {name} is a {option.type}"
                entry.fault("env", f"{reason}, only select options are allowed here")
