"""Descriptions of exceptions that are safe to log: classes and stack frames, never the message.

A message may quote what somebody wrote: a database's error quotes the row that it refused.
"""

from __future__ import annotations

import traceback
from pathlib import Path


def kinds(error: BaseException) -> str:
    """The exception's class and the classes of its causes."""
    found: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < 5:
        found.append(type(cause).__name__)
        cause = cause.__cause__
    return " from ".join(found)


def described(error: BaseException) -> str:
    """The classes and the traceback with its source lines: for errors in this project's code."""
    return kinds(error) + "\n" + "".join(traceback.format_tb(error.__traceback__))


def without_source(error: BaseException) -> str:
    """The class and the stack frames without source lines: for errors in the code of agents and tools."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n".join([f"  {type(error).__name__}", *lines])
