"""The regular looks at the keys of open streams and connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.core.tenancy import key_watch
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota

WORDS = "words that must not be logged"


@pytest.mark.rule("A2")
async def test_looks_go_on_after_any_error_which_is_logged_once_and_without_its_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Exception | dict[int, Caller]] = [RuntimeError(WORDS), RuntimeError(WORDS), {}]

    async def run(*_: Any) -> dict[int, Caller]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(database, "run", run)
    monkeypatch.setattr(key_watch, "_CHECK_SECONDS", 0.001)
    ended = asyncio.Event()
    caller = Caller(tenant=7, key=1, key_prefix="", scopes=frozenset({"*"}))
    with key_watch.watching(Slot(Quota.STREAMS_AT_ONCE, caller)) as key:
        key.on_end(ended.set)
        await asyncio.wait_for(ended.wait(), 60)
    assert caplog.text.count("periodic_task_failing task='key watch'") == 1
    assert WORDS not in caplog.text
