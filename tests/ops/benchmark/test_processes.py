"""CPU, memory and context switches of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ops.benchmark import processes

pytestmark = pytest.mark.skipif(not processes.available(), reason="the figures of processes are in /proc")

_FORKS = """
import os, sys
shared = bytearray(b"x" * (64 << 20))
for _ in range(int(sys.argv[1])):
    if not os.fork():
        break
os.write(1, b"ready\\n")
sys.stdin.read()
"""
_WAITS = "import os; os.write(1, b'ready\\n'); os.read(0, 1)"

_MAPS = "import mmap; own = mmap.mmap(-1, 16 << 20); own.write(b'x' * (16 << 20)); " + _WAITS


@contextmanager
def running(code: str, *arguments: str, ready: int = 1) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        for _ in range(ready):
            assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_a_process_has_used_time_and_memory() -> None:
    assert processes.cpu_seconds([os.getpid()]) > 0
    assert processes.pss_mib([os.getpid()]) > 1


def test_a_page_that_forks_share_counts_once() -> None:
    with running(_FORKS, "0") as alone:
        one = processes.pss_mib([alone])
    with running(_FORKS, "3", ready=4) as parent:
        assert len(processes.tree([parent])) == 4
        assert processes.pss_mib([parent]) < one + 32


def test_a_process_can_be_measured_without_its_descendants() -> None:
    with running(_FORKS, "3", ready=4) as parent:
        assert processes.pss_mib([parent], alone=True) < processes.pss_mib([parent])
        assert processes.cpu_seconds([parent], alone=True) <= processes.cpu_seconds([parent])


def test_a_file_that_another_program_has_loaded_too_counts_in_full() -> None:
    with running(_WAITS) as pid:
        before = processes.pss_mib([pid])
        with running(_WAITS):
            assert processes.pss_mib([pid]) == pytest.approx(before, abs=0.3)


def test_shared_memory_counts_once() -> None:
    with running(_WAITS) as empty, running(_MAPS) as full:
        assert processes.pss_mib([full]) == pytest.approx(processes.pss_mib([empty]) + 16, abs=3)


def test_a_thread_that_waits_is_counted() -> None:
    def answer() -> None:
        for _ in range(50):
            asked.acquire()
            answered.release()

    asked, answered = threading.Semaphore(0), threading.Semaphore(0)
    before = processes.switches([os.getpid()])
    waiting = threading.Thread(target=answer, daemon=True)
    waiting.start()
    for _ in range(49):
        asked.release()
        answered.acquire()
    during = processes.threads([os.getpid()])
    after = processes.switches([os.getpid()])
    asked.release()
    waiting.join()
    assert waiting.native_id is not None
    assert during[waiting.native_id].waits >= 10
    assert during[waiting.native_id].pid == os.getpid()
    assert after >= before + 10
