"""Python tools for agents of tests: they count what they do in files, block, fail and never end.

The directory in AGENTHOST_TEST_TOOL_DIR is shared by the test and the processes it starts, so a test can
prove how often a tool ran whichever worker ran it, and whether that worker still lives.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from opentelemetry import trace

DIRECTORY_VARIABLE = "AGENTHOST_TEST_TOOL_DIR"
LONGEST_BLOCK = 120.0


def _directory() -> Path:
    return Path(os.environ[DIRECTORY_VARIABLE])


def _note(tool: str, **arguments: Any) -> None:
    line = json.dumps({"tool": tool, "arguments": arguments, "pid": os.getpid()}) + "\n"
    # One short append is one write: lines of several processes do not mix.
    with (_directory() / "executions.jsonl").open("a") as file:
        file.write(line)


def tide_table(harbour: str) -> str:
    """Times of high and low water."""
    _note("tide_table", harbour=harbour)
    return f"high 06:12, low 12:31 in {harbour}"


def order_rope(metres: float, colour: str = "grey") -> str:
    """Orders mooring rope.

    Args:
        metres: how much of it
    """
    _note("order_rope", metres=metres, colour=colour)
    return f"{metres:g} m of {colour} rope ordered"


def whisper(words: str) -> str:
    """A tool that no client hears of."""
    _note("whisper", words=words)
    return f"psst: {words}"


def fail(reason: str) -> str:
    """Always fails."""
    _note("fail", reason=reason)
    raise RuntimeError(f"{reason} at /srv/insides.py")


def inventory() -> dict[str, Any]:
    """An answer that is not text."""
    _note("inventory")
    return {"ropes": [1.0, 2], "anchors": 9007199254740993, "flag": None}


def unprintable() -> str:
    """An answer with characters that a store cannot hold."""
    _note("unprintable")
    return "nul \x00 and half \ud800 a pair"


def verbose(letters: int) -> str:
    """A long answer."""
    _note("verbose", letters=letters)
    return "x" * letters


def block(gate: str) -> str:
    """Blocks its thread until the gate is opened."""
    _note("block", gate=gate)
    (_directory() / f"{gate}.reached").touch()
    until = time.monotonic() + LONGEST_BLOCK
    while not (_directory() / f"{gate}.open").exists():
        if time.monotonic() > until:
            raise TimeoutError("nobody opened the gate")
        time.sleep(0.02)
    (_directory() / f"{gate}.passed").touch()
    return f"through {gate}"


def block_again(gate: str) -> str:
    """Blocks like the other, but may run twice."""
    _note("block_again", gate=gate)
    return block(gate)


async def hang(gate: str) -> str:
    """Waits for ever, without a thread, until it is stopped."""
    _note("hang", gate=gate)
    (_directory() / f"{gate}.reached").touch()
    try:
        await asyncio.Event().wait()
    finally:
        (_directory() / f"{gate}.stopped").touch()
    return "never"


class ToolBox:
    """The test's side of the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def executions(self, tool: str, **arguments: Any) -> int:
        """How often the tool ran with (at least) these arguments."""
        path = self.directory / "executions.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return sum(line["tool"] == tool and arguments.items() <= line["arguments"].items() for line in lines)

    def open_gate(self, gate: str) -> None:
        (self.directory / f"{gate}.open").touch()

    def wait(self, gate: str, state: str = "reached", timeout: float = 60.0) -> None:
        """Until the gate is ``reached``, ``passed`` or (hang) ``stopped``."""
        until = time.monotonic() + timeout
        while not (self.directory / f"{gate}.{state}").exists():
            assert time.monotonic() < until, f"gate {gate} was not {state} within {timeout} s"
            time.sleep(0.01)


def place_in_trace() -> str:
    """The context that a tool sees by OpenTelemetry's own interface."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"
