"""Delivery when announcements are lost, late or doubled and connections are cut: nothing is missed."""

from __future__ import annotations

import asyncio
import random

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.tenant import subscribing
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.log import broadcast
from sessions_app.core.records import session_changes
from tests.core.log.feed.conftest import Weather
from tests.e2e.ahp_watcher import Watcher, without_clock
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("R6", "R65", "R67", "R280", "R281", "R282")
@pytest.mark.parametrize("seed", range(5))
async def test_clients_miss_nothing_when_announcements_are_lost_late_or_doubled(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    weather = Weather(chance=random.Random(seed), lost=0.2, twice=0.2, late=0.3)
    monkeypatch.setattr(broadcast, "announce", weather)
    chance = random.Random(1000 + seed)
    caller = sample.alice.caller
    sessions = [await database.run(make_session, caller) for _ in range(2)]
    uris = [f"echo:/{session.public_id}" for session in sessions]
    client = Watcher(host, sample.alice.key, "watcher")
    await client.open()
    await client.initialize(ROOT, *uris)

    async def change(which: int) -> None:
        for number in range(30):
            title = f"{which}.{number}"
            if chance.random() < 0.5:
                await database.run(session_changes.rename, caller, sessions[which], title, dispatched=None)
            else:
                read = chance.random() < 0.5
                await database.run(session_changes.mark_read, caller, sessions[which], read=read, dispatched=None)
        await database.run(session_changes.rename, caller, sessions[which], "last", dispatched=None)

    async def cut() -> None:
        """At envelopes drawn by lot."""
        for _ in range(4):
            upto = len(client.seen) + chance.randrange(1, 8)
            try:
                await client.until(lambda upto=upto: len(client.seen) >= upto, 3)  # type: ignore[misc]
            except TimeoutError:
                return
            client.cut()
            with pytest.raises(Disconnected):
                await client.until(lambda: False)
            assert await client.reconnect() == "replay"
            await client.check(uris[chance.randrange(2)])

    await asyncio.gather(change(0), change(1), cut())
    for uri in uris:
        await client.until(lambda uri=uri: client.state(uri)["summary"]["title"] == "last")  # type: ignore[misc]
        await client.check(uri)
    numbers = [each["serverSeq"] for each in client.seen]
    assert numbers == sorted(set(numbers))
    await client.close()


@pytest.mark.rule("R6", "R64", "R65")
async def test_a_subscription_during_changes_begins_exactly_at_its_snapshot(host: str, sample: SampleTenants) -> None:
    caller = sample.alice.caller
    session = await database.run(make_session, caller)
    uri = f"echo:/{session.public_id}"
    client = Watcher(host, sample.alice.key, "watcher")
    await client.open()
    await client.initialize(uri)
    done = asyncio.Event()

    async def change() -> None:
        for number in range(60):
            await database.run(session_changes.rename, caller, session, f"title {number}", dispatched=None)
        done.set()

    changing = asyncio.create_task(change())
    while not done.is_set():
        await client.check(uri)
    await changing
    await client.until(lambda: client.state(uri)["summary"]["title"] == "title 59")
    await client.check(uri)
    other = Watcher(host, sample.alice.key, "other")
    await other.open()
    await other.initialize(uri)
    assert without_clock(other.state(uri)) == without_clock(client.state(uri))
    await client.close()
    await other.close()


@pytest.mark.rule("R381")
async def test_numbers_and_counts_of_a_tenant_do_not_depend_on_another(host: str, sample: SampleTenants) -> None:
    alice, bob = Watcher(host, sample.alice.key, "same"), Watcher(host, sample.bob.key, "same")
    for client in (alice, bob):
        await client.open()
        await client.initialize(ROOT)
    before = bob.last_seq
    for number in range(5):
        await alice.request("createSession", {"session": f"echo:/{number}", "provider": "echo"})
    result = await bob.request("createSession", {"session": "echo:/mine", "provider": "echo"})
    assert result is None
    await bob.until(lambda: bob.state(ROOT)["activeSessions"] == 1)
    # Made, and counted: two events.
    assert bob.seen[-1]["serverSeq"] == before + 2
    for client in (alice, bob):
        await client.close()


@pytest.mark.rule("R40", "R41")
async def test_a_handshake_that_fails_half_way_leaves_nothing_and_may_be_tried_again(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caller = sample.alice.caller
    session = await database.run(make_session, caller)
    uri = f"echo:/{session.public_id}"
    client = Watcher(host, sample.alice.key, "persistent")
    await client.open()
    with monkeypatch.context() as patch:
        patch.setattr(subscribing, "read_all", _fails)
        with pytest.raises(RPCError) as failed:
            await client.initialize(uri)
        assert failed.value.code == -32603
        assert "insides" not in failed.value.message
    await database.run(session_changes.rename, caller, session, "unheard", dispatched=None)
    with pytest.raises(RPCError) as early:
        await client.request("listSessions", {})
    assert early.value.code == -32600
    await client.initialize(uri)
    await database.run(session_changes.rename, caller, session, "heard", dispatched=None)
    await client.until(lambda: client.state(uri)["summary"]["title"] == "heard")
    assert [each["action"]["title"] for each in client.seen] == ["heard"]
    await client.check(uri)
    await client.close()


def _fails(*_: object) -> None:
    raise ValueError("insides of the host")
