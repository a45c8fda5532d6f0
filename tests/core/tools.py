"""Tools of the core's tests: they count how often they ran, in this process."""

from __future__ import annotations

import threading

runs: list[tuple[str, int]] = []
entered = threading.Event()
release = threading.Event()


def forget() -> None:
    runs.clear()
    entered.clear()
    release.clear()


def add_one(n: int) -> str:
    """Adds one."""
    runs.append(("add_one", n))
    return str(n + 1)


def blow_up(n: int) -> str:
    """Fails."""
    runs.append(("blow_up", n))
    raise ValueError("/etc/passwd is none of your business")


def block(n: int) -> str:
    """Waits for the test."""
    runs.append(("block", n))
    entered.set()
    release.wait(120)
    return "released"


def hidden(n: int) -> str:
    """Runs inline."""
    runs.append(("hidden", n))
    return f"hidden {n}"
