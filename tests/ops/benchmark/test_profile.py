"""What a turn costs by process and thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from ops.benchmark import processes, profile
from ops.benchmark.processes import Thread
from ops.benchmark.profile import Cost, Snapshot

_NAMED = """
import os, threading
from concurrent.futures import ThreadPoolExecutor
threading.Thread(target=os.read, args=(0, 1), name="journal-barrier").start()
ThreadPoolExecutor(1).submit(lambda: (os.write(1, b"ready\\n"), os.read(0, 1)))
"""


def snapshot(**threads: Cost) -> Snapshot:
    return Snapshot({number: (("web", name), cost) for number, (name, cost) in enumerate(threads.items())}, Counter(), Counter())


def test_what_the_idle_server_does_in_the_same_time_is_no_cost_of_a_turn() -> None:
    before, loaded, idle = (snapshot(loop=Cost(cpu, waits, 1.0)) for cpu, waits in ((1.0, 10), (3.0, 60), (3.5, 70)))
    found = profile.costs(before, loaded, idle, 10)
    assert list(found) == [("web", "loop")]
    cost = found["web", "loop"]
    assert (cost.cpu, cost.waits, cost.preemptions) == pytest.approx((0.15, 4.0, 0.0))


def test_a_thread_that_started_during_the_load_costs_what_it_used() -> None:
    loaded = snapshot(loop=Cost(2.0, 20.0, 0.0))
    assert profile.costs(snapshot(), loaded, loaded, 10) == {("web", "loop"): Cost(0.2, 2.0, 0.0)}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("request-3", "request"),
        ("pool-0_1", "pool"),
        ("journal-barrier", "journal-barrier"),
        ("Thread-4 (run)", "Thread"),
        ("7", "7"),
    ],
)
def test_threads_of_a_pool_have_one_line(name: str, shown: str) -> None:
    assert profile.thread_name(2, Thread(1, name, 0.0, 0, 0)) == shown


def test_a_processs_first_thread_is_main() -> None:
    assert profile.thread_name(1, Thread(1, "python", 0.0, 0, 0)) == "main"


def test_the_table_has_parts_with_their_sums() -> None:
    found = {
        ("web", "main"): Cost(0.001, 2.0, 0.5),
        ("web", "request"): Cost(0.002, 3.0, 0.0),
        ("web", "idle"): Cost(),
        ("Redis", "main"): Cost(0.0005, 1.0, 0.0),
    }
    assert profile.cost_table(found)[2:] == [
        "| **web** | 3,000 | 5.0 | 0.5 |",
        "| web: request | 2,000 | 3.0 | 0.0 |",
        "| web: main | 1,000 | 2.0 | 0.5 |",
        "| **Redis** | 500 | 1.0 | 0.0 |",
        "| Redis: main | 500 | 1.0 | 0.0 |",
        "| **all** | 3,500 | 6.0 | 0.5 |",
    ]


@pytest.mark.skipif(not processes.available(), reason="names of threads are in /proc")
def test_threads_have_their_names_in_the_kernel() -> None:
    environment = {**os.environ, "PYTHONPATH": str(profile.NAMES)}
    process = subprocess.Popen(
        [sys.executable, "-c", _NAMED], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        names = {thread.name for thread in processes.threads([process.pid]).values()}
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert {"journal-barrier", "pool-0_0"} <= names
