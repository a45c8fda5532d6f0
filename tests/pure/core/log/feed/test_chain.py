"""One reader's events: in order, each once, whatever happens to announcements and however slow it is."""

from __future__ import annotations

import random

import pytest

from sessions_app.core.log.feed.chain import SessionChain
from sessions_app.core.log.journal.types import Event, SessionItem


def event(seq: int, data: str = "{}") -> Event:
    return Event(seq, 1, "text_delta", data)


def item(prev: int, *seqs: int) -> SessionItem:
    return SessionItem(1, prev, [event(seq) for seq in seqs])


def live(after: int, **bounds: int) -> SessionChain:
    chain = SessionChain(after, **bounds)
    chain.begin_read()
    chain.end_read([], after, more=False)
    return chain


def drained(chain: SessionChain) -> list[int]:
    return [each.seq for each in chain.drain()]


def test_a_reader_does_not_wait_for_other_sessions() -> None:
    chain = live(10)
    chain.offer(item(8, 20))
    chain.offer(item(20, 31, 32))
    assert drained(chain) == [20, 31, 32]


def test_what_comes_after_a_hole_in_the_session_waits_for_it() -> None:
    chain = live(10)
    chain.offer(item(20, 30))
    chain.offer(item(30, 40))
    assert drained(chain) == []
    chain.offer(item(10, 20))
    assert drained(chain) == [20, 30, 40]


def test_what_comes_twice_is_given_once() -> None:
    chain = live(10)
    for _ in range(2):
        chain.offer(item(10, 20, 21))
        chain.offer(item(21, 22))
    assert drained(chain) == [20, 21, 22]


def test_what_is_offered_while_the_journal_is_read_is_not_lost() -> None:
    chain = SessionChain(0)
    chain.begin_read()
    chain.offer(item(0, 5))
    chain.offer(item(5, 9))
    chain.end_read([event(5)], 6, more=False)
    assert drained(chain) == [5, 9]


def test_an_overflow_is_made_good_by_the_journal() -> None:
    chain = live(0, max_events=2)
    chain.offer(item(0, 1, 2, 3))
    chain.offer(item(3, 4))
    assert (drained(chain), chain.behind, chain.position) == ([1, 2], True, 2)
    chain.begin_read()
    chain.end_read([event(3), event(4)], 4, more=False)
    assert (drained(chain), chain.behind) == ([3, 4], False)


def test_one_event_bigger_than_the_bound_is_still_taken() -> None:
    chain = live(0, max_bytes=100)
    chain.offer(SessionItem(1, 0, [event(1, "x" * 1000)]))
    assert drained(chain) == [1]


def test_what_waits_behind_a_hole_is_bounded_too() -> None:
    chain = live(0, max_bytes=1000)
    for number in range(100):
        chain.offer(item(number + 10, number + 11))
    assert chain.behind
    chain.begin_read()
    for number in range(100, 200):
        chain.offer(item(number + 10, number + 11))
    chain.end_read([event(1)], 100, more=False)
    # What was offered meanwhile did not fit: it takes another read.
    assert (drained(chain), chain.behind) == ([1], True)


def test_a_page_that_is_not_the_last_leaves_the_reader_behind() -> None:
    chain = SessionChain(0)
    chain.begin_read()
    chain.end_read([event(1), event(2)], 50, more=True)
    chain.offer(item(2, 3))
    assert (drained(chain), chain.behind) == ([1, 2], True)


def test_what_was_lost_before_it_was_given_is_taken_back() -> None:
    chain = live(0)
    chain.offer(item(0, 1))
    assert drained(chain) == [1]
    chain.offer(item(1, 2, 3))
    chain.rewind()
    assert (drained(chain), chain.position, chain.behind) == ([], 1, True)


@pytest.mark.parametrize("seed", range(150))
def test_no_event_is_lost_or_repeated_in_any_weather(seed: int) -> None:
    """A journal grows while a reader with small bounds hears of some of it, in any order, and reads when told to."""
    chance = random.Random(seed)
    journal: list[int] = []  # the session's events
    counter = 0
    announced: list[tuple[int, SessionItem]] = []  # committed, and perhaps still to arrive
    heard_upto = 0  # the feed's position: all up to here has been offered
    chain = SessionChain(0, max_events=chance.choice([2, 5, 50]), max_bytes=chance.choice([300, 100_000]))
    received: list[int] = []
    snapshot: tuple[list[int], int, bool] | None = None

    def feed_reads() -> None:
        nonlocal heard_upto
        chain.advance(heard_upto)
        seqs = [seq for seq in journal if seq > heard_upto]
        if seqs:
            chain.offer(item(heard_upto, *seqs))
        heard_upto = counter
        chain.advance(heard_upto)

    for step in range(300):
        what = chance.random()
        if what < 0.4:
            prev = journal[-1] if journal else 0
            counter += chance.randint(1, 3)  # other sessions' events, and numbers that nobody got
            seqs = [counter + n for n in range(1, chance.randint(2, 4))]
            counter = seqs[-1]
            journal += seqs
            if chance.random() < 0.8:
                announced.append((step, item(prev, *seqs)))
                if chance.random() < 0.2:
                    announced.append((step, item(prev, *seqs)))
        elif what < 0.7 and announced:
            chain.offer(announced.pop(chance.randrange(min(len(announced), 4)))[1])
        elif what < 0.75:
            feed_reads()
        elif what < 0.9:
            received += drained(chain)
            if chain.behind and snapshot is None:
                chain.begin_read()
                limit = chance.choice([1, 3, 100])
                following = [seq for seq in journal if seq > chain.position]
                snapshot = (following[:limit], counter, len(following) > limit)
        elif snapshot is not None:
            if chance.random() < 0.2:
                chain.abandon_read()
            else:
                seqs, at, more = snapshot
                # The feed has its base from a read that was not later than this one.
                chain.end_read([event(seq) for seq in seqs], at, more=more)
            snapshot = None
    if snapshot is not None:
        chain.abandon_read()
    feed_reads()
    received += drained(chain)
    while chain.behind:
        chain.begin_read()
        chain.end_read([event(seq) for seq in journal if seq > chain.position], counter, more=False)
        received += drained(chain)
    assert received == journal
