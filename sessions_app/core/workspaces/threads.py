"""The threads in which coroutines work on files: bounded, and shared fairly between tenants."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar

from sessions_app.core.base import database
from sessions_app.core.base.errors import FilesAway

P = ParamSpec("P")
T = TypeVar("T")

WAIT_SECONDS = 30.0
"""How long a call waits for a thread: the tenant's others are busy."""
LONGEST_SECONDS = 300.0
"""How long a call may take before its caller gets an error. Its thread continues."""


async def run(owner: Hashable, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``fn`` in a thread of the owner's share, at most half of all; the owners are tenants, by their numbers.

    FilesAway: no thread, or no result, in time.
    """
    try:
        return await database.run_with_disk(owner, LONGEST_SECONDS, WAIT_SECONDS, fn, *args, **kwargs)
    except TimeoutError:
        raise FilesAway from None
