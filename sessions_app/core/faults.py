"""What of an exception may be logged: its kind and its places, never its words.

The words of an error may quote what somebody wrote: a database's error quotes the row it refused.
"""

from __future__ import annotations

import traceback


def described(error: BaseException) -> str:
    """The exception's class, those of its causes, and where it was raised."""
    kinds: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(kinds) < 5:
        kinds.append(type(cause).__name__)
        cause = cause.__cause__
    return " from ".join(kinds) + "\n" + "".join(traceback.format_tb(error.__traceback__))
