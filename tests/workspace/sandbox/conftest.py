"""Boxes around empty trees, for tests that run real ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sessions_app.workspace import process, sandbox
from sessions_app.workspace.limits import Limits
from sessions_app.workspace.process import BoxProcess
from sessions_app.workspace.sandbox import Box

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="session", autouse=True)
def _a_sandbox_can_be_had() -> None:
    if reason := sandbox.check():
        pytest.skip(reason)


def box_in(directory: Path, limits: Limits | None = None, **fields: Any) -> Box:
    """A box around a new tree below `directory`."""
    tree = directory / "tree"
    tree.mkdir(exist_ok=True)
    if who := sandbox.owner():
        os.chown(tree, *who)
    where = {"mounted_at": "/projects/one", "cwd": "/projects/one", **fields}
    return Box(tree, limits=limits or Limits(), **where)


def init_of(pid: int) -> int:
    """The pid of the box's init; `pid` is that of its bubblewrap."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def status_of(pid: int) -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[BoxProcess]:
    """The processes of boxes, as they are made."""
    found: list[BoxProcess] = []

    class Noted(BoxProcess):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            found.append(self)

    monkeypatch.setattr(process, "BoxProcess", Noted)
    return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return box_in(tmp_path)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on an event loop of each kind."""

    def running(scenario: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(scenario, 60))

    return running
