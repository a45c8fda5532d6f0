"""Where in the code an exception came from, for the log: its words may quote what a user wrote, so they are left out."""

from __future__ import annotations

import traceback
from pathlib import Path


def of(error: BaseException) -> str:
    """Its type, and a line for each frame that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"  {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames]
    return "\n".join([f"  {type(error).__name__}", *lines])
