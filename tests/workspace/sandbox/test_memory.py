"""The memory of all sandboxes together is limited: the largest of the tenant that takes most is ended, and no other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions_app.workspace import memory, watchdog
from sessions_app.workspace.limits import GIB, MIB, Limits
from sessions_app.workspace.memory import Board, Machine, Standing, Taken
from sessions_app.workspace.process import PipedProcess, start_piped
from sessions_app.workspace.sandbox import Box
from tests.workspace.sandbox.conftest import box_in

LIMITS = Limits(memory_bytes=GIB, processes=40)
HOST = Machine(8 * GIB, 4 * GIB)
FULL = "head -c {bytes} /dev/zero > /{where}/full; echo ready; sleep 1000"
HELD = "(head -c {bytes} /dev/zero; echo ready >&2; sleep 1000) | tail"


@pytest.fixture(autouse=True)
def _board_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(memory, "DIRECTORY", tmp_path / "board")
    monkeypatch.setattr(memory, "machine", lambda: HOST)
    monkeypatch.setattr(watchdog, "BUSY_SECONDS", 0.05)
    yield
    memory.set_budget(None)


def box_of(directory: Path, group: str) -> Box:
    made = directory / f"box-{len(list(directory.iterdir()))}"
    made.mkdir()
    return box_in(made, LIMITS, group=group)


async def started(box: Box, program: str) -> PipedProcess:
    process = await start_piped(box, ["/bin/bash", "-c", program], {})
    assert await asyncio.wait_for((process.errors if "tail" in program else process.stdout).read(), 30) == b"ready\n"
    return process


@pytest.mark.parametrize(
    "program",
    [HELD.format(bytes=150_000_000), FULL.format(bytes=150_000_000, where="tmp"), FULL.format(bytes=60_000_000, where="dev/shm")],
    ids=["processes", "tmp", "shared memory"],
)
def test_the_largest_sandbox_is_ended_and_told_the_limit(tmp_path: Path, program: str) -> None:
    async def scenario() -> None:
        small = await started(box_of(tmp_path, "1"), HELD.format(bytes=20_000_000))
        large = await started(box_of(tmp_path, "2"), program)
        try:
            memory.set_budget(70 * MIB)
            assert await asyncio.wait_for(large.wait(), 30) is None
            assert large.killed_for is not None
            assert large.killed_for.startswith("memory: this sandbox took ")
            assert "(AGENTHOST_SANDBOX_TOTAL_MEMORY_BYTES)" in large.killed_for
            assert small.killed_for is None
        finally:
            await small.close()
            await large.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_of_the_tenant_that_takes_most_the_largest_is_ended_and_no_other(tmp_path: Path) -> None:
    """One tenant has three boxes, none of which is the largest of the host."""

    async def scenario() -> None:
        alone = await started(box_of(tmp_path, "alone"), HELD.format(bytes=90_000_000))
        many = [await started(box_of(tmp_path, "many"), HELD.format(bytes=size)) for size in (50_000_000, 70_000_000, 40_000_000)]
        try:
            memory.set_budget(230 * MIB)
            await asyncio.wait_for(many[1].wait(), 30)
            assert many[1].killed_for is not None
            # It is enough: several looks later the others still run.
            for _ in range(5):
                await asyncio.sleep(watchdog.BUSY_SECONDS)
            assert [process.killed_for for process in (alone, many[0], many[2])] == [None] * 3
        finally:
            for process in (alone, *many):
                await process.close()

    asyncio.run(asyncio.wait_for(scenario(), 90))


OTHER = """
import sys, time
from pathlib import Path
from sessions_app.workspace import memory
memory.DIRECTORY = Path(sys.argv[1])
board = memory.Board()
while True:
    board.publish(memory.Standing(int(sys.argv[2]), {"other": memory.Taken(int(sys.argv[2]), int(sys.argv[2]))}))
    print("published", flush=True)
    time.sleep(0.05)
"""


def test_sandboxes_of_another_process_count_until_it_dies(tmp_path: Path) -> None:
    def victim(mine: int) -> str | None:
        standing = Standing(mine, {"mine": Taken(mine, mine)})
        found = memory.victim(standing, board.others(), Machine(8 * GIB, 4 * GIB))
        return None if found is None else found[0]

    memory.set_budget(GIB)
    board = Board()
    arguments = [sys.executable, "-c", OTHER, str(tmp_path / "board"), str(600 * MIB)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert victim(300 * MIB) is None
        assert victim(700 * MIB) == "mine"
        # Together too much, and the other process has the larger one.
        assert victim(500 * MIB) is None
        other.kill()
    assert victim(700 * MIB) is None
    assert not list((tmp_path / "board").iterdir())


def test_what_a_process_publishes_can_be_read_at_each_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that finds half of it would leave that process out."""
    board, reader, written, seen = Board(), Board(), os.pwrite, list[list[int]]()

    def pwrite(file: int, data: bytes, offset: int) -> int:
        size = written(file, data, offset)
        seen.append([standing.bound for standing in reader.others()])
        return size

    monkeypatch.setattr(os, "pwrite", pwrite)
    for group in ("a" * 100, "b"):
        board.publish(Standing(len(group), {group: Taken(1, 1)}))
    board.withdraw()
    assert seen == [[100], [1]]


def test_when_memory_is_scarce_the_largest_is_ended_below_the_limit_but_no_small_one() -> None:
    def victim(size: int, host: Machine) -> str | None:
        standing = Standing(size, {"a": Taken(size, size)})
        assert memory.is_crowded(standing, [], host)
        found = memory.victim(standing, [], host)
        return None if found is None else found[1]

    scarce = Machine(8 * GIB, 300 * MIB)
    assert victim(100 * MIB, scarce) == "memory: this sandbox took 100.0 MiB when this host had no memory left"
    assert victim(20 * MIB, scarce) is None


def test_nothing_is_ended_while_another_end_is_on_its_way_or_the_figures_are_not_exact() -> None:
    memory.set_budget(GIB)
    mine = Standing(2 * GIB, {"a": Taken(2 * GIB, GIB)})
    assert memory.victim(mine, [], HOST) is not None
    assert memory.victim(mine, [Standing(0, {}, ending=True)], HOST) is None
    assert memory.victim(mine, [Standing(GIB)], HOST) is None
    assert memory.victim(Standing(2 * GIB), [], HOST) is None


def test_a_containers_limit_is_its_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
    found = memory.read_machine(tmp_path / "meminfo", tmp_path)
    assert (found.total, found.available) == (8 * GIB, 4 * GIB)
    for name, text in (("max", str(2 * GIB)), ("current", str(GIB)), ("stat", f"anon 5\ninactive_file {512 * MIB}\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    found = memory.read_machine(tmp_path / "meminfo", tmp_path)
    assert (found.total, found.available) == (2 * GIB, GIB + 512 * MIB)
    memory.set_budget(None)
    assert found.budget == GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.read_machine(tmp_path / "meminfo", tmp_path).total == 8 * GIB


def test_what_is_no_figure_of_a_process_is_not_read(tmp_path: Path) -> None:
    board = Board()
    board.publish(Standing(5))
    assert not board.others()
    other = Board()
    (published,) = other.others()
    assert published.bound == 5
    (tmp_path / "board" / "link").symlink_to("/etc/passwd")
    (mine,) = [path for path in (tmp_path / "board").iterdir() if not path.is_symlink()]
    mine.write_text(json.dumps([1]))
    assert not other.others()
    board.withdraw()
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["link"]
    assert os.readlink(tmp_path / "board" / "link") == "/etc/passwd"  # noqa: PTH115
