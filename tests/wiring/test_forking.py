"""Processes that are forked from one parent: start, restart, stop and exit codes, with real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

PARENT = """
import logging, os, signal, sys, threading
from pathlib import Path
from agenthost import forking

behaviour, directory = sys.argv[1], Path(sys.argv[2])
logging.basicConfig(level="INFO", stream=sys.stderr, format="%(message)s")

def work():
    if behaviour == "dies":
        return 7
    stop = threading.Event()
    for number in forking.STOPPING_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
    (directory / f"child-{os.getpid()}").touch()
    stop.wait()
    (directory / f"drains-{os.getpid()}").touch()
    if behaviour == "hangs":
        threading.Event().wait()
    return 3 if behaviour == "fails" else 0

def check():
    print("checked", flush=True)
    return 9 if behaviour == "refused" else 0

if behaviour == "thread":
    threading.Thread(target=threading.Event().wait, name="of-an-agent", daemon=True).start()
forking.STABLE_SECONDS = 0.0 if behaviour == "stable" else 30.0
sys.exit(forking.run(2, work, check=check, on_stop=lambda: print("listener closed", flush=True)))
"""


class Parent:
    def __init__(self, behaviour: str, directory: Path) -> None:
        self.directory = directory
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", PARENT, behaviour, str(directory)],
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

    def ended(self) -> int:
        return self.popen.wait(60)


def is_running(pid: int) -> bool:
    try:
        # A process that has ended stays as a zombie until its parent looks.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
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
    assert parent.said().count("listener closed") == 1


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
