"""The tool ``run_command`` with a host that only reports: its limits and the texts of its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agents_app.errors import ToolFailed
from agents_app.testkit.files import MemoryWorkspace
from agents_app.tools.caller import Allowance, CurrentCall, allowance, current_call
from agents_app.tools.commands.host import Command, CommandsAway, Ended, commands
from agents_app.tools.commands.running import run_command
from agents_app.tools.files.host import workspace


class Call:
    call_id = "c"

    async def show_terminal(self, resource: str, title: str, *, stays: bool = False, result: object = None) -> None:
        raise AssertionError


@dataclass
class Host:
    ended: Ended = field(default_factory=lambda: Ended("exited", 0, 1.25))
    printed: tuple[str, ...] = ("ok\r\n",)
    away: str = ""
    seen: list[Command] = field(default_factory=list)

    async def run(self, command: Command, call: CurrentCall, output: Callable[[str], None]) -> Ended:
        assert call.call_id == "c"
        if self.away:
            raise CommandsAway(self.away)
        self.seen.append(command)
        for piece in self.printed:
            output(piece)
        return self.ended


@pytest.fixture
def host() -> Host:
    host = Host()
    commands.set(host)
    current_call.set(Call())
    workspace.set(MemoryWorkspace({"src/a.py": "", "b.py": ""}))
    allowance.set(Allowance(30.0, 1_000_000))
    return host


async def refused(command: str, timeout: float = 0, cwd: str = ".") -> str:
    with pytest.raises(ToolFailed) as raised:
        await run_command(command, timeout, cwd)
    return raised.value.reason


async def test_the_time_limit_is_at_most_that_of_the_tool(host: Host) -> None:
    for given in (0, 5, 30, 31, 1e9):
        await run_command("ls", given)
    assert [command.seconds for command in host.seen] == [30, 5, 30, 30, 30]


async def test_the_directory_is_one_of_the_workspace(host: Host) -> None:
    await run_command(" ls\n", cwd="src")
    await run_command("ls", cwd="/workspace/src")
    assert [(command.line, command.cwd) for command in host.seen] == [("ls", ("workspace", "src"))] * 2
    assert await refused("ls", cwd="b.py") == "b.py is not a directory, or a part of this path is a file"
    assert await refused("ls", cwd="none") == "none does not exist; list_files shows what does"
    assert "outside" in await refused("ls", cwd="../../etc")


@pytest.mark.parametrize(
    ("ended", "result"),
    [
        (Ended("exited", 0, 1.25), "Exit code 0 after 1.2 s.\nout"),
        (Ended("exited", 3, 1.25), "Exit code 3 after 1.2 s.\nout"),
        (Ended("killed", None, 2), "Killed after 2.0 s, without an exit code: by a signal, or by a limit of the sandbox.\nout"),
        (Ended("timed_out", None, 30), "Killed with all its processes at the time limit of 30 s. Its output until then:\nout"),
        (Ended("closed", None, 2), "Killed after 2.0 s: a user has closed its terminal. Its output until then:\nout"),
    ],
)
async def test_the_result_says_how_it_ended(host: Host, ended: Ended, result: str) -> None:
    host.ended, host.printed = ended, ("\x1b[32m", "ou", "t\x1b[0m\r\n")
    assert await run_command("ls") == result


async def test_a_silent_command_says_so(host: Host) -> None:
    host.printed = ()
    assert await run_command("true") == "Exit code 0 after 1.2 s.\nIt printed nothing."


async def test_a_command_of_unknown_outcome_fails_with_the_end_of_its_output(host: Host) -> None:
    host.ended, host.printed = Ended("unknown"), ("x" * 10_000 + "last",)
    reason = await refused("make install")
    assert reason.startswith("the command's outcome is unknown: the process that ran it is gone. Look at its effects ")
    assert reason.endswith("last")
    assert len(reason) < 4_300


async def test_what_cannot_be_run(host: Host) -> None:
    assert await refused(" \n") == "command is empty or has a NUL character"
    assert "the limit is 16,384: write a script with write_file" in await refused("x" * 16_385)
    assert await refused("ls", -1) == "timeout is a number of seconds, 0 or more"
    host.away = "terminals are off"
    assert await refused("ls") == "the command was not run: terminals are off"
    commands.set(None)
    assert "its operator has to set AGENTHOST_WORKSPACES_DIR and AGENTHOST_TERMINALS" in await refused("ls")


async def test_a_result_keeps_the_agents_limit(host: Host) -> None:
    allowance.set(Allowance(30.0, 2_000))
    host.printed = ("\u20ac" * 100_000,)
    result = await run_command("flood")
    assert len(result.encode()) <= 2_000
    assert "are left out here]" in result
