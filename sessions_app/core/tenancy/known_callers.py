"""Callers by the digest of their keys and tokens, for optimistic calls: their transactions check that nothing has changed."""

from __future__ import annotations

import time

from sessions_app.core.base import loop_calls
from sessions_app.core.base.caller import Caller
from sessions_app.core.base.raw_sql import Statement

_MOST = 10_000
_SECONDS = 30.0
"""So that ``last_used_at``, which is updated once a minute, stays true."""
_known: dict[str, tuple[Caller, Statement, float]] = {}


def remember(digest: str, caller: Caller, unchanged: Statement) -> None:
    """``unchanged`` fails the transaction if the caller would be another one now, or none."""
    while len(_known) >= _MOST:
        _known.pop(next(iter(_known)), None)
    _known[digest] = (caller, unchanged, time.monotonic())


def get(digest: str) -> Caller | None:
    """In an optimistic call: the caller as it was read last, for at most half a minute."""
    found = _known.get(digest) if loop_calls.is_optimistic() else None
    if found is None or time.monotonic() - found[2] > _SECONDS:
        return None
    caller, unchanged, _ = found
    loop_calls.assume(unchanged)
    return caller


def forget(digest: str) -> None:
    _known.pop(digest, None)


def forget_all() -> None:
    """For tests: clear the cache, as in a new process."""
    _known.clear()
