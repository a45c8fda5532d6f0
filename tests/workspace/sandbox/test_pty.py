"""Programs on pseudo-terminals in boxes, on both kinds of event loop."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sessions_app.workspace import process as box_processes
from sessions_app.workspace.process import BoxProcess, run_piped
from sessions_app.workspace.pty import PtyProcess, start
from sessions_app.workspace.sandbox import Box, NoDirectory
from sessions_app.workspace.shell import shell
from sessions_app.workspace.shell_output import CommandEnded, CommandsAvailable, CommandStarted, Cwd, Data, Output, ShellOutput
from sessions_app.workspace.watchdog import seen_from_outside, use_of, watchdog
from tests.paths import ROOT
from tests.workspace.sandbox.conftest import Run, init_of


async def until(process: PtyProcess, wanted: bytes, seen: bytes = b"") -> bytes:
    while wanted not in seen:
        data = await process.read()
        assert data, f"the end came before {wanted!r}: {seen!r}"
        seen += data
    return seen


async def rest(process: PtyProcess) -> bytes:
    seen = b""
    while data := await process.read():
        seen += data
    return seen


def state_of(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_what_is_typed_reaches_the_program_and_its_output_comes_back(run: Run, box: Box) -> None:
    async def scenario() -> None:
        process = await start(
            box, ["/bin/sh", "-c", "read line; echo got $line; tty; test -t 0 && test -t 2 && echo terminal"], {}
        )
        await process.write(b"hello\n")
        assert await rest(process) == b"hello\r\ngot hello\r\n/dev/console\r\nterminal\r\n"
        assert await process.wait() == 0
        await process.close()

    run(scenario())


def test_a_program_sees_its_size_and_is_signalled_when_it_changes(run: Run, box: Box) -> None:
    async def scenario() -> None:
        program = "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done"
        process = await start(box, ["/bin/bash", "-c", program], {}, cols=101, rows=33)
        assert (await until(process, b"ready")).startswith(b"33 101\r\n")
        process.resize(90, 20)
        assert b"20 90" in await rest(process)
        with pytest.raises(ValueError, match="size: 0 x 5; columns and rows are 1 to 1,000 each"):
            process.resize(0, 5)
        await process.close()
        process.resize(80, 24)

    run(scenario())


def test_control_c_interrupts_the_command_in_the_foreground(run: Run, box: Box) -> None:
    async def scenario() -> None:
        process = await start(box, ["/bin/bash", "--norc", "-i"], {"PS1": "$ "})
        await process.write(b"sh -c 'echo st\"\"art; exec sleep 1000'\n")
        await until(process, b"start\r\n")
        await process.write(b"\x03")
        # The terminal discards what was typed before it interrupts.
        await until(process, b"$ ")
        await process.write(b"echo code $?\n")
        await until(process, b"code 130")
        await process.close()

    run(scenario())


@pytest.mark.parametrize(
    ("program", "code"), [("exit 0", 0), ("exit 7", 7), ("exit 137", 137), ("kill -9 $$", None), ("kill -TERM $$", None)]
)
def test_the_exit_code_is_that_of_the_program_and_none_after_a_signal(run: Run, box: Box, program: str, code: int | None) -> None:
    async def scenario() -> None:
        # The program waits until this process knows it: for one that is gone before, 137 is taken for a signal.
        process = await start(box, ["/bin/sh", "-c", f"read -r line; {program}"], {})
        await process.write(b"\n")
        assert await process.wait() == code
        assert process.killed_for is None
        await process.close()

    run(scenario())


def test_output_before_the_end_is_read_to_its_last_byte(run: Run, box: Box) -> None:
    async def scenario() -> None:
        process = await start(box, ["/bin/sh", "-c", "seq 100"], {})
        assert await process.wait() == 0
        assert (await rest(process)).split() == [str(number).encode() for number in range(1, 101)]
        await process.close()

    run(scenario())


@pytest.mark.parametrize("megabytes", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_program_that_nobody_reads_waits_and_then_loses_nothing(run: Run, box: Box, megabytes: int) -> None:
    async def scenario() -> None:
        # Lines of 11 bytes, each with its number.
        process = await start(box, ["/bin/sh", "-c", f"seq -f %09.0f {megabytes * 100_000}"], {})
        first = await process.read()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # The pseudo-terminal is full now, and what has been written stays the same.
        cpu = await idle(process)
        assert cpu < 1.0
        seen, last = len(first), first
        while data := await process.read():
            assert len(data) <= 65536
            seen += len(data)
            last = (last + data)[-22:]
        assert seen == megabytes * 100_000 * 11
        assert last.endswith(b"%09d\r\n" % (megabytes * 100_000))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
        assert await process.wait() == 0
        await process.close()

    run(scenario())


async def idle(process: PtyProcess) -> float:
    """Waits until the box uses no CPU between two looks; returns what it has used, in seconds."""
    processes = f"{seen_from_outside(init_of(process.pid))}/proc"
    used = -1.0
    while (now := use_of(processes).cpu_seconds) > used:
        used = now
        await asyncio.sleep(0.05)
    return used


def test_input_that_nobody_reads_waits_and_ends_with_the_program(run: Run, box: Box) -> None:
    async def scenario() -> None:
        process = await start(box, ["/bin/sh", "-c", "stty raw -echo; echo ready; sleep 1000"], {})
        await until(process, b"ready")
        writing = asyncio.create_task(process.write(b"x" * 1_000_000))
        done, _ = await asyncio.wait([writing], timeout=0.2)
        assert not done
        process.kill()
        with pytest.raises(ConnectionError):
            await writing
        with pytest.raises(ConnectionError):
            await process.write(b"x")
        await process.close()

    run(scenario())


def test_kill_ends_everything_in_the_box(run: Run, box: Box) -> None:
    async def scenario() -> None:
        program = "trap '' HUP TERM; setsid sleep 1000 & (sleep 1000 &) ; echo ready; sleep 1000"
        process = await start(box, ["/bin/bash", "-c", program], {})
        await until(process, b"ready\r\n")
        init = init_of(process.pid)
        assert use_of(f"{seen_from_outside(init)}/proc").processes >= 4
        process.kill()
        process.kill()
        assert await process.wait() is None
        # The machine's init waits for it, unless this process inherits orphans.
        assert state_of(init) in (None, "Z", "X")
        assert state_of(process.pid) is None, "a zombie is left"
        assert await rest(process) == b""
        await process.close()

    run(scenario())


def test_the_end_of_the_shell_is_that_of_its_background_programs(run: Run, box: Box) -> None:
    async def scenario() -> None:
        process = await start(box, ["/bin/bash", "-c", "trap '' HUP; setsid sleep 1000 & exit 3"], {})
        assert await process.wait() == 3
        assert await rest(process) == b""
        await process.close()

    run(scenario())


def test_a_program_that_ends_before_it_is_looked_for_has_its_own_exit_code(
    run: Run, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found then is its program in the background, which is killed at the end."""
    begun = BoxProcess.begun

    def late(process: BoxProcess, init: int) -> None:
        # Bubblewrap, which kills what is left in the box when its program has ended, waits meanwhile.
        os.kill(process.pid, signal.SIGSTOP)
        (box.tree / "go").touch()
        end = time.monotonic() + 30
        while names_of_children(init) != ["sleep"]:
            assert time.monotonic() < end, names_of_children(init)
        begun(process, init)
        os.kill(process.pid, signal.SIGCONT)

    monkeypatch.setattr(BoxProcess, "begun", late)

    async def scenario() -> None:
        program = "trap '' HUP; setsid sleep 1000 & until [ -e go ]; do :; done; exit 3"
        process = await start(box, ["/bin/bash", "-c", program], {})
        assert await process.wait() == 3
        await process.close()

    run(scenario())


def test_a_program_whose_box_is_gone_before_it_is_seen_to_begin_is_not_watched_for_ever(
    run: Run, box: Box, made: list[BoxProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    until_ready = box_processes._until_ready

    async def late(errors: box_processes.Stream) -> None:
        await until_ready(errors)
        await made[-1].wait()

    monkeypatch.setattr(box_processes, "_until_ready", late)

    async def scenario() -> None:
        process = await start(box, ["/bin/bash", "-c", "exit 3"], {})
        assert await process.wait() == 3
        assert not watchdog()._boxes
        await process.close()

    run(scenario())


def names_of_children(pid: int) -> list[str]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    except (FileNotFoundError, ProcessLookupError):
        return []  # one of them has just ended


def test_close_ends_a_pending_read_and_leaves_no_descriptor(run: Run, box: Box) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30):
            before: int | None = None
            for _ in range(3):
                process = await start(box, ["/bin/cat"], {})
                reading = asyncio.create_task(process.read())
                await asyncio.sleep(0)
                await process.close()
                await process.close()
                assert await reading == b""
                # The first run loads what stays open, such as the loop's own descriptors; the watchdog opens one now and then.
                while before is not None and descriptors() > before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                before = descriptors()

    run(scenario())


def test_a_missing_directory_is_the_reason_that_clients_get_without_its_path(run: Run, box: Box) -> None:
    async def scenario() -> None:
        before: int | None = None
        for _ in range(2):
            with pytest.raises(NoDirectory, match=r"^its directory was removed or may not be entered$"):
                await start(replace(box, cwd="/projects/one/missing"), ["/bin/cat"], {})
            assert before is None or descriptors() <= before
            before = descriptors()

    run(scenario())


def test_a_start_that_is_cancelled_leaves_nothing(run: Run, box: Box) -> None:
    async def scenario() -> None:
        before = None
        for _ in range(2):
            starting = asyncio.create_task(start(box, ["/bin/cat"], {}))
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert before is None or descriptors() <= before
            before = descriptors()

    run(scenario())


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_many_terminals_work_beside_each_other(run: Run, box: Box, count: int) -> None:
    async def scenario() -> None:
        processes = await asyncio.gather(*(start(box, ["/bin/bash", "--norc", "-i"], {"PS1": "$ "}) for _ in range(count)))
        for number, process in enumerate(processes):
            await process.write(f"echo number $(({number}+1000))\n".encode())
        await asyncio.gather(*(until(process, f"number {number + 1000}".encode()) for number, process in enumerate(processes)))
        await asyncio.gather(*(process.close() for process in processes))

    run(scenario())


def test_a_shell_reports_its_commands(run: Run, box: Box) -> None:
    async def scenario() -> None:
        bash = shell()
        assert bash.nonce is not None
        process = await start(box, bash.argv, bash.environment)
        reader = ShellOutput(bash.nonce)
        outputs: list[Output] = []

        async def seen(wanted: Callable[[list[Output]], bool]) -> None:
            while not wanted(outputs):
                data = await process.read()
                assert data, outputs
                outputs.extend(reader.feed(data))

        def ended(number: int) -> Callable[[list[Output]], bool]:
            return lambda found: sum(isinstance(output, CommandEnded) for output in found) >= number

        await seen(lambda found: CommandsAvailable() in found)
        lines = ["echo 'a;b\\c é' | cat", "false", "mkdir -p 'x y' && cd 'x y'", "for i in 1 2; do\necho $i; done"]
        for number, line in enumerate(lines, 1):
            await process.write(line.encode() + b"\n")
            await seen(ended(number))
        # Neither a comment nor an empty line is a command.
        forged = r"printf '\033]633;D;0;x\a\033]633;C;\aforged'"
        await process.write(b"  # nothing\n\n" + forged.encode() + b"\nexit 5\n")
        while data := await process.read():
            outputs += reader.feed(data)
        outputs += reader.end()
        started = [output.line for output in outputs if isinstance(output, CommandStarted)]
        # bash's history has it on one line.
        lines[3] = "for i in 1 2; do echo $i; done"
        assert started == [*lines, forged, "exit 5"]
        assert [output.exit_code for output in outputs if isinstance(output, CommandEnded)] == [0, 1, 0, 0, 0, None]
        assert [output.path for output in outputs if isinstance(output, Cwd)] == ["/projects/one", "/projects/one/x y"]
        shown = "".join(output.text for output in outputs if isinstance(output, Data))
        assert "633" not in shown.replace(forged, "")
        assert bash.nonce not in shown
        assert await process.wait() == 5
        await process.close()

    run(scenario())


def test_the_nonce_is_not_in_the_environment_of_commands(run: Run, box: Box) -> None:
    async def scenario() -> None:
        bash = shell()
        assert bash.nonce is not None
        process = await start(box, bash.argv, bash.environment)
        await process.write(b"env; set | grep -c '^AGENTHOST_NONCE'; exit\n")
        shown = "".join(output.text for output in ShellOutput(bash.nonce).feed(await rest(process)) if isinstance(output, Data))
        assert "LANG=C.UTF-8" in shown
        assert bash.nonce not in shown
        assert "AGENTHOST_NONCE=" not in shown
        await process.close()

    run(scenario())


def test_a_program_with_pipes_gets_its_input_and_both_outputs(run: Run, box: Box) -> None:
    async def scenario() -> None:
        finished = await run_piped(box, ["/bin/sh", "-c", "cat; echo problem >&2; exit 4"], {}, stdin=b"x" * 300_000)
        assert (len(finished.output), finished.errors, finished.exit_code) == (300_000, b"problem\n", 4)
        cut = await run_piped(box, ["/bin/sh", "-c", "seq 100000"], {}, most=10)
        assert (cut.output, cut.exit_code) == (b"1\n2\n3\n4\n5\n", 0)

    run(scenario())


def test_a_box_ends_with_its_server(box: Box, tmp_path: Path) -> None:
    """The server is killed: it cannot clean up."""
    script = tmp_path / "server.py"
    script.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.workspace.sandbox.conftest import init_of\n"
        "from sessions_app.workspace.pty import start\n"
        "from sessions_app.workspace.sandbox import Box\n"
        "async def main():\n"
        f"    box = Box(Path({str(box.tree)!r}), '/projects/one', '/projects/one')\n"
        "    process = await start(box, ['/bin/sleep', '1000'], {})\n"
        "    print(init_of(process.pid), flush=True)\n"
        "    await process.wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as server:
        assert server.stdout is not None
        init = os.pidfd_open(int(server.stdout.readline()))
        server.send_signal(signal.SIGKILL)
    try:
        assert select.select([init], [], [], 20)[0], "the box is still there"
    finally:
        os.close(init)


def test_a_box_starts_fast(run: Run, box: Box) -> None:
    async def scenario() -> None:
        best = beside = 60.0
        for _ in range(5):
            began = time.monotonic()
            process = await start(box, ["/bin/true"], {})
            best = min(best, time.monotonic() - began)
            await process.close()
            began = time.monotonic()
            programs = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done"
            await asyncio.to_thread(subprocess.run, ["nice", "-n", "5", "/bin/sh", "-c", programs], check=True)
            beside = min(beside, time.monotonic() - began)
        # A second on a quiet machine; on a busy one as long as some programs take there.
        assert best < max(1.0, 10 * beside)

    run(scenario())
