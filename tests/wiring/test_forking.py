"""Processes that are forked from one parent: start, restart, stop and exit codes, with real processes."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

PROGRAM = """
import logging, os, signal, socket, subprocess, sys, threading, time
from pathlib import Path
from agenthost import forking, supervisor

VERSION = 1
behaviour, directory = sys.argv[-2], Path(sys.argv[-1])

def mark(what):
    (directory / f"{what}-{os.getpid()}").touch()

def start_subprocess():
    code = "import os; print([each for each in range(3, 1000) if os.path.exists(f'/proc/self/fd/{each}')])"
    listed = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=True)
    print(f"a subprocess of {os.getpid()} has:", listed.stdout.strip(), supervisor._STATE in os.environ, flush=True)

def work():
    if behaviour == "dies":
        return 7
    # No threading.Event: a handler that sets it while the same thread is in its wait may wait for itself.
    signals = []
    for number in forking.STOPPING_SIGNALS:
        signal.signal(number, lambda *_: signals.append(True))
    signal.signal(signal.SIGHUP, lambda *_: mark("reloads"))
    if behaviour == "subprocess":
        start_subprocess()
    mark(f"version{VERSION}")
    mark("child")
    # A handler runs when the wait ends, so it is a short one.
    while not signals:
        time.sleep(0.05)
    if listener is not None:
        listener.close()
    mark("drains")
    if behaviour == "hangs":
        threading.Event().wait()
    return 3 if behaviour == "fails" else 0

def check():
    print("checked", flush=True)
    return 9 if behaviour == "refused" else 0

def main(arguments):
    global listener
    listener = None
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(message)s")
    if behaviour == "thread":
        threading.Thread(target=threading.Event().wait, name="of-an-agent", daemon=True).start()
    if behaviour == "stable":
        start = supervisor.Child.start
        def start_earlier(child, pid, pipe):
            start(child, pid, pipe)
            child.started -= 31
        supervisor.Child.start = start_earlier
    if behaviour == "signalled":
        execve = os.execve
        def after_signals(*arguments):
            for number in forking.STOPPING_SIGNALS:
                os.kill(os.getpid(), number)
            execve(*arguments)
        os.execve = after_signals
    if behaviour in ("lost", "other"):
        supervisor._FILE = str(directory / "supervisor.py")
    if behaviour == "other":
        Path(supervisor._FILE).touch()
    if behaviour == "subprocess" and forking.is_restart():
        start_subprocess()
    if behaviour == "slow" and forking.is_restart():
        mark("loads")
        threading.Event().wait()
    if behaviour in ("hangs", "works"):
        listener = forking.inherited_listener() or socket.create_server(("127.0.0.1", 0))
        (directory / "port").write_text(str(listener.getsockname()[1]))
    return forking.run(["program", *arguments], 2, work, check=check, listener=listener)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""


class Parent:
    def __init__(self, behaviour: str, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "program.py"
        self.program.write_text(PROGRAM)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}", "PYTHONUNBUFFERED": "1"}
        # The program changes, sometimes within the second that the time of a file has.
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "program", behaviour, str(directory)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def _log(self) -> Path:
        return self.directory / "log"

    def said(self) -> str:
        return self._log.read_text()

    def seen(self, what: str) -> set[int]:
        """The processes that have done this."""
        return {int(path.name.partition("-")[2]) for path in self.directory.glob(f"{what}-*")}

    def children(self, count: int = 2) -> set[int]:
        """The running children, when there are so many."""
        return self.until(
            lambda: found if len(found := {pid for pid in self.seen("child") if is_running(pid)}) == count else None
        )

    def until(self, found: Callable[[], set[int] | bool | None]) -> set[int]:
        end = time.monotonic() + 60
        while not (value := found()):
            assert time.monotonic() < end, self.said()
        return value if isinstance(value, set) else set()

    def supervised(self, count: int = 2) -> set[int]:
        """The running children, when the supervisor has taken over from the program that has forked them."""
        children = self.children(count)
        self.until(lambda: self.command()[:5] == [sys.executable, "-I", "-S", "-B", str(ROOT / "agenthost" / "supervisor.py")])
        return children

    def command(self) -> list[str]:
        return Path(f"/proc/{self.popen.pid}/cmdline").read_text().split("\0")

    def connects(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", int((self.directory / "port").read_text()))) == 0

    def ended(self) -> int:
        return self.popen.wait(60)


def is_running(pid: int) -> bool:
    try:
        # A process that has ended stays as a zombie until its parent looks, and is dead (X) for a moment.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Parent]]:
    started: list[Parent] = []

    def start(behaviour: str) -> Parent:
        started.append(Parent(behaviour, tmp_path))
        return started[-1]

    yield start
    for parent in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.popen.pid, signal.SIGKILL)
        parent.popen.wait(60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_drains_all_children(start: Callable[[str], Parent], number: signal.Signals) -> None:
    parent = start("works")
    children = parent.children()
    assert parent.popen.pid not in children
    parent.popen.send_signal(number)
    assert parent.ended() == 0, parent.said()
    assert parent.seen("drains") == children


def test_a_hangup_reaches_all_children_and_ends_nobody(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    children = parent.supervised()
    parent.popen.send_signal(signal.SIGHUP)
    parent.until(lambda: parent.seen("reloads") == children)
    victim, other = children
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    after = parent.supervised()
    assert other in after
    parent.popen.send_signal(signal.SIGHUP)
    parent.until(lambda: parent.seen("reloads") >= after)
    parent.popen.terminate()
    assert parent.ended() == 0, parent.said()


def test_the_parent_exits_with_its_childrens_status(start: Callable[[str], Parent]) -> None:
    parent = start("fails")
    parent.children()
    parent.popen.terminate()
    assert parent.ended() == 3


def test_a_killed_child_comes_back_and_the_other_one_is_not_affected(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    victim, other = parent.children()
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    after = parent.children()
    assert other in after
    assert victim not in after
    assert f"child_pid={victim} exit_code=137: it is started again in 0.5 s" in parent.said()
    parent.popen.terminate()
    assert parent.ended() == 0
    assert parent.seen("drains") == after


def test_a_child_that_ran_for_long_is_started_again_at_once(start: Callable[[str], Parent]) -> None:
    parent = start("stable")
    victim = min(parent.children())
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    parent.children()
    assert f"child_pid={victim} exit_code=137: it is started again in 0.0 s" in parent.said()


def test_a_child_that_was_stopped_alone_is_replaced(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    stopped = min(parent.children())
    os.kill(stopped, signal.SIGTERM)
    parent.until(lambda: not is_running(stopped))
    assert stopped not in parent.children()
    assert parent.seen("drains") == {stopped}


def test_a_child_that_cannot_start_waits_longer_each_time(start: Callable[[str], Parent]) -> None:
    parent = start("dies")

    def pauses() -> list[str]:
        return re.findall(r"child=1 child_pid=\d+ exit_code=7: it is started again in (\S+) s", parent.said())

    parent.until(lambda: len(pauses()) >= 3)
    assert pauses()[:3] == ["0.5", "1.0", "2.0"]
    parent.popen.terminate()
    # None of them runs, or one has just ended with its own status.
    assert parent.ended() in (0, 7)


def test_a_repeated_signal_to_the_whole_group_does_not_end_a_drain(start: Callable[[str], Parent]) -> None:
    """A terminal and some supervisors signal all processes of a group; the parent passes the same signal on."""
    parent = start("works")
    children = parent.children()
    os.killpg(parent.popen.pid, signal.SIGINT)
    assert parent.ended() == 0, parent.said()
    assert parent.seen("drains") == children


def test_a_second_signal_ends_children_that_do_not_end(start: Callable[[str], Parent]) -> None:
    parent = start("hangs")
    children = parent.children()
    parent.popen.terminate()
    parent.until(lambda: parent.seen("drains") == children)
    assert parent.popen.poll() is None
    parent.popen.terminate()
    assert parent.ended() == 128 + signal.SIGTERM
    assert not any(map(is_running, children))


def test_children_drain_and_end_when_their_parent_is_killed(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    children = parent.children()
    parent.popen.kill()
    parent.until(lambda: not any(map(is_running, children)))
    assert parent.seen("drains") == children
    assert "parent_gone" in parent.said()


def test_a_failed_check_starts_nothing(start: Callable[[str], Parent]) -> None:
    parent = start("refused")
    assert parent.ended() == 9
    assert parent.said() == "checked\n"


def test_a_thread_of_loaded_code_is_refused_with_its_name(start: Callable[[str], Parent]) -> None:
    parent = start("thread")
    assert parent.ended() == 1
    assert "--processes: " in parent.said()
    assert "(of-an-agent)" in parent.said()
    assert not parent.seen("child")


def test_the_parent_closes_the_listener_while_its_children_drain(start: Callable[[str], Parent]) -> None:
    parent = start("hangs")
    victim, other = parent.children()
    assert parent.connects()
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    # The restarted child serves the same socket, and the parent has it from one program to the next.
    children = parent.children()
    assert other in children
    assert parent.connects()
    parent.popen.terminate()
    parent.until(lambda: parent.seen("drains") == children)
    assert not parent.connects()
    assert parent.popen.poll() is None


def test_the_parent_is_replaced_by_a_program_that_has_loaded_no_code(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    victim, other = parent.supervised()

    def libraries(pid: int) -> set[str]:
        paths = {line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
        return {Path(path).name for path in paths if "site-packages" in path}

    assert any("orjson" in name for name in libraries(other))
    assert libraries(parent.popen.pid) == set()
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    assert other in parent.supervised()
    assert libraries(parent.popen.pid) == set()
    parent.popen.terminate()
    assert parent.ended() == 0


def test_a_restarted_child_has_the_code_of_now(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    victim, other = parent.supervised()
    parent.program.write_text(PROGRAM.replace("VERSION = 1", "VERSION = 2"))
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    (restarted,) = parent.children() - {other}
    assert parent.seen("version2") == {restarted}
    assert parent.seen("version1") == {victim, other}
    assert parent.said().count("checked") == 2


@pytest.mark.parametrize(
    "fault",
    ["syntax (", *(pytest.param(fault, marks=pytest.mark.slow) for fault in ("raise SystemExit(0)", "import os; os.nothing"))],
)
def test_code_that_cannot_be_loaded_is_tried_again_and_the_other_child_goes_on(
    start: Callable[[str], Parent], fault: str
) -> None:
    parent = start("works")
    victim, other = parent.supervised()
    parent.program.write_text(fault)
    os.kill(victim, signal.SIGKILL)

    def pauses() -> list[str]:
        return re.findall(r"child_not_started child=\d seconds=(\S+):", parent.said())

    parent.until(lambda: len(pauses()) >= 2)
    assert pauses()[:2] == ["1.0", "2.0"]
    assert is_running(other)
    parent.program.write_text(PROGRAM)
    assert other in parent.children()
    parent.popen.terminate()
    assert parent.ended() == 0
    assert other in parent.seen("drains")


def test_a_thread_that_changed_code_starts_is_refused_at_a_restart_too(start: Callable[[str], Parent]) -> None:
    parent = start("works")
    victim, other = parent.supervised()
    parent.program.write_text(PROGRAM.replace('behaviour == "thread"', "True"))
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: "child_not_started" in parent.said())
    assert "ImproperlyConfigured: --processes: " in parent.said()
    assert is_running(other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_code_is_loaded_stops_the_children(start: Callable[[str], Parent], number: signal.Signals) -> None:
    parent = start("slow")
    victim, other = parent.supervised()
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: bool(parent.seen("loads")))
    assert parent.seen("loads") == {parent.popen.pid}
    parent.popen.send_signal(number)
    assert parent.ended() == 0, parent.said()
    assert parent.seen("drains") == {other}


def test_children_drain_when_their_parent_is_killed_while_it_loads(start: Callable[[str], Parent]) -> None:
    parent = start("slow")
    victim, other = parent.supervised()
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: bool(parent.seen("loads")))
    parent.popen.kill()
    parent.until(lambda: not is_running(other))
    assert parent.seen("drains") == {other}


def test_a_signal_that_comes_before_the_supervisor_starts_is_not_lost(start: Callable[[str], Parent]) -> None:
    parent = start("signalled")
    # Two signals: the second one ends children that the first one has not ended yet.
    assert parent.ended() in (0, 128 + signal.SIGTERM), parent.said()
    assert "parent_stops children=2" in parent.said()


@pytest.mark.parametrize(("behaviour", "error"), [("lost", "FileNotFoundError"), ("other", "ValueError")])
def test_a_parent_that_cannot_be_replaced_supervises_itself(start: Callable[[str], Parent], behaviour: str, error: str) -> None:
    parent = start(behaviour)
    victim, other = parent.children()
    parent.until(lambda: f"supervisor_not_started: {error}" in parent.said())
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: "child_not_started child=" in parent.said())
    parent.popen.terminate()
    assert parent.ended() == 0
    assert parent.seen("drains") == {other}


def test_children_and_their_subprocesses_have_no_descriptor_of_the_parent(start: Callable[[str], Parent]) -> None:
    parent = start("subprocess")
    victim, other = parent.supervised()

    def opened(pid: int) -> dict[int, str]:
        found = {}
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[int(each.name)] = str(each.readlink())
        return {number: target for number, target in found.items() if number > 2}

    def has_one_open(pid: int) -> bool:
        return len(opened(pid)) == 1

    # While the interpreter starts, it has the file open too.
    parent.until(lambda: len(opened(parent.popen.pid)) == 4)
    os.kill(victim, signal.SIGKILL)
    parent.until(lambda: not is_running(victim))
    (restarted,) = parent.supervised() - {other}
    parent.until(lambda: len(opened(parent.popen.pid)) == 4)
    for child in (other, restarted):
        # While it writes what it says, it has that file open too.
        parent.until(functools.partial(has_one_open, child))
        (orders,) = opened(child).values()
        assert orders in opened(parent.popen.pid).values()
        assert f"a subprocess of {child} has: [] False" in parent.said()
    # Code may start one while it is loaded.
    assert f"a subprocess of {parent.popen.pid} has: [] False" in parent.said()


def test_the_supervisor_loads_only_light_modules() -> None:
    """Each parent of forked processes has them in its memory."""
    code = "import sys; __file__ = sys.argv[1]; exec(open(__file__).read().replace('__main__', '')); print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-B", "-c", code, str(ROOT / "agenthost" / "supervisor.py")]
    modules = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    heavy = {
        "agenthost",
        "django",
        "sessions_app",
        "agents_app",
        "asyncio",
        "dataclasses",
        "logging",
        "pathlib",
        "subprocess",
        "typing",
    }
    assert heavy.isdisjoint(modules)
    assert len(modules) < 70
