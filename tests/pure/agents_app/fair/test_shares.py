"""The policy of fair shares: what an owner may hold, and who is next."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_app.fair.shares import FairShares, Shares

OWNERS = "abcde"
MOVES = ("ask", "leave", "give up")
SMALL = "a"
"""The owner that has a limit of its own."""


def crowd(shares: FairShares[str], owner: str, count: int) -> None:
    for number in range(count):
        if not shares.take(owner):
            shares.wait(owner, f"{owner}{number}")


def test_an_owner_holds_at_most_half_of_the_slots() -> None:
    shares: FairShares[str] = FairShares(Shares.half(16))
    crowd(shares, "a", 1000)
    assert (shares.held("a"), shares.busy, len(shares.waiting)) == (8, 8, 992)


def test_one_slot_in_eight_is_reserved_for_owners_that_hold_none() -> None:
    shares: FairShares[str] = FairShares(Shares.half(16))
    for owner in "ab":
        crowd(shares, owner, 100)
    assert [shares.held(owner) for owner in "ab"] == [8, 6]
    assert shares.take("c")
    assert not shares.take("c")
    assert shares.take("d")
    assert not shares.take("e"), "all slots are held"


def test_a_free_slot_goes_to_the_owner_with_the_fewest_then_in_turn() -> None:
    shares: FairShares[str] = FairShares(Shares.half(8))
    crowd(shares, "a", 6)
    crowd(shares, "b", 6)
    assert [shares.held(owner) for owner in "ab"] == [4, 3]
    shares.give_back("a")
    assert shares.next() == "a4"
    for owner in "aab":
        shares.give_back(owner)
    assert [shares.next() for _ in range(4)] == ["b3", "a5", "b4", None]


def test_an_owner_may_have_a_smaller_share_than_the_others() -> None:
    shares: FairShares[str] = FairShares(Shares.half(16), {"a": 2})
    crowd(shares, "a", 10)
    crowd(shares, "b", 10)
    assert [shares.held(owner) for owner in "ab"] == [2, 8]


@pytest.mark.parametrize("slots", [0, -1])
def test_there_is_at_least_one_slot(slots: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Shares.half(slots)


@pytest.mark.parametrize("slots", range(1, 40))
def test_what_is_available_is_what_may_be_taken_before_the_rule_changes(slots: int) -> None:
    shares = Shares(slots, slots)
    for busy in range(slots):
        crowded, available = shares.is_crowded(busy), shares.available(busy)
        assert available > 0
        assert all(shares.is_crowded(busy + more) == crowded for more in range(available))
        assert busy + available == slots or not crowded
    assert (shares.allowed(slots), shares.available(slots)) == (0, 0)


@given(
    slots=st.integers(1, 24),
    limit=st.integers(1, 6),
    moves=st.lists(
        st.tuples(st.sampled_from(["ask", "leave", "give up"]), st.sampled_from(OWNERS), st.integers(0, 50)), max_size=120
    ),
)
def test_whatever_comes_and_goes_the_shares_hold_and_nobody_is_forgotten(
    slots: int, limit: int, moves: list[tuple[str, str, int]]
) -> None:
    shares: FairShares[tuple[str, int]] = FairShares(Shares.half(slots), {SMALL: limit})
    policy, numbers = shares.shares, itertools.count()
    inside: Counter[Hashable] = Counter()
    waiting: dict[str, list[tuple[str, int]]] = {owner: [] for owner in OWNERS}

    def hand_out() -> None:
        while True:
            before, held = shares.busy, dict(inside)
            waiter = shares.next()
            if waiter is None:
                return
            owner = waiter[0]
            assert waiter == waiting[owner].pop(0), "the requests of one owner keep their order"
            assert held.get(owner, 0) < policy.allowed(before)
            others = [each for each in OWNERS if waiting[each] and each != SMALL]
            assert all(held.get(owner, 0) <= held.get(each, 0) for each in others if held.get(each, 0) < policy.allowed(before))
            inside[owner] += 1

    for what, owner, pick in moves:
        if what == "ask":
            newcomer = not inside[owner] and not waiting[owner]
            could = inside.total() < slots
            if shares.take(owner):
                inside[owner] += 1
            else:
                assert not (newcomer and could), "who holds nothing gets what is free"
                waiter = (owner, next(numbers))
                waiting[owner].append(waiter)
                shares.wait(owner, waiter)
        elif what == "leave" and inside[owner]:
            inside[owner] -= 1
            shares.give_back(owner)
        elif what == "give up" and waiting[owner]:
            left = waiting[owner].pop(pick % len(waiting[owner]))
            assert shares.withdraw(owner, left)
            assert not shares.withdraw(owner, left)
        hand_out()
        assert shares.busy == inside.total() <= slots
        assert all(inside[each] <= policy.most for each in OWNERS)
        assert inside[SMALL] <= limit
        assert {each: shares.held(each) for each in OWNERS} == {each: inside[each] for each in OWNERS}
        assert sorted(shares.waiting) == sorted(itertools.chain.from_iterable(waiting.values()))
        if inside.total() < slots:
            assert not [each for each in OWNERS if waiting[each] and not inside[each]], (
                "nobody waits for a first slot that is free"
            )
    # Everybody is served in the end.
    while inside.total():
        owner = next(each for each in OWNERS if inside[each])
        inside[owner] -= 1
        shares.give_back(owner)
        hand_out()
    assert (shares.busy, shares.waiting) == (0, [])
