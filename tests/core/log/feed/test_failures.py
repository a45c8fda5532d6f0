"""A feed that fails: its readers are told and go on through another one; other tenants' feeds notice nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from sessions_app.core.base import database, supervision
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.log import feed, journal
from sessions_app.core.log.feed import TenantFollower, hub
from sessions_app.core.log.feed.tenant import TenantFeed
from tests.core.log.feed.conftest import Line, Lines, collect

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = "words of an event"


class Trouble:
    """What one tenant's feed meets; it is met once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def when_listening(self, line: Line) -> None:
        self._fail_once(line, "_take")

    def when_reading_the_journal(self, line: Line) -> None:
        self._fail_once(line, "_deliver_page")
        feed_of(line).catch_up()

    def when_looked_after(self, line: Line) -> None:
        self._fail_once(line, "compare")

    def _fail_once(self, line: Line, name: str) -> None:
        original = getattr(TenantFeed, name)

        def fail(of: TenantFeed, *args: Any, **kwargs: Any) -> Any:
            if of.tenant == line.tenant:
                self._monkeypatch.setattr(TenantFeed, name, original)
                raise RuntimeError(WORDS)
            return original(of, *args, **kwargs)

        self._monkeypatch.setattr(TenantFeed, name, fail)


def feed_of(line: Line) -> TenantFeed:
    return hub.current()._feeds[line.tenant]


async def _read_on(reader: feed.SessionReader) -> None:
    while True:
        await reader.next(1)


@pytest.mark.parametrize("trouble", ["when_listening", "when_reading_the_journal", "when_looked_after"])
async def test_readers_of_a_feed_that_fails_are_told_and_go_on_through_another(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    mine, other = await database.run(lines.line), await database.run(lines.line)
    ended = asyncio.Event()
    follower = TenantFollower(lambda *_: None, lambda: None, ended.set)
    async with feed.follow(other.tenant, other.session, 0) as quiet:
        async with feed.follow(mine.tenant, mine.session, 0) as reader, feed.follow_tenant(mine.tenant, follower):
            first = await mine.tell("a")
            assert await collect(reader, 1) == [first[0].seq]
            before = feed_of(mine)
            getattr(Trouble(monkeypatch), trouble)(mine)
            second = await mine.tell("b")
            with pytest.raises(PositionPruned):
                await asyncio.wait_for(_read_on(reader), 60)
            await asyncio.wait_for(ended.wait(), 60)
            # The ones that were told have not left yet, and those that come have a feed that works.
            async with feed.follow(mine.tenant, mine.session, first[0].seq) as again:
                assert await collect(again, 1) == [second[0].seq]
                third = await mine.tell("c")
                assert await collect(again, 1) == [third[0].seq]
                assert feed_of(mine) is not before
        stored = await other.tell("x")
        assert await collect(quiet, 1) == [stored[0].seq]
    assert WORDS not in caplog.text


async def test_a_poll_that_fails_ends_the_process(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, process_ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Without it announcements that were lost would never be missed."""

    def fail(*_: Any) -> Any:
        raise RuntimeError(WORDS)

    line = await database.run(lines.line)
    monkeypatch.setattr(hub, "_TICKS_WHILE_UP", 1)
    async with feed.follow(line.tenant, line.session, 0):
        polling = hub.current()._polling
        assert polling is not None
        monkeypatch.setattr(journal, "counters", fail)
        with caplog.at_level(logging.CRITICAL):
            await asyncio.wait([polling], timeout=60)
            await asyncio.sleep(0)
    assert process_ends == [supervision.EXIT_CODE]
    process_ends.clear()
    assert "feeds-poll" in caplog.text
    assert WORDS not in caplog.text
