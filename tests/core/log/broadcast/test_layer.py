"""The channel layer, as Channels' consumers and we use it, within a process and over Redis."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable

import pytest
from channels.exceptions import ChannelFull

from ops.services import Redis
from sessions_app.core.log.broadcast.layer import LOST, ChannelLayer
from tests.core.log.broadcast.conftest import wait_until

Pair = tuple[ChannelLayer, ChannelLayer]
MakeLayer = Callable[..., ChannelLayer]


async def received(layer: ChannelLayer, channel: str) -> dict[str, object]:
    message: dict[str, object] = await asyncio.wait_for(layer.receive(channel), 60)
    return message


async def test_a_channel_is_sent_to_by_its_name(pair: Pair) -> None:
    here, there = pair
    mine, other = await here.new_channel(), await here.new_channel()
    assert mine != other
    await there.send(mine, {"type": "a"})
    await there.send(other, {"type": "b"})
    assert await received(here, mine) == {"type": "a"}
    assert await received(here, other) == {"type": "b"}


async def test_a_channel_that_belongs_to_no_process_is_heard_by_who_waits(pair: Pair) -> None:
    here, there = pair
    waiting = asyncio.create_task(received(here, "jobs"))
    until = time.monotonic() + 60
    while not waiting.done() and time.monotonic() < until:
        await there.send("jobs", {"type": "job"})
        await asyncio.sleep(0.005)
    assert await waiting == {"type": "job"}


async def test_every_member_of_a_group_hears_it_and_nobody_after_leaving(pair: Pair) -> None:
    here, there = pair
    first, second = await here.new_channel(), await here.new_channel()
    await here.group_add("group", first)
    await here.group_add("group", second)
    await there.group_send("group", {"type": "one"})
    assert await received(here, first) == await received(here, second) == {"type": "one"}
    await here.group_discard("group", first)
    await there.group_send("group", {"type": "two"})
    assert await received(here, second) == {"type": "two"}
    await there.send(first, {"type": "direct"})
    assert await received(here, first) == {"type": "direct"}


async def test_what_is_sent_as_soon_as_a_join_returned_is_heard(pair: Pair) -> None:
    here, there = pair
    channel = await here.new_channel()
    for number in range(50):
        await here.group_add(f"group.{number}", channel)
        await there.group_send(f"group.{number}", {"n": number})
        assert await received(here, channel) == {"n": number}


async def test_leaving_and_joining_again_at_once_still_hears(pair: Pair) -> None:
    here, there = pair
    channel = await here.new_channel()
    await here.group_add("group", channel)
    for number in range(20):
        await here.group_discard("group", channel)
        await here.group_add("group", channel)
        await there.group_send("group", {"n": number})
        assert await received(here, channel) == {"n": number}


async def test_many_messages_in_one_send_arrive_together_and_in_order(pair: Pair) -> None:
    here, there = pair
    channel = await here.new_channel()
    await here.group_add("group", channel)
    await there.group_send_many("group", [{"n": n} for n in range(100)])
    messages, lost = await asyncio.wait_for(here.receive_many(channel), 60)
    assert messages == [{"n": n} for n in range(100)]
    assert not lost


@pytest.mark.parametrize("kind", ["local", "redis"])
async def test_a_full_channel_says_that_it_lost_something(
    kind: str, make_layer: MakeLayer, request: pytest.FixtureRequest
) -> None:
    url = None if kind == "local" else request.getfixturevalue("shared_redis").url()
    layer = make_layer(url, capacity=3)
    channel, after = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("group", channel)
    for number in range(5):
        await layer.group_send("group", {"n": number})
    await layer.group_add("after", after)
    await layer.group_send("after", {"type": "later"})
    await received(layer, after)
    assert [await received(layer, channel) for _ in range(4)] == [{"n": 0}, {"n": 1}, {"n": 2}, {"type": LOST}]
    await layer.group_send("group", {"n": 9})
    assert await received(layer, channel) == {"n": 9}


async def test_sending_to_a_full_channel_of_this_process_is_refused(make_layer: MakeLayer) -> None:
    layer = make_layer(None, capacity=1)
    channel = await layer.new_channel()
    await layer.send(channel, {"n": 1})
    with pytest.raises(ChannelFull):
        await layer.send(channel, {"n": 2})


async def test_a_full_channel_that_nobody_receives_on_is_forgotten(make_layer: MakeLayer) -> None:
    layer = make_layer(None, capacity=1, expiry=0)
    channel = await layer.new_channel()
    await layer.group_add("group", channel)
    for number in range(3):
        await layer.group_send("group", {"n": number})
    # It is told so if it comes back.
    assert await received(layer, channel) == {"type": LOST}


async def test_a_receiver_in_another_thread_and_loop_hears_at_once(pair: Pair) -> None:
    here, there = pair
    joined = threading.Event()
    heard: list[int] = []

    async def listen() -> None:
        channel = await here.new_channel()
        await here.group_add("group", channel)
        joined.set()
        while len(heard) < 200:
            messages, _ = await here.receive_many(channel)
            heard.extend(message["n"] for message in messages)

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    await asyncio.to_thread(joined.wait, 60)
    for number in range(200):
        there.publish("group", [{"n": number}])
    await asyncio.to_thread(thread.join, 60)
    assert heard == list(range(200))


async def test_names_that_channels_forbids_are_refused(make_layer: MakeLayer) -> None:
    layer = make_layer(None)
    channel = await layer.new_channel()
    with pytest.raises(TypeError):
        await layer.group_add("a group", channel)
    with pytest.raises(TypeError):
        await layer.send("a channel", {})
    with pytest.raises(ValueError, match="another process"):
        await layer.group_add("group", "specific.elsewhere!abc")


async def test_a_flushed_layer_has_no_groups(pair: Pair) -> None:
    here, there = pair
    channel = await here.new_channel()
    await here.group_add("group", channel)
    await here.flush()
    fresh = await here.new_channel()
    await here.group_add("other", fresh)
    await there.group_send("group", {"n": 1})
    await there.group_send("other", {"n": 2})
    assert await received(here, fresh) == {"n": 2}


# Redis


@pytest.mark.parametrize("difference", ["database", "prefix"])
async def test_deployments_that_share_a_redis_do_not_hear_each_other(
    difference: str, make_layer: MakeLayer, shared_redis: Redis
) -> None:
    ours = make_layer(shared_redis.url(1))
    theirs = make_layer(shared_redis.url(2)) if difference == "database" else make_layer(shared_redis.url(1), prefix="theirs")
    channel = await ours.new_channel()
    await ours.group_add("group", channel)
    probe = await theirs.new_channel()
    await theirs.group_add("group", probe)
    await theirs.group_send("group", {"from": "theirs"})
    await received(theirs, probe)
    await ours.group_send("group", {"from": "ours"})
    assert await received(ours, channel) == {"from": "ours"}


async def test_a_stopped_redis_holds_nobody_up_and_is_rejoined_when_it_is_back(
    make_layer: MakeLayer, own_redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="sessions_app.core.log.broadcast.redis")
    here, there = make_layer(own_redis.url()), make_layer(own_redis.url())
    channel = await here.new_channel()
    await here.group_add("group", channel)
    await there.group_send("group", {"n": 0})
    assert await received(here, channel) == {"n": 0}
    own_redis.stop()
    await wait_until(lambda: not here.pubsub_up() and not there.pubsub_up(), "both see that Redis is away")
    assert await received(here, channel) == {"type": LOST}

    began = time.monotonic()
    for number in range(100):
        assert not there.publish("group", [{"n": number}])
    joined_meanwhile = await here.new_channel()
    await here.group_add("meanwhile", joined_meanwhile)
    # One wait for it, of a second, would be a hundred of them.
    assert time.monotonic() - began < 20

    own_redis.start()
    await wait_until(lambda: here.pubsub_up() and there.pubsub_up(), "both are connected again")
    await there.group_send("group", {"n": 1})
    await there.group_send("meanwhile", {"n": 2})
    assert [await received(here, channel) for _ in range(2)] == [{"type": LOST}, {"n": 1}]
    assert [await received(here, joined_meanwhile) for _ in range(2)] == [{"type": LOST}, {"n": 2}]
    words = [record.message for record in caplog.records]
    # Once for each layer and outage, however many attempts there were.
    assert len([word for word in words if "redis_pubsub_down" in word]) == 2
    assert len([word for word in words if word == "redis_pubsub_up: announcements arrive again"]) == 2
    assert not any(own_redis.url() in word for word in words)


async def test_a_redis_that_takes_connections_and_never_answers_counts_as_down(make_layer: MakeLayer) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        layer = make_layer(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        began = time.monotonic()
        layer.publish("group", [{"n": 1}])
        assert time.monotonic() - began < 0.9
        channel = await asyncio.wait_for(layer.new_channel(), 60)
        await asyncio.wait_for(layer.group_add("group", channel), 60)
        assert not layer.pubsub_up()
        assert not layer.publish("group", [{"n": 1}])


async def test_a_wrong_password_is_no_error_of_the_callers(make_layer: MakeLayer, shared_redis: Redis) -> None:
    layer = make_layer(f"redis://:wrong@127.0.0.1:{shared_redis.port}/0")
    channel = await asyncio.wait_for(layer.new_channel(), 60)
    await asyncio.wait_for(layer.group_add("group", channel), 60)
    assert not layer.pubsub_up()


async def test_a_process_has_one_connection_for_all_its_groups(make_layer: MakeLayer, shared_redis: Redis) -> None:
    import redis.asyncio

    layer = make_layer(shared_redis.url(9))
    async with redis.asyncio.Redis.from_url(shared_redis.url(9)) as admin:
        channel = await layer.new_channel()
        named = [each for each in await admin.client_list() if each["name"] == "agenthost-broadcast"]
        for number in range(20):
            await layer.group_add(f"group.{number}", channel)
            await layer.group_send(f"group.{number}", {"n": number})
            await received(layer, channel)
        now = [each for each in await admin.client_list() if each["name"] == "agenthost-broadcast"]
        assert len(now) == len(named)
        layer.close()
        async with asyncio.timeout(60):
            while await admin.client_list() and len(now) == len(named):
                now = [each for each in await admin.client_list() if each["name"] == "agenthost-broadcast"]
