"""When the members of a shared timer are due, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sessions_app.core.base.shared_timer import SharedTimer

PERIOD = 16.0


class Clock:
    """The part of a loop that is used: its time and its timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []
        self.fired = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], object]) -> Any:
        self.timers.append((when, call))
        timer = self.timers[-1]

        class Handle:
            def cancel(_self) -> None:  # noqa: N805
                self.timers.remove(timer)

        return Handle()

    def call_later(self, delay: float, call: Callable[[], object]) -> Any:
        return self.call_at(self.now + delay, call)

    def pass_until(self, when: float) -> None:
        while due := [each for each in self.timers if each[0] <= when]:
            first = min(due, key=lambda each: each[0])
            self.timers.remove(first)
            self.now = first[0]
            self.fired += 1
            first[1]()
        self.now = when


class Member:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.called: list[float] = []

    def due(self) -> None:
        self.called.append(self._clock.now)


def timer_of(clock: Clock) -> SharedTimer:
    return SharedTimer(clock, PERIOD)  # type: ignore[arg-type]  # as much of a loop as it uses


def test_a_member_is_due_a_period_after_it_was_put_last() -> None:
    clock = Clock()
    timer, member = timer_of(clock), Member(clock)
    timer.put(member)
    clock.pass_until(10)
    timer.put(member)
    clock.pass_until(24)
    assert member.called == []
    clock.pass_until(26)
    assert member.called == [26]


def test_a_member_that_was_due_is_due_again_only_after_it_was_put_again() -> None:
    clock = Clock()
    timer, member = timer_of(clock), Member(clock)
    timer.put(member)
    clock.pass_until(100)
    assert member.called == [16]
    timer.put(member)
    clock.pass_until(200)
    assert member.called == [16, 116]


def test_members_that_began_together_are_called_together() -> None:
    clock = Clock()
    timer = timer_of(clock)
    members = [Member(clock) for _ in range(100)]
    for number, member in enumerate(members):
        clock.now = number * 0.01
        timer.put(member)
    clock.pass_until(20)
    assert [member.called for member in members] == [[16.0]] * 100
    assert clock.fired == 1


def test_a_member_that_is_put_often_sets_no_timer_each_time() -> None:
    clock = Clock()
    timer, member = timer_of(clock), Member(clock)
    for tenth in range(1000):
        clock.pass_until(tenth / 10)
        timer.put(member)
        assert len(clock.timers) == 1
    assert member.called == []
    assert clock.fired < 10


def test_there_is_no_timer_without_members() -> None:
    clock = Clock()
    timer, first, second = timer_of(clock), Member(clock), Member(clock)
    timer.put(first)
    timer.put(second)
    timer.remove(first)
    assert clock.timers
    timer.remove(second)
    assert clock.timers == []
    assert first.called + second.called == []
