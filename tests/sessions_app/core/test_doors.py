"""Requests of one tenant that stand still, and the others that get in beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from sessions_app.core.doors import Doors


class Visitors:
    """Requests inside a process, each there until it is let go."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.inside: list[Hashable] = []
        self.order: list[Hashable] = []
        self._stay: dict[asyncio.Task[None], asyncio.Event] = {}

    def come(self, owner: Hashable) -> asyncio.Task[None]:
        stay = asyncio.Event()
        task = asyncio.create_task(self._visit(owner, stay))
        self._stay[task] = stay
        return task

    async def _visit(self, owner: Hashable, stay: asyncio.Event) -> None:
        async with self.doors.place(owner):
            self.inside.append(owner)
            self.order.append(owner)
            try:
                await stay.wait()
            finally:
                self.inside.remove(owner)

    async def let_go(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            self._stay[task].set()
        await asyncio.wait(tasks)
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def visitors() -> Visitors:
    return Visitors(Doors(16))


async def test_one_tenant_has_at_most_half_and_all_of_its_requests_are_served_in_the_end(visitors: Visitors) -> None:
    crowd = [visitors.come("a") for _ in range(20)]
    await settled()
    assert visitors.inside == ["a"] * 8
    await visitors.let_go(*crowd)
    assert visitors.order == ["a"] * 20
    assert visitors.inside == []


async def test_several_crowds_leave_places_for_who_has_none(visitors: Visitors) -> None:
    crowds = [visitors.come(owner) for owner in "ab" for _ in range(20)]
    await settled()
    assert len(visitors.inside) == 14
    newcomer = visitors.come("c")
    await settled()
    assert "c" in visitors.inside
    second = visitors.come("c")
    await settled()
    assert visitors.inside.count("c") == 1
    await visitors.let_go(newcomer)
    assert visitors.inside.count("c") == 1
    await visitors.let_go(second, *crowds)
    assert visitors.inside == []


async def test_of_those_that_wait_who_has_the_fewest_places_goes_first(visitors: Visitors) -> None:
    inside = [visitors.come(owner) for owner in ["a"] * 8 + ["b"] * 6]
    await settled()
    waiting = [visitors.come(owner) for owner in "aab"]
    await settled()
    assert len(visitors.inside) == 14
    await visitors.let_go(inside[0])
    assert visitors.order[-1] == "b"
    await visitors.let_go(*inside[1:], *waiting)


@pytest.mark.parametrize("let_in", [False, True])
async def test_who_gives_up_while_it_waits_leaves_no_place_taken(visitors: Visitors, let_in: bool) -> None:
    crowd = [visitors.come("a") for _ in range(8)]
    await settled()
    patient, impatient = visitors.come("a"), visitors.come("a")
    await settled()
    if let_in:
        # Its place is given to it and it is cancelled before it has noticed.
        visitors._stay[crowd[0]].set()
        visitors._stay[crowd[1]].set()
        await asyncio.wait(crowd[:2])
        impatient.cancel()
    else:
        impatient.cancel()
        await visitors.let_go(*crowd[:2])
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    last = visitors.come("a")
    await visitors.let_go(patient, last, *crowd[2:])
    assert visitors.inside == []
    assert (visitors.doors._busy, visitors.doors._waiting, visitors.doors._inside) == (0, {}, {})


async def test_keys_of_one_tenant_share_its_places_once_it_is_known_whose_they_are() -> None:
    doors = Doors(16)
    assert doors.owner(b"Bearer one") != doors.owner(b"Bearer two")
    for shown in (b"Bearer one", b"Bearer two"):
        doors.is_of(shown, "7")
    assert doors.owner(b"Bearer one") == doors.owner(b"Bearer two") == "7"
    assert doors.owner(b"Bearer three") != "7"
