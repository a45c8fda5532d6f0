"""A limited key's count of sessions, when events come while it is being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sessions_app.ahp.tenant.session_counts import SessionCount
from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller

CALLER = Caller(tenant=1, key=1, key_prefix="", scopes=frozenset(), key_agents=frozenset({"echo"}))


async def test_events_during_the_reading_of_the_count_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def run(_tenant: int, _fn: Callable[..., Any], *_args: Any) -> tuple[int, int]:
        asked.set()
        await may_answer.wait()
        return 10, 5

    monkeypatch.setattr(database, "run_for", run)
    counted = SessionCount(CALLER.sight)
    beginning = asyncio.create_task(counted.ready(CALLER))
    await asked.wait()
    counted.take(9, "echo", 1, 1)  # The count that is being read includes it.
    counted.take(12, "echo", 2, 1)
    counted.take(13, "pilot", 3, 1)
    assert counted.take_change() is None
    may_answer.set()
    await beginning
    assert counted.take_change() == 6
    assert counted.take_change() is None
    counted.take(14, "pilot", 4, 1)
    assert counted.take_change() is None
    counted.take(15, "echo", 1, -1)
    assert counted.take_change() == 5


async def test_a_count_that_could_not_be_read_is_read_again_by_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [OSError("the database is away"), (3, 1)]

    async def run(_tenant: int, _fn: Callable[..., Any], *_args: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(database, "run_for", run)
    counted = SessionCount(CALLER.sight)
    with pytest.raises(OSError, match="away"):
        await counted.ready(CALLER)
    await counted.ready(CALLER)
    counted.take(4, "echo", 1, 1)
    assert counted.take_change() == 2
