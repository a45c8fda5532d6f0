"""What is sent to one connection: in order, bounded, a snapshot at its own place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.ahp.outbox import Outbox


def _outbox(most: int = 100_000) -> Outbox:
    return Outbox(most, lambda: None)


@pytest.mark.rule("R65")
def test_a_snapshot_stands_at_its_number_among_the_actions_that_were_held() -> None:
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
    assert outbox.take() == [
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
def test_a_snapshot_of_what_was_followed_already_comes_after_the_actions_it_holds() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.put_action(3, 7, "three")
    outbox.release("snapshot at 2", {7: 2}, {7})
    assert outbox.take() == ["two", "snapshot at 2", "three"]


@pytest.mark.rule("R45", "R65")
def test_several_snapshots_in_one_answer_have_each_its_own_number() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(3, 7, "three of seven")
    outbox.put_action(4, 8, "four of eight")
    outbox.put_action(5, 7, "five of seven")
    outbox.release("seven at 3, eight at 4", {7: 3, 8: 4})
    assert outbox.take() == ["seven at 3, eight at 4", "five of seven"]
    outbox.hold()
    outbox.put_action(6, 7, "six of seven")
    outbox.put_action(7, 8, "seven of eight")
    outbox.release("seven at 5, eight at 7", {7: 5, 8: 7})
    assert outbox.take() == ["seven at 5, eight at 7", "six of seven"]


@pytest.mark.rule("R64", "R83")
def test_a_rejection_is_in_no_snapshot_and_goes_out_with_it() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.put_action(3, None, "rejection")
    outbox.put_action(4, None, "later rejection")
    outbox.release("snapshot at 3", {7: 3})
    assert outbox.take() == ["rejection", "snapshot at 3", "later rejection"]


def test_an_error_lets_everything_go_that_was_held() -> None:
    outbox = _outbox()
    outbox.hold()
    outbox.put_action(2, 7, "two")
    outbox.release("error")
    assert outbox.take() == ["error", "two"]


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
    assert outbox.take() == []


@pytest.mark.rule("R6")
def test_notifications_that_nobody_reads_overflow_it_too() -> None:
    outbox = _outbox(1000)
    for _ in range(20):
        outbox.put_notice("n" * 100)
    assert outbox.overflowed
    outbox.hold()
    outbox.release("an answer that comes too late", {7: 4})
    assert outbox.take() == []


@pytest.mark.rule("R65")
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.booleans()), max_size=40),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_numbers_never_fall_and_nothing_is_lost_or_told_twice(
    events: list[tuple[int | None, bool]], held_from: int, fresh: int
) -> None:
    """Whatever is held and wherever the snapshot of resource 3 stands."""
    outbox = _outbox()
    out: list[str] = []
    floor = min(max(held_from, fresh), len(events))
    for seq, (key, drains) in enumerate(events, 1):
        if seq == held_from + 1:
            outbox.hold()
        outbox.put_action(seq, key, f"{seq}")
        if drains:
            out += outbox.take()
    if held_from < len(events):
        outbox.release("snapshot", {3: floor})
    out += outbox.take()
    place = out.index("snapshot") if "snapshot" in out else len(out)
    numbers = [int(text) for text in out if text != "snapshot"]
    assert numbers == sorted(set(numbers))
    expected = {
        seq for seq, (key, _) in enumerate(events, 1) if held_from >= len(events) or key != 3 or seq <= held_from or seq > floor
    }
    assert set(numbers) == expected
    assert all(int(text) <= floor for text in out[:place] if text != "snapshot") or held_from >= len(events)
    assert all(int(text) > floor for text in out[place + 1 :])
