"""What the rest of the core says and hears through broadcast."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.services import Redis
from sessions_app.core.log import broadcast
from sessions_app.core.log.broadcast import wire
from sessions_app.core.log.broadcast.layer import ChannelLayer
from sessions_app.core.log.journal.types import Announcement, Event, SessionItem
from tests.core.log.broadcast.conftest import wait_until

Pair = tuple[ChannelLayer, ChannelLayer]
MakeLayer = Callable[..., ChannelLayer]
UseLayer = Callable[[ChannelLayer], None]


def announcement(tenant: int, upto: int, data: str = '{"delta":"é\\ud83d\\ude00"}') -> Announcement:
    return Announcement(tenant, upto - 1, upto, [SessionItem(5, upto - 3, [Event(upto, 5, "text_delta", data, 2)])])


events = st.builds(
    Event,
    seq=st.integers(1, 2**53),
    session=st.just(3),
    kind=st.sampled_from(["text_delta", "turn_ended"]),
    data=st.text(),
    fence=st.none() | st.integers(0, 1000),
)


@given(st.lists(st.builds(SessionItem, session=st.just(3), prev=st.integers(0, 2**53), events=st.lists(events))))
def test_an_announcement_crosses_the_wire_unchanged(items: list[SessionItem]) -> None:
    sent = Announcement(4, 10, 20, items)
    heard = wire.from_messages(orjson.loads(orjson.dumps([wire.to_message(sent)])), missed=False)
    assert heard == broadcast.Received([sent], missed=False)


def test_what_a_newer_release_says_is_skipped() -> None:
    assert wire.from_messages([{"type": "novelty"}], missed=False) == broadcast.Received([], missed=False)


async def test_an_announcement_reaches_its_tenants_listeners_only(pair: Pair, use_layer: UseLayer) -> None:
    here, there = pair
    use_layer(here)
    async with broadcast.listen_tenant(1) as listener, broadcast.listen_tenant(2) as other:
        use_layer(there)
        broadcast.announce([announcement(1, 10), announcement(2, 20), announcement(1, 11)])
        heard = await asyncio.wait_for(listener.receive(), 60)
        assert heard == broadcast.Received([announcement(1, 10), announcement(1, 11)], missed=False)
        assert (await asyncio.wait_for(other.receive(), 60)).announcements == [announcement(2, 20)]


async def test_a_thread_without_a_loop_announces_too(pair: Pair, use_layer: UseLayer) -> None:
    here, there = pair
    use_layer(here)
    async with broadcast.listen_tenant(1) as listener:
        use_layer(there)
        thread = threading.Thread(target=broadcast.announce, args=([announcement(1, 10)],))
        thread.start()
        heard = await asyncio.wait_for(listener.receive(), 60)
        thread.join()
        assert heard.announcements == [announcement(1, 10)]


async def test_what_is_too_big_to_announce_is_said_to_be_missing(pair: Pair, use_layer: UseLayer) -> None:
    here, there = pair
    use_layer(here)
    async with broadcast.listen_tenant(1) as listener:
        use_layer(there)
        broadcast.announce([announcement(1, 10, "x" * (wire.MAX_DATA + 1))])
        assert await asyncio.wait_for(listener.receive(), 60) == broadcast.Received([], missed=True)


def test_announcing_never_raises_and_complains_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, use_layer: UseLayer, make_layer: MakeLayer
) -> None:
    layer = make_layer(None)
    use_layer(layer)

    def fail(*args: Any) -> bool:
        raise RuntimeError("the layer is broken")

    monkeypatch.setattr(layer, "publish", fail)
    monkeypatch.setattr(broadcast, "_failure_logged", False)
    before = broadcast.dropped_messages()
    for _ in range(3):
        broadcast.announce([announcement(1, 10)])
        broadcast.notify_worker("worker", {})
    assert broadcast.dropped_messages() == before + 6
    assert len([record for record in caplog.records if "broadcast_failed" in record.message]) == 1


async def test_announcing_costs_little(pair: Pair, use_layer: UseLayer) -> None:
    here, there = pair
    written = orjson.dumps([wire.to_message(announcement(1, 1))])
    use_layer(here)
    costs, usual = [], []
    async with broadcast.listen_tenant(1) as listener:
        use_layer(there)
        for number in range(300):
            began = time.perf_counter()
            broadcast.announce([announcement(1, number + 1)])
            costs.append(time.perf_counter() - began)
            began = time.perf_counter()
            orjson.dumps(orjson.loads(written))
            usual.append(time.perf_counter() - began)
            await asyncio.wait_for(listener.receive(), 60)
    # No waiting, no round trip: as much as some reading and writing of as many bytes, however fast the machine is.
    assert statistics.median(costs) < 20 * statistics.median(usual)


async def test_a_dead_redis_drops_and_counts(make_layer: MakeLayer, use_layer: UseLayer, own_redis: Redis) -> None:
    layer = make_layer(own_redis.url())
    use_layer(layer)
    await wait_until(broadcast.pubsub_up, "connected")
    own_redis.stop()
    await wait_until(lambda: not broadcast.pubsub_up(), "Redis is down")
    before = broadcast.dropped_messages()
    began = time.monotonic()
    for number in range(1000):
        broadcast.announce([announcement(1, number + 1)])
    # One wait for it, of a second, would be a thousand of them.
    assert time.monotonic() - began < 20
    assert broadcast.dropped_messages() == before + 1000


async def test_a_worker_hears_what_it_is_told_in_its_loop_until_it_stops_listening(pair: Pair, use_layer: UseLayer) -> None:
    here, there = pair
    told: list[dict[str, Any]] = []
    loops: list[object] = []

    def callback(message: dict[str, Any]) -> None:
        loops.append(asyncio.get_running_loop())
        told.append(message)
        if message == {"turn": 1}:
            raise ValueError("one bad message must not end the listening")

    name = "worker@machine:4711 (2)"
    use_layer(here)
    async with broadcast.listen_worker(name, callback), broadcast.listen_worker("another", lambda _: told.append({})):
        use_layer(there)
        for turn in range(3):
            await asyncio.to_thread(broadcast.notify_worker, name, {"turn": turn})
        await wait_until(lambda: len(told) == 3, "all three are heard")
    broadcast.notify_worker(name, {"turn": 3})
    await asyncio.sleep(0)
    assert told == [{"turn": 0}, {"turn": 1}, {"turn": 2}]
    assert set(loops) == {asyncio.get_running_loop()}
