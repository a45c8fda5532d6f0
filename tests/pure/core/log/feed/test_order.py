"""A tenant's order, whatever happens to its announcements on their way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.core.log.feed.order import TenantOrder, in_order
from sessions_app.core.log.journal.types import Announcement, Event, SessionItem


def announced(before: int, upto: int) -> Announcement:
    """Two sessions take turns; every seventh number belongs to nobody."""
    items: dict[int, list[Event]] = {}
    for seq in range(before + 1, upto + 1):
        if seq % 7:
            items.setdefault(seq % 2, []).append(Event(seq, seq % 2, "text_delta", "{}"))
    return Announcement(1, before, upto, [SessionItem(session, events[0].seq - 2, events) for session, events in items.items()])


def numbers(start: int, end: int) -> list[int]:
    return [seq for seq in range(start + 1, end + 1) if seq % 7]


def test_what_follows_is_given_out_at_once() -> None:
    order = TenantOrder(10)
    first = announced(10, 12)
    assert order.accept(first, 0.0) == [first]
    assert (order.position, order.hole_since) == (12, None)


def test_what_comes_early_is_parked_and_given_out_in_its_turn() -> None:
    order = TenantOrder(0)
    first, second, third = announced(0, 2), announced(2, 5), announced(5, 6)
    assert order.accept(third, 1.0) == []
    assert order.accept(second, 2.0) == []
    assert (order.position, order.hole_since) == (0, 1.0)
    assert order.accept(first, 3.0) == [first, second, third]
    assert (order.position, order.hole_since) == (6, None)


def test_what_was_heard_before_is_dropped() -> None:
    order = TenantOrder(0)
    first = announced(0, 2)
    order.accept(first, 0.0)
    assert order.accept(first, 1.0) == []


def test_a_read_of_the_journal_closes_the_hole_and_frees_what_is_parked() -> None:
    order = TenantOrder(0)
    inside, behind = announced(2, 4), announced(5, 6)
    order.accept(inside, 1.0)
    order.accept(behind, 2.0)
    assert order.read_through(5) == [behind]
    assert (order.position, order.hole_since) == (6, None)


def test_what_is_parked_is_bounded() -> None:
    order = TenantOrder(0, max_parked=3)
    for number in range(10, 100):
        order.accept(announced(number, number + 1), 0.0)
    # The hole is closed by a read; those that were not parked are behind the next one.
    assert [each.before for each in order.read_through(10)] == [10, 11, 12]
    assert order.position == 13


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[Announcement], list[int]]:
    """A tenant's announcements as they arrive (any order, some never, some twice), and where it was read in between."""
    cuts = sorted(draw(st.sets(st.integers(1, 60), min_size=1)))
    sent = [announced(before, upto) for before, upto in zip([0, *cuts], cuts, strict=False)]
    arriving = draw(st.lists(st.sampled_from(sent), max_size=3 * len(sent)))
    return arriving, cuts


@given(journeys(), st.data())
def test_every_event_is_given_out_once_and_in_order_if_holes_are_read(
    journey: tuple[list[Announcement], list[int]], data: st.DataObject
) -> None:
    arriving, cuts = journey
    order = TenantOrder(0)
    given_out: list[int] = []
    committed = 0

    def give(released: list[Announcement]) -> None:
        for each in released:
            given_out.extend(event.seq for event in in_order(each, given_out[-1] if given_out else 0))

    for announcement in arriving:
        # Whatever is announced has been committed, and so has everything before it.
        committed = max(committed, announcement.upto)
        give(order.accept(announcement, 0.0))
        assert given_out == numbers(0, order.position)
        if data.draw(st.booleans()):
            upto = data.draw(st.sampled_from([cut for cut in cuts if cut >= committed]))
            committed = upto
            given_out.extend(numbers(order.position, upto))
            give(order.read_through(upto))
            assert order.position >= upto
            assert order.hole_since is None
    assert given_out == numbers(0, order.position)
