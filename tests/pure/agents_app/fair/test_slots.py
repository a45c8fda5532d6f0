"""Places for requests: bounded, and no key's thousand makes another wait."""

from __future__ import annotations

import asyncio

from agents_app.fair.slots import FairSlots


class Crowd:
    """Tasks that hold a place until they are told to leave it."""

    def __init__(self, places: int) -> None:
        self.slots = FairSlots(places)
        self.inside: list[str] = []
        self.doors: list[tuple[str, asyncio.Event]] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def arrive(self, key: str, count: int = 1) -> None:
        self.tasks += [asyncio.ensure_future(self._hold(key)) for _ in range(count)]
        await self.settle()

    async def _hold(self, key: str) -> None:
        async with self.slots.held(key):
            door = asyncio.Event()
            self.inside.append(key)
            self.doors.append((key, door))
            await door.wait()
            self.inside.remove(key)

    async def leave(self, key: str) -> None:
        entry = next(entry for entry in self.doors if entry[0] == key)
        self.doors.remove(entry)
        entry[1].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def count(self, key: str) -> int:
        return self.inside.count(key)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_a_key_has_half_of_the_places_and_the_rest_waits_for_them() -> None:
    crowd = Crowd(16)
    await crowd.arrive("a", 1_000)
    assert crowd.count("a") == 8
    await crowd.leave("a")
    assert crowd.count("a") == 8
    await crowd.close()


async def test_some_places_are_kept_for_those_who_have_none() -> None:
    crowd = Crowd(16)
    for key in "abc":
        await crowd.arrive(key, 100)
    assert len(crowd.inside) == 15
    await crowd.arrive("d")
    assert crowd.count("d") == 1
    await crowd.arrive("d", 5)
    assert crowd.count("d") == 1
    await crowd.close()


async def test_a_place_that_is_free_goes_to_whom_has_the_fewest() -> None:
    crowd = Crowd(16)
    await crowd.arrive("a", 100)
    await crowd.arrive("b", 100)
    assert (crowd.count("a"), crowd.count("b")) == (8, 6)
    await crowd.leave("a")
    assert (crowd.count("a"), crowd.count("b")) == (7, 7)
    await crowd.close()


async def test_who_is_cancelled_while_waiting_or_inside_leaves_nothing_behind() -> None:
    crowd = Crowd(2)
    await crowd.arrive("a", 6)
    waiting, inside = crowd.tasks[4], crowd.tasks[0]
    waiting.cancel()
    # Its turn comes in the very moment that it gives up.
    crowd.tasks[1].cancel()
    inside.cancel()
    await crowd.settle()
    assert crowd.slots.busy == 1
    await crowd.close()
    assert crowd.slots.busy == 0
    await crowd.arrive("b")
    assert crowd.count("b") == 1
    await crowd.close()
