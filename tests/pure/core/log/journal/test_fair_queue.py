"""Who is flushed next: order within a session, equal shares of bytes between tenants, a bound on each flush."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.log.journal.entries import Entry, size_of
from sessions_app.core.log.journal.fair_queue import FairQueue
from sessions_app.core.log.journal.types import Outcome, Unit

KB = 1024
MANY = 10**9

_tickets = itertools.count(1)


def delta(tenant: int, session: int, text: str, *, part: str = "p", fence: int = 1, kind: Kind = Kind.TEXT_DELTA) -> Entry:
    unit = Unit(tenant, session, session, fence, [Happening(kind, {"part": part, "delta": text}, join=part)])
    return Entry(unit, size_of(unit), durable=False, ticket=next(_tickets))


def commit(tenant: int, session: int, text: str = "") -> Entry:
    unit = Unit(tenant, session, session, 1, [Happening(Kind.STEP_DONE, {})], [Statement("", (text,))])
    return Entry(unit, size_of(unit), durable=True, ticket=next(_tickets))


def queue_of(*entries: Entry) -> FairQueue:
    queue = FairQueue()
    for entry in entries:
        queue.add(entry)
    return queue


def texts(entry: Entry) -> list[str]:
    return [happening.payload["delta"] for happening in entry.unit.happenings]


def test_one_tenants_megabytes_do_not_wait_in_front_of_anothers_delta() -> None:
    """Forty pieces of 60 KB came first; the small one goes with the next flush all the same."""
    large = [delta(1, session, "x" * 60 * KB) for session in range(40)]
    small = delta(2, 100, "hello")
    queue = queue_of(*large, small)
    assert small in queue.take(MANY, 256 * KB)


def test_what_a_tenant_may_send_is_counted_in_bytes_and_not_in_units() -> None:
    large = [delta(1, session, "x" * 60 * KB) for session in range(40)]
    small = [delta(2, 100 + session, "y" * KB) for session in range(100)]
    queue = queue_of(*large, *small)
    taken = queue.take(MANY, 256 * KB)
    assert sum(entry.size for entry in taken if entry.unit.tenant == 2) >= 96 * KB


def test_a_flush_exceeds_its_bound_by_its_last_unit_at_most() -> None:
    queue = queue_of(*(delta(session % 7, session, "x" * 10 * KB) for session in range(100)))
    while queue:
        taken = queue.take(MANY, 64 * KB)
        assert sum(entry.size for entry in taken) - taken[-1].size <= 64 * KB


def test_a_unit_that_is_larger_than_a_flush_is_taken_whole() -> None:
    large = commit(1, 1, "x" * 3_000_000)
    queue = queue_of(large)
    assert queue.take(MANY, 256 * KB) == [large]
    assert not queue


def test_a_large_unit_is_not_put_off_for_ever_by_others_that_fill_each_flush() -> None:
    large = commit(1, 1, "x" * 1_000_000)
    queue = queue_of(large)
    for flush in range(200):
        for session in range(10):
            queue.add(delta(2, 1000 * flush + session, "y" * 60 * KB))
        if large in queue.take(MANY, 256 * KB):
            return
    pytest.fail("it was never taken")


def test_a_session_keeps_its_order_whatever_is_taken_and_put_back() -> None:
    entries = [delta(tenant, tenant, f"{number}", part=str(number)) for number in range(30) for tenant in (1, 2)]
    queue, seen = queue_of(*entries), list[Entry]()
    while queue:
        taken = queue.take(7, MANY)
        seen += taken[:3]
        queue.put_back(reversed(taken[3:]))
    for tenant in (1, 2):
        assert [entry for entry in seen if entry.unit.tenant == tenant] == [e for e in entries if e.unit.tenant == tenant]


def test_a_flush_takes_no_more_units_than_it_may() -> None:
    queue = queue_of(*(delta(session % 3, session, "x") for session in range(10)))
    assert [len(queue.take(4, MANY)) for _ in range(3)] == [4, 4, 2]


# --- what waits is joined ---


def test_pieces_of_a_part_that_wait_become_one_piece() -> None:
    queue = FairQueue()
    sizes = [queue.add(delta(1, 1, text)) for text in ("He", "llo", "!")]
    (entry,) = queue.take(MANY, MANY)
    assert texts(entry) == ["Hello!"]
    assert entry.size == sum(sizes)


def test_a_piece_is_not_joined_with_what_was_taken_before() -> None:
    queue = queue_of(delta(1, 1, "on its way"))
    (under_way,) = queue.take(MANY, MANY)
    queue.add(delta(1, 1, "later"))
    assert texts(under_way) == ["on its way"]
    queue.put_back([under_way])
    assert [texts(entry) for entry in queue.take(MANY, MANY)] == [["on its way"], ["later"]]


@pytest.mark.parametrize(
    "after",
    [
        delta(1, 1, "x", part="q"),
        delta(1, 1, "x", fence=2),
        delta(1, 1, "x", kind=Kind.THINKING_DELTA),
        delta(1, 2, "x"),
        commit(1, 1),
    ],
    ids=["another part", "another run", "another kind", "another session", "a commit point"],
)
def test_only_neighbouring_pieces_of_one_part_are_joined(after: Entry) -> None:
    assert len(queue_of(delta(1, 1, "x"), after)) == 2


async def test_a_piece_that_somebody_waits_for_is_not_joined() -> None:
    waited_for = delta(1, 1, "y")
    waited_for.future = asyncio.get_running_loop().create_future()
    assert len(queue_of(delta(1, 1, "x"), waited_for, delta(1, 1, "z"))) == 3
    outcome: Outcome = "stored"
    waited_for.future.set_result(outcome)


def test_joined_pieces_have_a_longest_length() -> None:
    queue = queue_of(*(delta(1, 1, "x" * KB) for _ in range(64)))
    taken = queue.take(MANY, MANY)
    assert 2 <= len(taken) <= 5
    assert max(entry.size for entry in taken) < 20 * KB
