"""What of an exception may be logged: its kind and its places, never its words.

The words of an error may quote what somebody wrote: a database's error quotes the row it refused.
"""

from __future__ import annotations

import traceback


def kinds(error: BaseException) -> str:
    """The exception's class and those of its causes."""
    found: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < 5:
        found.append(type(cause).__name__)
        cause = cause.__cause__
    return " from ".join(found)


def described(error: BaseException) -> str:
    """The same, and where it was raised."""
    return kinds(error) + "\n" + "".join(traceback.format_tb(error.__traceback__))
