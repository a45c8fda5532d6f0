"""A face with many sessions follows its whole tenant: every event once, in the tenant's order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sessions_app.core.base import database
from sessions_app.core.log import feed, journal
from sessions_app.core.log.feed import TenantFollower
from sessions_app.core.log.journal.types import Event
from tests.core.log.feed.conftest import Line, Lines, Weather

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Taker:
    """Notes what it is given, and judges the order."""

    events: list[int] = field(default_factory=list)
    upto: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, events: Sequence[Event], upto: int) -> None:
        for event in events:
            assert self.upto < event.seq <= upto
        self.events += [event.seq for event in events]
        assert self.events == sorted(set(self.events))
        self.upto = upto
        self.news.set()

    async def reach(self, upto: int) -> None:
        async with asyncio.timeout(20):
            while self.upto < upto:
                self.news.clear()
                await self.news.wait()


def _lost() -> None:
    pytest.fail("nothing was lost")


@pytest.mark.rule("R65", "R6")
@pytest.mark.parametrize("seed", range(4))
async def test_two_sessions_arrive_in_the_tenants_order_whatever_the_weather(lines: Lines, weather: Weather, seed: int) -> None:
    tenant = await database.run(lines.tenant)
    first, second = await database.run(lines.line, tenant), await database.run(lines.line, tenant)
    weather.chance = random.Random(seed)
    weather.lost, weather.twice, weather.late = 0.2, 0.2, 0.3
    taker = Taker()
    follower = TenantFollower(taker.take, _lost, _lost)
    said: list[int] = []
    async with feed.follow_tenant(tenant, follower):

        async def speak(line: Line) -> None:
            for _ in range(25):
                said.extend(stored.seq for stored in await line.tell("x", "y"))

        await asyncio.gather(speak(first), speak(second))
        await taker.reach(max(said))
    assert taker.events == sorted(said)


async def test_a_follower_begins_where_the_tenant_is(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    before = (await line.tell("before"))[-1].seq
    taker = Taker()
    follower = TenantFollower(taker.take, _lost, _lost)
    async with feed.follow_tenant(line.tenant, follower):
        assert follower.position == before
        after = (await line.tell("after"))[-1].seq
        await taker.reach(after)
    assert taker.events == [after]


@pytest.mark.rule("R65")
async def test_what_is_expected_and_was_not_announced_is_read_from_the_journal(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    weather.all_lost = True
    taker = Taker()
    follower = TenantFollower(taker.take, _lost, _lost)
    async with feed.follow_tenant(line.tenant, follower):
        stored = await line.tell("a", "b")
        counter = (await database.run(journal.counters, [line.tenant]))[line.tenant]
        follower.expect(counter)
        await taker.reach(counter)
    assert taker.events == [each.seq for each in stored]


async def test_two_followers_and_a_reader_share_one_feed(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    takers = [Taker(), Taker()]
    followers = [TenantFollower(taker.take, _lost, _lost) for taker in takers]
    async with feed.follow_tenant(line.tenant, followers[0]):
        async with feed.follow(line.tenant, line.session, 0) as reader, feed.follow_tenant(line.tenant, followers[1]):
            seq = (await line.tell("x"))[0].seq
            assert [event.seq for event in await reader.next(10) or []] == [seq]
            await takers[1].reach(seq)
        later = (await line.tell("y"))[0].seq
        await takers[0].reach(later)
    assert [takers[0].events, takers[1].events] == [[seq, later], [seq]]
