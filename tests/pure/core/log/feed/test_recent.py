"""What a feed remembers of what it heard."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from sessions_app.core.log.feed.recent import Recent
from sessions_app.core.log.journal.types import Announcement, Event, SessionItem


def announcement(before: int, upto: int, session: int = 1, size: int = 10) -> Announcement:
    events = [Event(seq, session, "text.delta", "x" * size) for seq in range(before + 1, upto + 1)]
    return Announcement(1, before, upto, [SessionItem(session, before, events)])


def remembered(recent: Recent, session: int = 1, after: int = 0) -> list[int]:
    return [event.seq for item in recent.of(session, after) for event in item.events]


def test_what_was_heard_is_remembered_by_session() -> None:
    recent = Recent(10)
    recent.add(announcement(10, 12))
    recent.add(announcement(12, 13, session=2))
    assert (remembered(recent), remembered(recent, 2), recent.since) == ([11, 12], [13], 10)


def test_a_reader_gets_only_what_reaches_beyond_its_position_however_it_came() -> None:
    recent = Recent(10)
    for before, upto in ((10, 12), (16, 18), (12, 14), (14, 16), (18, 20)):
        recent.add(announcement(before, upto))
    assert remembered(recent, after=15) == [17, 18, 15, 16, 19, 20]
    assert remembered(recent, after=20) == []


def test_what_was_before_its_time_is_not_taken() -> None:
    recent = Recent(10)
    recent.add(announcement(8, 10))
    assert remembered(recent) == []


def test_what_was_read_and_not_heard_is_nothing_to_begin_with() -> None:
    recent = Recent(10)
    recent.add(announcement(10, 12))
    recent.add(announcement(20, 21))
    recent.forget(15)
    assert (remembered(recent), recent.since) == ([21], 15)


@pytest.mark.parametrize("seed", range(20))
def test_everything_behind_its_beginning_is_there_however_it_came(seed: int) -> None:
    chance = random.Random(seed)
    bounds = sorted(chance.sample(range(1, 400), 60))
    announcements = [announcement(before, upto, size=chance.randrange(400)) for before, upto in pairwise([0, *bounds])]
    chance.shuffle(announcements)
    recent = Recent(0, max_bytes=20_000)
    heard: set[int] = set()
    for each in announcements:
        recent.add(each)
        heard |= {event.seq for item in each.items for event in item.events}
        assert {seq for seq in heard if seq > recent.since} <= set(remembered(recent))
        assert sum(len(event.data) for item in recent.of(1, 0) for event in item.events) <= 20_000


@pytest.mark.parametrize("seed", range(20))
def test_each_session_has_its_own_items_in_the_order_of_arrival(seed: int) -> None:
    chance = random.Random(seed)
    recent = Recent(0, max_bytes=6000)
    heard: list[Announcement] = []
    for upto in range(1, 100):
        heard.append(announcement(upto - 1, upto, session=chance.randrange(4), size=chance.randrange(200)))
        recent.add(heard[-1])
        if not chance.randrange(10):
            recent.forget(upto - 3)
        for session in range(5):
            kept = [seq for seq in range(1, upto + 1) if seq > recent.since and heard[seq - 1].items[0].session == session]
            assert remembered(recent, session) == kept
