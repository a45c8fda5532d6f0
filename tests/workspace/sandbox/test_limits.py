"""What a box uses in total is limited: the watchdog ends it and gives the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sessions_app.workspace import memory, watchdog
from sessions_app.workspace.limits import GIB, MIB, Limits
from sessions_app.workspace.process import Finished, run_piped
from tests.workspace.sandbox.conftest import box_in

LIMITS = Limits(memory_bytes=128 * MIB, processes=40, cpu_seconds=3600, file_bytes=GIB, temporary_files=2000)
BASH = "/bin/bash"


def ran(directory: Path, limits: Limits, program: str, monkeypatch: pytest.MonkeyPatch) -> Finished:
    monkeypatch.setattr(watchdog, "BUSY_SECONDS", 0.05)
    return asyncio.run(asyncio.wait_for(run_piped(box_in(directory, limits), [BASH, "-c", program], {}), 60))


def test_memory_of_all_processes_together_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each holds a third of the limit: a line without an end.
    program = "for i in 1 2 3 4 5; do (head -c 40000000 /dev/zero; sleep 1000) | tail & done; wait"
    finished = ran(tmp_path, LIMITS, program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("memory: ")
    assert "the limit is 128.0 MiB" in finished.killed_for
    assert finished.exit_code is None


@pytest.mark.slow
def test_a_fork_bomb_ends_at_the_limit_and_another_box_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, lifetime_seconds=3.0)
    (tmp_path / "other").mkdir()

    async def scenario() -> None:
        bomb = asyncio.create_task(run_piped(box_in(tmp_path, limits), [BASH, "-c", "b() { b | b & }; b; sleep 1000"], {}))
        beside = await run_piped(box_in(tmp_path / "other", limits), [BASH, "-c", "for i in 1 2 3; do echo $i | cat; done"], {})
        assert beside.output == b"1\n2\n3\n"
        finished = await bomb
        assert b"fork" in finished.errors
        assert finished.killed_for == "lifetime: the limit of 3 s is over"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, disk_bytes=20 * MIB)
    program = "i=0; while :; do i=$((i+1)); head -c 4000000 /dev/zero > file$i; done"
    finished = ran(tmp_path, limits, program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("disk: the workspace takes")
    taken = sum(path.stat().st_size for path in (tmp_path / "tree").iterdir())
    assert taken < 2 * GIB


@pytest.mark.slow
def test_a_disk_is_not_filled_with_files_that_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, disk_bytes=20 * MIB)
    program = "exec 5>file; rm file; while :; do head -c 4000000 /dev/zero >&5; done"
    finished = ran(tmp_path, limits, program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("disk: the workspace takes")


@pytest.mark.slow
def test_a_workspace_has_a_limit_of_files_that_hidden_directories_do_not_evade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "DISK_SECONDS", 0.2)
    limits = replace(LIMITS, disk_files=500)
    program = "while :; do mkdir d$((++i)); (cd d$i; touch $(seq 100)); chmod 0 d$i; done"
    finished = ran(tmp_path, limits, program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("disk: the workspace has")


def test_a_workspace_that_is_full_already_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(LIMITS, disk_bytes=MIB)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(bytes(3 * MIB))
    # Busy until it has been measured.
    monkeypatch.setattr(watchdog, "DISK_SECONDS", 0.0)
    finished = ran(tmp_path, limits, "for i in $(seq 300); do /bin/true; done; rm -f large; exit 6", monkeypatch)
    assert (finished.killed_for, finished.exit_code) == (None, 6)


def test_temporary_files_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = ran(
        tmp_path, LIMITS, "cd /tmp; while :; do i=$((i+1)); touch $(seq $((i*1000)) $((i*1000+999))); done", monkeypatch
    )
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("temporary files: ")


def test_files_of_dev_shm_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "cd /dev/shm; while :; do i=$((i+1)); touch $(seq $((i*1000)) $((i*1000+999))); done"
    finished = ran(tmp_path, LIMITS, program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.endswith("in /dev/shm; the limit is 2,000")


FULL_SOCKETS = """
import socket, time
pairs = []
while True:
    pairs.append(socket.socketpair())
    for each in pairs[-1]:
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            while True:
                each.send(bytes(30_000))
        except BlockingIOError:
            pass
    if len(pairs) == 500:
        time.sleep(1000)
"""


def test_memory_in_the_buffers_of_sockets_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = 'for i in 1 2 3 4; do python3 -c "$FULL" & done; sleep 1000'
    monkeypatch.setattr(watchdog, "BUSY_SECONDS", 0.05)
    box = box_in(tmp_path, LIMITS)
    finished = asyncio.run(asyncio.wait_for(run_piped(box, [BASH, "-c", program], {"FULL": FULL_SOCKETS}), 60))
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("sockets: ")
    assert "the limit is 256" in finished.killed_for


def test_an_idle_box_is_looked_at_when_the_memory_of_the_machine_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "BUSY_SECONDS", 0.05)
    looked = asyncio.Event()

    def look(_due: Iterable[watchdog.Watched], _now: float) -> list[tuple[watchdog.Watched, str]]:
        loop.call_soon_threadsafe(looked.set)
        return []

    monkeypatch.setattr(watchdog, "_looked", look)
    available = iter([4 * GIB, 4 * GIB, 4 * GIB - watchdog.MEMORY_STEP_BYTES])
    monkeypatch.setattr(memory, "machine", lambda: memory.Machine(8 * GIB, next(available, GIB)))

    async def scenario() -> None:
        watched = watchdog.watchdog().watch(box_in(tmp_path, LIMITS), 1, lambda _reason: None)
        watched.due = 1e12
        await asyncio.wait_for(looked.wait(), 60)
        watched.stop()

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(scenario())


def test_cpu_time_of_short_processes_is_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "while :; do (for ((i = 0; i < 20000; i++)); do :; done); done"
    finished = ran(tmp_path, replace(LIMITS, cpu_seconds=1), program, monkeypatch)
    assert finished.killed_for is not None
    assert finished.killed_for.startswith("CPU: ")


def test_a_lifetime_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = ran(tmp_path, replace(LIMITS, lifetime_seconds=0.3), "sleep 1000", monkeypatch)
    assert finished.killed_for == "lifetime: the limit of 0 s is over"
    assert finished.exit_code is None


def test_an_idle_box_is_looked_at_less_often_until_it_gets_input(tmp_path: Path) -> None:
    box = box_in(tmp_path, LIMITS)
    dog = watchdog.Watchdog()
    watched = watchdog.Watched(box, 1, lambda _reason: None, dog, 0.0, 0.0)
    watched.busy = False
    intervals = []
    for _ in range(7):
        watched.interval = watchdog.BUSY_SECONDS if watched.busy else min(watchdog.IDLE_SECONDS, watched.interval * 2)
        intervals.append(watched.interval)
    assert intervals[-1] == watchdog.IDLE_SECONDS
    watched.due = 1e12
    watched.awake()
    assert watched.due < 1e12
