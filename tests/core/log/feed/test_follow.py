"""Following a session on the real journal: what is stored, then what happens, each event once and in order."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from channels.layers import channel_layers
from django.db import OperationalError, connection

from ops.services import Redis, folder
from sessions_app.core.base import database
from sessions_app.core.base.errors import PositionPruned
from sessions_app.core.log import broadcast, feed, journal
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.log.feed import chain, hub
from sessions_app.core.log.journal.types import Event, SessionRead
from tests.core.log.broadcast.conftest import wait_until
from tests.core.log.feed.conftest import Line, Lines, Weather, collect

pytestmark = pytest.mark.django_db(transaction=True)


def seqs(stored: list[Any]) -> list[int]:
    return [each.seq for each in stored]


@pytest.mark.rule("A120")
async def test_a_reader_is_given_what_is_stored_and_then_what_happens(lines: Lines) -> None:
    line = await database.run(lines.line)
    stored = await line.tell("a", "b")
    async with feed.follow(line.tenant, line.session, stored[0].seq) as reader:
        events = await reader.next(60)
        assert events is not None
        assert [(event.seq, event.session, event.kind, event.data) for event in events] == [
            (stored[1].seq, line.session, "text_delta", '{"delta":"b"}')
        ]
        later = await line.tell("c")
        assert await collect(reader, 1) == seqs(later)


async def test_without_news_a_reader_gets_none_after_its_time(lines: Lines) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        assert await reader.next(0.01) is None
        assert await reader.next(0) is None


async def test_a_nudge_ends_one_wait_and_loses_nothing(lines: Lines) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        waiting = asyncio.create_task(reader.next(60))
        await asyncio.sleep(0)
        reader.nudge()
        assert await waiting is None
        stored = await line.tell("a")
        assert await collect(reader, 1) == seqs(stored)


async def test_what_arrives_while_the_reader_waits_is_offered_at_once_and_each_event_comes_once(lines: Lines) -> None:
    line = await database.run(lines.line)
    at_once: list[int] = []

    def take(events: Sequence[Event]) -> bool:
        at_once.extend(event.seq for event in events)
        return True

    async with feed.follow(line.tenant, line.session, 0) as reader:
        reader.at_once = take
        waiting = asyncio.create_task(reader.next(60))
        stored = [*await line.tell("a"), *await line.tell("b", "c")]
        await wait_until(lambda: len(at_once) == 3, "all were taken")
        assert at_once == seqs(stored)
        assert not waiting.done()
        reader.nudge()
        assert await waiting is None


@pytest.mark.parametrize("refuses", [lambda _events: False, lambda _events: bool(1 / 0)])
async def test_events_that_are_not_taken_at_once_come_from_the_reader_in_order(
    lines: Lines, refuses: Callable[[Sequence[Event]], bool]
) -> None:
    """An error in taking them must not end the feed, which has other readers."""
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader, feed.follow(line.tenant, line.session, 0) as other:
        reader.at_once = refuses
        waiting = asyncio.create_task(collect(reader, 1))
        stored = await line.tell("a")
        assert await waiting == seqs(stored)
        later = await line.tell("b", "c")
        assert await collect(reader, 2) == seqs(later)
        assert await collect(other, 3) == seqs([*stored, *later])


async def test_with_losses_repeats_and_late_announcements_what_is_taken_at_once_and_what_is_read_is_everything(
    lines: Lines, weather: Weather
) -> None:
    line = await database.run(lines.line)
    weather.lost = weather.twice = weather.late = 0.2
    got: list[int] = []
    dice = random.Random(7)

    def take(events: Sequence[Event]) -> bool:
        taken = dice.random() < 0.6
        if taken:
            got.extend(event.seq for event in events)
        return taken

    async with feed.follow(line.tenant, line.session, 0) as reader:
        reader.at_once = take

        async def read() -> None:
            while True:
                got.extend(event.seq for event in await reader.next(60) or ())

        reading = asyncio.create_task(read())
        stored = [each for number in range(60) for each in await line.tell(f"{number}")]
        await wait_until(lambda: len(got) >= 60, "all have come")
        reading.cancel()
        assert got == seqs(stored)


async def test_a_reader_sees_its_session_only(lines: Lines) -> None:
    mine = await database.run(lines.line)
    neighbour = await database.run(lines.line, mine.tenant)
    stranger = await database.run(lines.line)
    async with feed.follow(mine.tenant, mine.session, 0) as reader:
        await neighbour.tell("neighbour")
        await stranger.tell("stranger")
        stored = await mine.tell("mine")
        assert await collect(reader, 1) == seqs(stored)
        assert await reader.next(0.05) is None


async def test_readers_of_one_session_all_get_everything(lines: Lines) -> None:
    line = await database.run(lines.line)
    first = await line.tell("a")
    async with feed.follow(line.tenant, line.session, 0) as one, feed.follow(line.tenant, line.session, first[0].seq) as two:
        assert feed.streams_open() == 2
        second = await line.tell("b")
        assert await collect(one, 2) == seqs(first + second)
        assert await collect(two, 1) == seqs(second)
    assert feed.streams_open() == 0


async def test_a_reader_that_joins_while_much_is_written_misses_nothing(lines: Lines) -> None:
    line = await database.run(lines.line)
    stored: list[int] = []
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            stored.extend(seqs(line.say(*["x"] * 3)))

    writing = asyncio.create_task(database.run(write))
    received: list[int] = []
    for _ in range(6):
        async with feed.follow(line.tenant, line.session, received[-1] if received else 0) as reader:
            received += await collect(reader, 1)
    async with feed.follow(line.tenant, line.session, received[-1]) as reader:
        enough.set()
        await writing
        if len(received) < len(stored):
            received += await collect(reader, len(stored) - len(received))
    assert received == stored


async def test_a_long_replay_comes_in_pages(lines: Lines) -> None:
    line = await database.run(lines.line)
    stored = seqs(await line.tell(*["x"] * 1234))
    async with feed.follow(line.tenant, line.session, 0) as reader:
        live = seqs(await line.tell("y"))
        assert await collect(reader, 1235) == stored + live


async def test_a_reader_whose_first_read_was_overtaken_misses_nothing(
    lines: Lines, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await database.run(lines.line)
    read_session: Callable[..., SessionRead] = journal.read_session
    slow_has_read, go_on = threading.Event(), threading.Event()

    def slow_once(*args: Any, **kwargs: Any) -> SessionRead:
        read = read_session(*args, **kwargs)
        if not slow_has_read.is_set():
            slow_has_read.set()
            go_on.wait(60)
        return read

    async def follow() -> list[int]:
        async with feed.follow(line.tenant, line.session, 0) as reader:
            return await collect(reader, 1)

    monkeypatch.setattr(journal, "read_session", slow_once)
    slow = asyncio.create_task(follow())
    await asyncio.to_thread(slow_has_read.wait, 60)
    weather.all_lost = True
    stored = await line.tell("said in between, and its announcement is lost")
    # This one reads later and is done first, so the feed counts from what it saw.
    assert await follow() == seqs(stored)
    go_on.set()
    assert await slow == seqs(stored)


# Announcements in bad weather


@pytest.fixture
def no_look_at_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found, is found without it."""
    monkeypatch.setattr(hub, "_TICKS_WHILE_UP", 10**9)


@pytest.mark.usefixtures("no_look_at_the_counters")
async def test_a_lost_announcement_is_found_by_the_next_ones_hole(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        weather.all_lost = True
        lost = await line.tell("lost")
        weather.all_lost = False
        heard = await line.tell("heard")
        # The look at the counters, which finds everything, does not come.
        assert await collect(reader, 2) == seqs(lost + heard)


@pytest.mark.usefixtures("no_look_at_the_counters")
async def test_another_sessions_announcement_reveals_the_loss_too(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    neighbour = await database.run(lines.line, line.tenant)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        weather.all_lost = True
        lost = await line.tell("the last word")
        weather.all_lost = False
        await neighbour.tell("heard")
        assert await collect(reader, 1) == seqs(lost)


async def test_a_lost_announcement_that_nothing_follows_is_found_by_the_counter(lines: Lines, weather: Weather) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        weather.all_lost = True
        lost = await line.tell("lost")
        assert await collect(reader, 1) == seqs(lost)


@pytest.mark.usefixtures("no_look_at_the_counters")
async def test_an_announcement_out_of_order_waits_for_nothing_of_other_sessions(
    lines: Lines, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await database.run(lines.line)
    neighbour = await database.run(lines.line, line.tenant)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the journal was read for a hole that is not in this session")

    async with feed.follow(line.tenant, line.session, 0) as reader:
        monkeypatch.setattr(feed.tenant, "_HOLE_SECONDS", 60)
        monkeypatch.setattr(journal, "read_tenant", never)
        weather.all_lost = True
        await neighbour.tell("late")
        weather.all_lost = False
        stored = await line.tell("in time")
        assert await collect(reader, 1) == seqs(stored)
        weather.send_again(-2)
        weather.send_again(-1)
        assert await reader.next(0.05) is None


@pytest.mark.parametrize("seed", range(6))
async def test_no_weather_loses_or_repeats_an_event(seed: int, lines: Lines, weather: Weather) -> None:
    chance = weather.chance = random.Random(seed)
    first = await database.run(lines.line)
    watched = [first] + [await database.run(lines.line, first.tenant) for _ in range(3)]
    stored: dict[int, list[int]] = {line.session: [] for line in watched}
    weather.lost, weather.twice, weather.late = chance.choice([(0.1, 0.1, 0.3), (0.5, 0.0, 0.0), (0.0, 0.3, 0.6)])

    def write(line: Line) -> None:
        for number in range(40):
            stored[line.session] += seqs(line.say(*[str(number)] * (1 + number % 3)))

    async def follow(line: Line, delay: float) -> list[int]:
        received: list[int] = []
        await asyncio.sleep(delay)
        async with asyncio.timeout(120):
            while True:
                async with feed.follow(line.tenant, line.session, received[-1] if received else 0) as reader:
                    # Some leave in the middle and come back.
                    stay = chance.choice([10, 1000])
                    while stay > 0 and len(received) < 79:
                        events = await reader.next(60) or []
                        received += [event.seq for event in events]
                        stay -= len(events)
                if len(received) >= 79:
                    return received

    writing = [database.run(write, line) for line in watched]
    reading = [follow(line, chance.random() * 0.05) for line in watched for _ in range(2)]
    *_, received = await asyncio.gather(asyncio.gather(*writing), asyncio.gather(*reading))
    assert received == [stored[line.session] for line in watched for _ in range(2)]


async def test_readers_in_two_loops_both_hear(lines: Lines) -> None:
    line = await database.run(lines.line)
    elsewhere: list[int] = []
    following = threading.Event()

    async def follow_there() -> None:
        async with feed.follow(line.tenant, line.session, 0) as reader:
            following.set()
            elsewhere.extend(await collect(reader, 20))

    thread = threading.Thread(target=asyncio.run, args=(follow_there(),))
    async with feed.follow(line.tenant, line.session, 0) as reader:
        thread.start()
        await asyncio.to_thread(following.wait, 60)
        stored: list[int] = []
        for number in range(20):
            stored += seqs(await line.tell(str(number)))
        assert await collect(reader, 20) == stored
        await asyncio.to_thread(thread.join, 60)
    assert elsewhere == stored


# Slow readers


async def test_a_reader_that_is_slow_gets_everything_and_holds_little(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await database.run(lines.line)
    most = 0
    queue = chain.SessionChain._append

    def watched(self: chain.SessionChain, event: Any) -> None:
        nonlocal most
        queue(self, event)
        most = max(most, len(self._ready))

    monkeypatch.setattr(chain.SessionChain, "_append", watched)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        stored: list[int] = []
        for _ in range(30):
            stored += seqs(await line.tell(*["x"] * 100))
        # Nothing was taken meanwhile, and what was announced did not fit.
        assert await collect(reader, 3000) == stored
        live = seqs(await line.tell("y"))
        assert await collect(reader, 1) == live
    assert most <= 1000


async def test_a_slow_reader_is_told_when_what_it_missed_is_gone(lines: Lines) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        for _ in range(11):
            stored = await line.tell(*["x"] * 100)
        await database.run(_prune, line, stored[-1].seq)
        await collect(reader, 1000)
        with pytest.raises(PositionPruned):
            await reader.next(60)


# Positions that are gone


@pytest.mark.rule("A120")
async def test_a_position_below_what_was_pruned_is_refused_at_once(lines: Lines) -> None:
    line = await database.run(lines.line)
    stored = await line.tell("a", "b", "c")
    await database.run(_prune, line, stored[1].seq)
    with pytest.raises(PositionPruned):
        async with feed.follow(line.tenant, line.session, stored[0].seq):
            pytest.fail("followed")
    assert feed.streams_open() == 0
    async with feed.follow(line.tenant, line.session, stored[1].seq) as reader:
        assert await collect(reader, 1) == [stored[2].seq]


def _prune(line: Line, through: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("delete from event where session_id = %s and seq <= %s", [line.session, through])
        cursor.execute("insert into pruned(session_id, through) values (%s, %s)", [line.session, through])


def _crash(line: Line, survived: int) -> None:
    """What a crash of the database leaves: the events behind ``survived`` are lost, and a new era begins with a jump."""
    with connection.cursor() as cursor:
        cursor.execute("delete from event where tenant_id = %s and seq > %s", [line.tenant, survived])
        cursor.execute("update session_tail set seq = %s where session_id = %s", [survived, line.session])
        if connection.vendor == "postgresql":
            # As recovery does; the next append makes the jump.
            cursor.execute("truncate journal_era")
            cursor.execute("update tenant_counter set seq = %s where tenant_id = %s", [survived, line.tenant])
        else:
            cursor.execute("insert into journal_gap(tenant_id, after, upto) values (%s, %s, %s)", [line.tenant, survived, 2**20])
            cursor.execute("update tenant_counter set seq = %s where tenant_id = %s", [2**20, line.tenant])


async def _is_closed(reader: feed.SessionReader) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(PositionPruned):
            await collect(reader, 10**6)


async def test_a_reader_that_was_given_what_a_crash_took_is_closed(lines: Lines) -> None:
    line = await database.run(lines.line)
    kept = await line.tell("kept")
    async with feed.follow(line.tenant, line.session, 0) as inside, feed.follow(line.tenant, line.session, 0) as outside:
        # This one has taken nothing yet, so what was lost was never shown to its client.
        lost = await line.tell("lost", "too")
        assert await collect(inside, 3) == seqs(kept + lost)
        await database.run(_crash, line, kept[0].seq)
        after = await line.tell("after")
        assert after[0].seq > 2**20
        await _is_closed(inside)
        received: list[int] = []
        while not received or received[-1] < after[0].seq:
            received += [event.seq for event in await outside.next(60) or []]
        assert [seq for seq in received if seq not in seqs(lost)] == seqs(kept + after)
    with pytest.raises(PositionPruned):
        async with feed.follow(line.tenant, line.session, lost[0].seq):
            pytest.fail("followed")


async def test_crossing_a_boundary_without_a_crash_closes_nobody(lines: Lines) -> None:
    line = await database.run(lines.line)

    def near() -> None:
        with connection.cursor() as cursor:
            cursor.execute("update tenant_counter set seq = %s where tenant_id = %s", [2**20 - 2, line.tenant])

    await database.run(near)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        stored: list[int] = []
        for number in range(10):
            stored += seqs(await line.tell(str(number)))
        assert await collect(reader, 10) == stored


# Redis and the database come and go


async def test_streams_go_on_while_redis_is_away_and_when_it_is_back(lines: Lines) -> None:
    with folder() as home:
        server = Redis(home)
        server.start()
        web, worker = ChannelLayer(server.url()), ChannelLayer(server.url())
        try:
            line = await database.run(lines.line)
            channel_layers.set("default", web)
            async with feed.follow(line.tenant, line.session, 0) as reader:
                channel_layers.set("default", worker)
                stored = seqs(await line.tell("over Redis"))
                assert await collect(reader, 1) == stored

                server.stop()
                await wait_until(lambda: not web.pubsub_up() and not worker.pubsub_up(), "Redis is away")
                stored = seqs(await line.tell("away"))
                assert await collect(reader, 1) == stored
                # A stream can be opened meanwhile as well.
                async with feed.follow(line.tenant, line.session, stored[0]) as another:
                    stored = seqs(await line.tell("away still"))
                    assert await collect(another, 1) == stored
                    assert await collect(reader, 1) == stored

                server.start()
                await wait_until(lambda: web.pubsub_up() and worker.pubsub_up(), "Redis is back")
                stored = []
                for number in range(20):
                    stored += seqs(await line.tell(str(number)))
                assert await collect(reader, 20) == stored
        finally:
            web.close()
            worker.close()
            server.stop()


async def test_the_last_reader_of_a_tenant_leaves_its_group(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis.asyncio

    monkeypatch.setattr(hub, "LINGER_SECONDS", 0.05)
    with folder() as home:
        server = Redis(home)
        server.start()
        layer = ChannelLayer(server.url())
        try:
            line = await database.run(lines.line)
            channel_layers.set("default", layer)
            group = f"*tenant.{line.tenant}"
            async with redis.asyncio.Redis.from_url(server.url()) as admin:
                async with feed.follow(line.tenant, line.session, 0):
                    async with feed.follow(line.tenant, line.session, 0):
                        assert len(await admin.pubsub_channels(group)) == 1
                    assert len(await admin.pubsub_channels(group)) == 1
                async with asyncio.timeout(60):
                    while await admin.pubsub_channels(group):
                        pass
        finally:
            layer.close()
            server.stop()


@pytest.mark.usefixtures("no_look_at_the_counters")
async def test_what_is_too_big_to_announce_arrives_at_once_all_the_same(lines: Lines) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as reader:
        stored = await line.tell("x" * 2 * 1024 * 1024)
        assert await collect(reader, 1) == seqs(stored)


async def test_a_stream_outlives_a_database_that_is_away_for_a_moment(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await database.run(lines.line)
    read_session: Callable[..., SessionRead] = journal.read_session
    failures = 0

    def away(*args: Any, **kwargs: Any) -> SessionRead:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise OperationalError("the server closed the connection")
        return read_session(*args, **kwargs)

    async with feed.follow(line.tenant, line.session, 0) as reader:
        stored = []
        for _ in range(11):
            stored += seqs(await line.tell(*["x"] * 100))
        monkeypatch.setattr(journal, "read_session", away)
        assert await collect(reader, 1100) == stored
        assert failures == 3


async def test_one_query_a_second_looks_after_all_tenants(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    counters = journal.counters

    def watched(tenants: list[int]) -> dict[int, int]:
        asked.append(sorted(tenants))
        return counters(tenants)

    monkeypatch.setattr(journal, "counters", watched)
    one, two = await database.run(lines.line), await database.run(lines.line)
    async with feed.follow(one.tenant, one.session, 0), feed.follow(two.tenant, two.session, 0):
        asked.clear()  # of looks before the second one read
        await wait_until(lambda: len(asked) >= 2, "two looks")
    assert asked[0] == sorted([one.tenant, two.tenant])


async def test_readers_leave_no_tasks_behind(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "LINGER_SECONDS", 0.0)
    line = await database.run(lines.line)
    before = asyncio.all_tasks()
    for _ in range(3):
        async with feed.follow(line.tenant, line.session, 0) as reader:
            await line.tell("x")
            await reader.next(60)
    await wait_until(lambda: asyncio.all_tasks() <= before, "all tasks ended")
    assert broadcast.pubsub_up()


# Readers that need not read


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions from which readers have read the journal."""
    positions: list[int] = []
    read_session: Callable[..., SessionRead] = journal.read_session

    def noted(tenant: int, session: int, after: int, **kwargs: Any) -> SessionRead:
        positions.append(after)
        return read_session(tenant, session, after, **kwargs)

    monkeypatch.setattr(journal, "read_session", noted)
    return positions


async def test_a_reader_that_begins_with_what_was_just_stored_reads_nothing(lines: Lines, reads: list[int]) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0):
        other = await database.run(lines.line, line.tenant)
        begun = (await other.tell("begun"))[0].seq
        reads.clear()
        async with feed.follow(line.tenant, other.session, begun) as reader:
            stored = seqs(await other.tell("a", "b"))
            assert await collect(reader, 2) == stored
    assert reads == []


async def test_what_was_heard_before_a_reader_came_is_given_without_reading(lines: Lines, reads: list[int]) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as witness:
        begun, *stored = seqs(await line.tell("begun", "a")) + seqs(await line.tell("b"))
        assert await collect(witness, 3) == [begun, *stored]
        reads.clear()
        async with feed.follow(line.tenant, line.session, begun) as reader:
            assert await collect(reader, 2) == stored
            live = seqs(await line.tell("c"))
            assert await collect(reader, 1) == live
    assert reads == []


async def test_a_tenants_next_reader_finds_its_feed_still_there(lines: Lines, reads: list[int]) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0):
        pass
    stored = seqs(await line.tell("a", "b"))
    reads.clear()
    async with feed.follow(line.tenant, line.session, stored[0]) as reader:
        assert await collect(reader, 1) == stored[1:]
    assert reads == []


async def test_what_a_feed_has_not_heard_is_read(lines: Lines, weather: Weather, reads: list[int]) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0) as witness:
        weather.all_lost = True
        begun, *stored = seqs(await line.tell("begun", "a"))
        # The look at the counters finds them, and they are read without having been heard.
        assert await collect(witness, 2) == [begun, *stored]
        reads.clear()
        async with feed.follow(line.tenant, line.session, begun) as reader:
            assert await collect(reader, 1) == stored
    assert reads == [begun]


async def test_a_reader_that_read_nothing_is_found_when_its_announcements_are_lost(
    lines: Lines, weather: Weather, reads: list[int]
) -> None:
    line = await database.run(lines.line)
    async with feed.follow(line.tenant, line.session, 0):
        begun = (await line.tell("begun"))[0].seq
        reads.clear()
        async with feed.follow(line.tenant, line.session, begun) as reader:
            weather.all_lost = True
            stored = seqs(await line.tell("a", "b"))
            assert await collect(reader, 2) == stored
    assert reads == []


async def test_a_follower_that_is_cancelled_while_it_waits_leaves_cleanly(lines: Lines) -> None:
    line = await database.run(lines.line)

    async def follow() -> None:
        async with feed.follow(line.tenant, line.session, 0) as reader:
            await reader.next(None)

    tasks = [asyncio.create_task(follow()) for _ in range(5)]
    for task in tasks:
        await asyncio.sleep(0.003)
        task.cancel()
    await asyncio.wait(tasks)
    assert feed.streams_open() == 0
