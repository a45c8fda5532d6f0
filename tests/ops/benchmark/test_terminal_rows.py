"""Parts of the rows about terminals and files."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from ops.benchmark import file_rows, terminal_rows
from ops.benchmark.against import PeerServer
from ops.benchmark.load import floor
from ops.benchmark.setting import QUICK, Bench
from sessions_app.workspace import sandbox


async def test_each_keystroke_differs_from_the_one_before() -> None:
    typed: list[str] = []

    async def press(character: str) -> None:
        typed.append(character)

    took = await terminal_rows.echo_seconds(press, 60, pause=0)
    assert len(took) == len(typed) == 60
    assert all(one != other for one, other in pairwise(typed))


def test_echoes_are_compared_with_the_floor() -> None:
    median, slow = terminal_rows.echo_figures("here", [0.010] * 90 + [0.050] * 10, [0.001] * 100)
    assert (median.ours, median.floor) == (10, 1)
    assert (slow.ours, slow.floor) == (50, 1)
    assert median.label != slow.label


def test_idle_work_is_no_cost_of_the_load() -> None:
    used = terminal_rows.without_idle({"web": 2.0, "worker": 0.1}, {"web": 0.1, "worker": 0.02}, 10)
    assert used == {"web": 1.0, "worker": 0.0}


async def test_the_floor_of_echoes_is_a_sandbox_with_a_terminal(tmp_path: Path) -> None:
    if reason := sandbox.check():
        pytest.skip(reason)
    async with terminal_rows.alone(tmp_path, terminal_rows.ECHOES) as process:
        took = await terminal_rows.echoes_alone(process, 3)
    assert len(took) == 3
    async with terminal_rows.alone(tmp_path, terminal_rows.PRINTS) as process:
        assert await terminal_rows.bytes_alone(process, 0.5) > 10_000


def test_the_floor_of_files_reads_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("text")
    assert file_rows.listed(tmp_path) > 0
    assert file_rows.read(tmp_path / "one") > 0
    with pytest.raises(FileNotFoundError):
        file_rows.read(tmp_path / "none")


async def test_without_a_sandbox_one_line_says_why_the_rows_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "check", lambda: "bubblewrap (bwrap) is not installed")
    said: list[str] = []
    bench = Bench(QUICK, tmp_path, PeerServer(floor(1), []), 0, ExitStack(), said.append)
    for row in terminal_rows.ROWS:
        assert await row.measure(bench) == []
    assert said == ["the rows about terminals are left out: bubblewrap (bwrap) is not installed"]
