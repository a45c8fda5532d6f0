"""The outbox of a connection: order, limits, and the position of snapshots."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.ahp.transport.outbox import Outbox, Unsent


def _outbox(most: int = 100_000) -> Outbox:
    return Outbox(most, lambda: None)


def _taken(outbox: Outbox) -> list[str]:
    taken = []
    while (text := outbox.next()) is not None:
        taken.append(text)
    return taken


@pytest.mark.rule("R65")
def test_a_snapshot_is_sent_at_its_position_among_delayed_actions() -> None:
    outbox = _outbox()
    outbox.put_action(1, 7, "one")
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.put_action(3, 8, "three of the new one")
    outbox.put_action(4, 7, "four")
    outbox.put_action(5, 8, "five of the new one")
    outbox.put_action(6, 7, "six")
    outbox.put("an answer")
    outbox.release("snapshot at 4", {8: 4})
    outbox.put_action(7, 8, "seven of the new one")
    assert _taken(outbox) == [
        "one",
        "an answer",
        "two",
        "four",
        "snapshot at 4",
        "five of the new one",
        "six",
        "seven of the new one",
    ]


@pytest.mark.rule("R64", "R65")
def test_a_snapshot_of_a_subscribed_channel_comes_after_the_actions_that_it_includes() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.put_action(3, 7, "three")
    outbox.release("snapshot at 2", {7: 2}, {7})
    assert _taken(outbox) == ["two", "snapshot at 2", "three"]


@pytest.mark.rule("R45", "R65")
def test_several_snapshots_in_one_answer_have_each_its_own_number() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(3, 7, "three of seven")
    outbox.put_action(4, 8, "four of eight")
    outbox.put_action(5, 7, "five of seven")
    outbox.release("seven at 3, eight at 4", {7: 3, 8: 4})
    assert _taken(outbox) == ["seven at 3, eight at 4", "five of seven"]
    outbox.hold()
    outbox.put_action(6, 7, "six of seven")
    outbox.put_action(7, 8, "seven of eight")
    outbox.release("seven at 5, eight at 7", {7: 5, 8: 7})
    assert _taken(outbox) == ["seven at 5, eight at 7", "six of seven"]


@pytest.mark.rule("R64", "R83")
def test_a_rejection_is_in_no_snapshot_and_is_sent_before_it() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.put_action(3, None, "rejection")
    outbox.put_action(4, None, "later rejection")
    outbox.release("snapshot at 3", {7: 3})
    assert _taken(outbox) == ["rejection", "snapshot at 3", "later rejection"]


def test_an_error_releases_all_delayed_actions() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.release("error")
    assert _taken(outbox) == ["error", "two"]


@pytest.mark.rule("R6")
def test_a_peer_that_does_not_read_overflows_it_and_then_costs_nothing() -> None:
    outbox = _outbox(1000)
    outbox.put_action(1, 7, "x" * 5000)
    by_one_large_frame = outbox.overflowed
    assert not by_one_large_frame
    outbox.put_action(2, 7, "y")
    assert outbox.overflowed
    for seq in range(3, 50):
        outbox.put_action(seq, 7, "z")
        outbox.put("z")
        outbox.put_notice("z")
    assert _taken(outbox) == []


@pytest.mark.rule("R6")
def test_notifications_that_nobody_reads_overflow_it_too() -> None:
    outbox = _outbox(1000)
    for _ in range(20):
        outbox.put_notice("n" * 100)
    assert outbox.overflowed
    outbox.hold()
    outbox.release("an answer that comes too late", {7: 4})
    assert _taken(outbox) == []


@pytest.mark.rule("R65")
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.booleans(), st.booleans()), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_numbers_never_fall_and_nothing_is_lost_or_sent_twice(
    events: list[tuple[int | None, bool, bool]], held_from: int, fresh: int
) -> None:
    """For all delayed actions, all positions of the snapshot of resource 3, and clients that have read enough or not."""
    out: list[str] = []
    has_read = False

    def write(text: str) -> bool:
        if has_read:
            out.append(text)
        return has_read

    outbox = Outbox(100_000, lambda: None, write=write)
    floor = min(max(held_from, fresh), len(events))
    for seq, (key, drains, has_read) in enumerate(events, 1):  # noqa: B007 - write uses it
        if seq == held_from + 1:
            outbox.hold()
        outbox.put_action(seq, key, f"{seq}")
        if drains:
            out += _taken(outbox)
    if held_from < len(events):
        outbox.release("snapshot", {3: floor})
    out += _taken(outbox)
    place = out.index("snapshot") if "snapshot" in out else len(out)
    numbers = [int(text) for text in out if text != "snapshot"]
    assert numbers == sorted(set(numbers))
    expected = {
        seq for seq, (key, *_) in enumerate(events, 1) if held_from >= len(events) or key != 3 or seq <= held_from or seq > floor
    }
    assert set(numbers) == expected
    assert all(int(text) <= floor for text in out[:place] if text != "snapshot") or held_from >= len(events)
    assert all(int(text) > floor for text in out[place + 1 :])


@pytest.mark.rule("R6")
def test_a_text_is_sent_at_once_only_if_nothing_is_to_be_sent_before_it() -> None:
    written: list[str] = []
    refused: list[str] = []

    def write(text: str) -> bool:
        (refused if text.startswith("unread") else written).append(text)
        return not text.startswith("unread")

    outbox = Outbox(1_000_000, lambda: None, write=write)
    outbox.put_action(1, 7, "one")
    outbox.put_notice("notice")
    assert (written, _taken(outbox)) == (["one", "notice"], [])
    outbox.put_action(2, 7, "unread two")
    outbox.put_action(3, 7, "three")
    assert outbox.next() == "unread two"
    # The first of them is still being sent.
    outbox.put_action(4, 7, "four")
    assert _taken(outbox) == ["three", "four"]
    outbox.put_action(5, 7, "long " * 10_000)
    outbox.put_notice("behind it")
    assert [text[:10] for text in _taken(outbox)] == ["long long ", "behind it"]
    outbox.put("an answer")
    outbox.put_action(6, 7, "six")
    assert _taken(outbox) == ["an answer", "six"]
    assert (written, refused, outbox.size) == (["one", "notice"], ["unread two"], 0)
    outbox.put_action(7, 7, "seven")
    outbox.overflow()
    outbox.put_action(8, 7, "eight")
    outbox.put_notice("too late")
    outbox.end()
    outbox.put_action(9, 7, "nine")
    assert written == ["one", "notice", "seven"]


class Room:
    """For so many bytes of all connections; closes the first outbox of ``waiting`` when it is full."""

    def __init__(self, most: int) -> None:
        self.most, self.held, self.waiting = most, 0, list[Outbox]()
        self.unsent = Unsent(self._take, self._give_back, self._make_room)

    def outbox(self) -> Outbox:
        outbox = Outbox(10_000_000, lambda: None, self.unsent)
        self.waiting.append(outbox)
        return outbox

    def _take(self, size: int, only: bool) -> bool:
        if not only and self.held + size > self.most:
            return False
        self.held += size
        return True

    def _give_back(self, size: int) -> None:
        self.held -= size

    def _make_room(self) -> None:
        self.waiting.pop(0).overflow()


@pytest.mark.rule("R6")
def test_a_text_that_waits_for_many_connections_is_counted_once_until_the_last_has_sent_it() -> None:
    room = Room(1_000_000)
    outboxes = [room.outbox() for _ in range(10)]
    text = "x" * 500_000
    for outbox in outboxes:
        outbox.put_action(1, 7, text)
    assert 400_000 < room.held <= 600_000
    for outbox in outboxes:
        assert outbox.next() == text
    for outbox in outboxes[1:]:
        assert outbox.next() is None
    assert room.held > 400_000
    outboxes[0].end()
    assert room.held == 0


@pytest.mark.rule("R6")
def test_texts_that_are_small_in_all_are_not_counted() -> None:
    room = Room(0)
    room.outbox().put("x" * 50_000)
    assert room.held == 0


@pytest.mark.rule("R6")
def test_a_text_that_finds_no_room_ends_the_slowest_connection_and_then_its_own() -> None:
    room = Room(1_000_000)
    slow, other, large = (room.outbox() for _ in range(3))
    slow.put("s" * 600_000)
    other.put("o" * 600_000)
    assert slow.overflowed
    assert _taken(slow) == []
    # What is being sent takes memory until the connection has ended.
    assert other.next() == "o" * 600_000
    large.put("l" * 600_000)
    assert other.overflowed
    assert large.overflowed
    other.end()
    assert room.held == 0


@pytest.mark.rule("R6", "R65")
def test_a_snapshot_that_finds_no_room_takes_the_actions_behind_it_with_it() -> None:
    room = Room(400_000)
    outbox = room.outbox()
    outbox.hold()
    outbox.put_action(1, 7, "a" * 200_000)
    outbox.put_action(2, 7, "b" * 100_000)
    outbox.release("s" * 300_000, {7: 1})
    assert outbox.overflowed
    assert _taken(outbox) == []
    assert room.held == 0
