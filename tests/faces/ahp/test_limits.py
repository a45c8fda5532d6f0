"""Limits of connections, frames, subscriptions, rates and memory."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Collection, Hashable, Sequence
from contextvars import copy_context
from typing import Any

import pytest
from pytest_django import Settings
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from agenthost.edge import bodies
from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.tenant import presence, subscribing
from sessions_app.ahp.tenant.switchboard import Switchboard
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.connection import Connection
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.transport.rate_limit import RateLimit
from sessions_app.ahp.version import Resource, Version
from sessions_app.ahp.versions import served
from sessions_app.ahp.versions.v0_1 import snapshots
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import byte_budget, database, draining, raw_sql
from sessions_app.core.base.caller import Caller, Limits
from sessions_app.core.records import addresses, session_changes
from sessions_app.core.sessions import connections
from sessions_app.core.tenancy import tenants, usage_entries
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota
from sessions_app.models import ApiKey, ClientPresence
from tests import serving
from tests.e2e.ahp_steps import create_session, new_uri, rejection_reason, start_action
from tests.e2e.ahp_watcher import Watcher
from tests.network.agenthost.test_websocket import HANDSHAKE, TEXT, frame, until
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)


async def _status(host: str, key: str) -> int:
    with pytest.raises(InvalidStatus) as rejection_reason:
        async with connect(host, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None):
            pass
    return rejection_reason.value.response.status_code


async def test_connections_are_limited_per_tenant(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_AHP_CONNECTIONS = 2
    clients = [Client(host, sample.alice.key, f"client {number}") for number in range(2)]
    for client in clients:
        await client.open()
        await client.initialize()
    assert await _status(host, sample.alice.key) == 429
    other = Client(host, sample.bob.key, "other")
    await other.open()
    await other.close()
    await clients[0].close()
    async with asyncio.timeout(30):
        while True:
            try:
                await clients[0].open()
            except InvalidStatus:
                await asyncio.sleep(0)
            else:
                break
    for client in clients:
        await client.close()


async def test_connections_are_limited_per_key(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_AHP_CONNECTIONS_PER_KEY = 1
    client, other = Client(host, sample.alice.key, "one"), Client(host, sample.alice.reading_key, "other")
    for each in (client, other):
        await each.open()
        await each.initialize()
    assert await _status(host, sample.alice.key) == 429
    for each in (client, other):
        await each.close()


async def test_a_server_that_shuts_down_accepts_no_connections(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "is_draining", lambda: True)
    assert await _status(host, sample.alice.key) == 503


@pytest.mark.rule("R7")
async def test_a_frame_over_the_keys_own_limit_closes_with_1009(host: str, sample: SampleTenants) -> None:
    await ApiKey.objects.filter(prefix=sample.alice.caller.key_prefix).aupdate(max_request_bytes=2000)
    client = Client(host, sample.alice.key, "large")
    await client.open()
    await client.initialize()
    await client.send('"' + "é" * 1001 + '"')
    assert await client.ended() == 1009


async def test_frames_are_counted_for_their_tenant_until_they_are_answered(
    host: str, sample: SampleTenants, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_BODIES_BYTES = 100_000
    owners = set()
    take = bodies.BUDGET.take

    def taken(owner: Hashable, size: int) -> bool:
        owners.add(owner)
        return take(owner, size)

    monkeypatch.setattr(bodies.BUDGET, "take", taken)
    client = Client(host, sample.alice.key, "talkative")
    await client.open()
    await client.initialize()
    for _ in range(20):
        with pytest.raises(RPCError):
            await client.request("no such method", {"text": "x" * 10_000})
        assert await client.request("ping") is None
    assert owners == {sample.alice.caller.tenant}
    await client.close()


async def test_dispatches_above_the_rate_limit_wait_and_are_not_rejected() -> None:
    loop = asyncio.get_running_loop()
    allowance = RateLimit(50)
    began = loop.time()
    for _ in range(110):
        await allowance.take()
    # Two seconds' worth at once; the last ten in turn.
    assert loop.time() - began >= 0.19
    free = RateLimit(0)
    began = loop.time()
    for _ in range(10_000):
        await free.take()
    assert loop.time() - began < 10


@pytest.mark.rule("R385")
async def test_both_protocols_use_one_share_of_threads_per_tenant(sample: SampleTenants, settings: Settings) -> None:
    database.shut_down()
    settings.AGENTHOST_DATABASE_POOL_MAX = 4
    members = (sample.alice.caller, sample.bob.caller)
    alice, bob = (Connection(Slot(Quota.CONNECTIONS_AT_ONCE, each), Switchboard(each.tenant), served()) for each in members)
    may_end, both = threading.Event(), threading.Barrier(3)

    def stand() -> None:
        both.wait(60)
        assert may_end.wait(60)

    # Two requests of AAP, in threads of the same share.
    standing = [asyncio.create_task(database.serve(sample.alice.caller.tenant, None, copy_context(), stand)) for _ in range(2)]
    try:
        await asyncio.to_thread(both.wait, 60)
        command = asyncio.create_task(alice.in_database(str, "alice"))
        assert await bob.in_database(str, "bob") == "bob"
        assert await bob.in_database(str, "bob again") == "bob again"
        assert not command.done()
        may_end.set()
        assert await command == "alice"
    finally:
        may_end.set()
        await asyncio.gather(*standing)
        await asyncio.to_thread(database.shut_down)


@pytest.mark.rule("R188", "R385")
@pytest.mark.slow
async def test_storing_lost_presence_again_does_not_delay_other_renewals(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = Client(host, sample.alice.key, "alice"), Client(host, sample.bob.key, "bob")
    for client in (alice, bob):
        await client.open()
        await client.initialize()
    tenant = sample.alice.caller.tenant
    hers = [row.pk async for row in ClientPresence.objects.filter(tenant_id=tenant)]
    entering, may_enter, renewed = threading.Event(), threading.Event(), threading.Semaphore(0)

    def renew(there: Collection[str]) -> set[str]:
        if entering.is_set():
            renewed.release()
        return set(hers)

    def connected(caller: Caller, client: str, connection: str, *, resumed: bool) -> str:
        entering.set()
        assert may_enter.wait(60)
        return "life"

    monkeypatch.setattr(connections, "connected", connected)
    monkeypatch.setattr(connections, "renew", renew)
    monkeypatch.setattr(presence, "_RENEWALS", 1500)
    try:
        for _ in range(3):
            assert await asyncio.to_thread(renewed.acquire, timeout=20)
    finally:
        may_enter.set()
    for client in (alice, bob):
        await client.close()


@pytest.mark.rule("R83", "R90")
async def test_tools_and_messages_above_the_stored_bytes_quota_are_rejected_with_a_reason(
    host: str, sample: SampleTenants
) -> None:
    def limit(most: int | None) -> None:
        tenants.set_limits(sample.alice.tenant, Limits(stored_bytes=most), session_retention_days=None, actor="the tests")

    entry = {"clientId": "me", "tools": [{"name": "open_file", "description": "x" * 2000}]}
    await database.run(limit, 1000)
    client = Watcher(host, sample.alice.key, "me")
    await client.open()
    await client.initialize()
    with pytest.raises(RPCError) as failed:
        await client.request("createSession", {"session": "echo:/full", "provider": "echo", "activeClient": entry})
    assert "stored-bytes of 1000" in failed.value.message
    uri = await create_session(client)
    message = {"kind": "queued", "id": "q", "userMessage": {"text": "y" * 2000}}
    for action in (
        {"type": "session/activeClientChanged", "session": uri, "activeClient": entry},
        {"type": "session/pendingMessageSet", "session": uri, **message},
    ):
        assert await rejection_reason(client, action) == "this tenant has used its quota stored-bytes of 1000"
    await client.check(uri)
    await client.close()


@pytest.mark.rule("R41", "R45")
async def test_a_handshake_with_too_many_uris_is_refused_and_may_be_tried_again(
    host: str, sample: SampleTenants, settings: Settings
) -> None:
    settings.AGENTHOST_AHP_SUBSCRIPTIONS = 10
    client = Client(host, sample.alice.key, "greedy")
    await client.open()
    with pytest.raises(RPCError) as refusal:
        await client.initialize(*(f"sailor:/{number}" for number in range(200_000 // 2)))
    assert refusal.value.code == jsonrpc.INVALID_PARAMS
    assert "initialSubscriptions" in refusal.value.message
    assert "the limit is 10" in refusal.value.message
    with pytest.raises(RPCError) as refusal:
        await client.request("reconnect", {"clientId": "greedy", "lastSeenServerSeq": 0, "subscriptions": ["a:/b"] * 11})
    assert refusal.value.code == jsonrpc.INVALID_PARAMS
    with pytest.raises(RPCError):
        await client.request("initialize", {"protocolVersions": ["0.1.0"] * 101, "clientId": "greedy"})
    assert (await client.initialize("sailor:/1"))["snapshots"] == []
    await client.close()


@pytest.mark.rule("R61")
async def test_subscriptions_of_a_connection_are_limited(host: str, sample: SampleTenants, settings: Settings) -> None:
    settings.AGENTHOST_AHP_SUBSCRIPTIONS = 2
    client = Watcher(host, sample.alice.key, "curious")
    await client.open()
    await client.initialize(ROOT)
    uris = [new_uri() for _ in range(2)]
    for uri in uris:
        await client.request("createSession", {"session": uri, "provider": "echo"})
    await client.subscribe(uris[0])
    with pytest.raises(RPCError) as refusal:
        await client.subscribe(uris[1])
    assert refusal.value.code == jsonrpc.INVALID_PARAMS
    await client.subscribe(uris[0])
    await client.unsubscribe(ROOT)
    await client.subscribe(uris[1])
    await client.close()


@pytest.mark.rule("R45")
async def test_all_uris_of_a_handshake_are_looked_up_in_one_query(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Watcher(host, sample.alice.key, "maker")
    await maker.open()
    await maker.initialize()
    uris = [await create_session(maker, "echo") for _ in range(3)]
    asked: list[str] = []
    query = raw_sql.rows

    def counted(sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # Not the server's look at keys, once a second.
        if "sessions_app_address" in sql:
            asked.append(sql)
        return query(sql, params)

    monkeypatch.setattr(raw_sql, "rows", counted)
    found, missing = await database.run(snapshots.find_all, sample.alice.caller, [*uris, *(f"sailor:/{n}" for n in range(400))])
    assert [resource.channel.uri for resource in found] == uris
    assert len(missing) == 400
    assert len(asked) == 1
    assert await database.run(snapshots.find_all, sample.bob.caller, uris) == ([], uris)
    await maker.close()


async def test_reading_snapshots_ends_with_the_connection_that_asked(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Watcher(host, sample.alice.key, "maker")
    await maker.open()
    await maker.initialize()
    uris = [await create_session(maker, "echo") for _ in range(20)]
    begun, over, ended, left = (threading.Event() for _ in range(4))
    read, leave, asked_for = subscribing.read_all, presence.leave, 0

    def slow(version: Version, caller: Caller, resources: Sequence[Resource]) -> Any:
        nonlocal asked_for
        asked_for += len(resources)
        begun.set()
        assert over.wait(60)
        try:
            return read(version, caller, resources)
        finally:
            ended.set()

    async def leaves(connection: Connection) -> None:
        left.set()
        await leave(connection)

    monkeypatch.setattr(subscribing, "read_all", slow)
    monkeypatch.setattr(presence, "leave", leaves)
    leaver = Client(host, sample.alice.key, "leaver")
    await leaver.open()
    asked = asyncio.create_task(leaver.initialize(*uris))
    assert await asyncio.to_thread(begun.wait, 60)
    leaver.cut()
    await asyncio.wait({asked}, timeout=60)
    assert await asyncio.to_thread(left.wait, 60)
    over.set()
    assert await asyncio.to_thread(ended.wait, 60)
    assert asked_for < len(uris)
    await maker.close()


@pytest.mark.rule("R83")
async def test_a_session_that_is_full_rejects_a_turn_and_says_why(host: str, sample: SampleTenants, settings: Settings) -> None:
    client = Watcher(host, sample.alice.key, "writer")
    await client.open()
    await client.initialize()
    uri = await create_session(client, "echo")
    settings.AGENTHOST_SESSION_BYTES = 1
    reason = await rejection_reason(client, start_action(uri, "hello"))
    assert "size limit of 1 bytes (AGENTHOST_SESSION_BYTES)" in reason
    await client.close()


@pytest.mark.rule("R283")
async def test_a_client_that_missed_more_bytes_than_are_replayed_gets_snapshots(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Watcher(host, sample.alice.key, "late")
    await client.open()
    await client.initialize()
    uri = await create_session(client, "echo")
    for most, answer in ((1_000_000, "replay"), (1_000, "snapshot")):
        monkeypatch.setattr(subscribing, "_MAX_BYTES", most)
        client.cut()
        await client.ended()
        session = await database.run(addresses.find, sample.alice.caller, uri)
        for number in range(3):
            title = f"{number} {'x' * 2_000}"
            await database.run(session_changes.rename, sample.alice.caller, session, title, dispatched=None)
        assert await client.reconnect() == answer
        assert client.state(uri)["summary"]["title"] == title
    await client.close()


@pytest.mark.rule("R6")
async def test_unread_frames_of_a_tenant_are_limited_in_total(
    host: str, sample: SampleTenants, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_ANSWERS_BYTES = 30_000_000
    large = "x" * 20_000_000
    read = snapshots.read_state

    def padded(caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
        seq, state = read(caller, resource)
        return seq, {**state, "config": {"schema": {"type": "object", "properties": {}, "_": large}}}

    monkeypatch.setattr(snapshots, "read_state", padded)
    answers, before = byte_budget.ANSWERS, byte_budget.ANSWERS.held
    hello = {"protocolVersions": ["0.1.0"], "clientId": "deaf", "initialSubscriptions": [ROOT]}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    deaf = serving.Connection(int(host.split(":")[2].partition("/")[0]))
    try:
        deaf.head("GET", "/ahp", authorization=f"Bearer {sample.alice.key}", **HANDSHAKE)
        while b"\r\n\r\n" not in deaf._read:
            deaf._more()
        deaf.send(frame(TEXT, request))
        async with asyncio.timeout(60):
            await asyncio.to_thread(until, lambda: answers.held >= before + 19_000_000)
            client = Client(host, sample.alice.key, "reader")
            await client.open()
            with pytest.raises(Disconnected):
                await client.initialize(ROOT)
            assert await client.ended() == 1013
            # The one that reads nothing is closed as well.
            await asyncio.to_thread(until, lambda: answers.held == before)
            await client.open()
            await client.initialize(ROOT)
            await client.close()
            await asyncio.to_thread(until, lambda: answers.held == before)
    finally:
        deaf.close()


@pytest.mark.rule("R61", "R112")
async def test_large_snapshots_and_turns_are_not_read_while_unread_answers_leave_no_room(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Watcher(host, sample.alice.key, "patient")
    await client.open()
    await client.initialize()
    uri = new_uri()
    await client.request("createSession", {"session": uri, "provider": "echo"})
    for size in ("bytes_of_session", "bytes_of_history"):
        monkeypatch.setattr(usage_entries, size, lambda *_: 2_000_000)
    tenant, answers = sample.alice.caller.tenant, byte_budget.ANSWERS
    before, most = answers.held, answers._most()
    assert answers.take(tenant, most, alone=True)
    try:
        for method, params in (("subscribe", {"resource": uri}), ("fetchTurns", {"session": uri})):
            with pytest.raises(RPCError) as refusal:
                await client.request(method, params)
            assert "have not been read yet" in refusal.value.message
    finally:
        answers.give_back(tenant, most)
    await client.subscribe(uri)
    assert (await client.request("fetchTurns", {"session": uri}))["turns"] == []
    await asyncio.to_thread(until, lambda: answers.held == before)
    await client.close()


@pytest.mark.rule("R65")
async def test_a_large_snapshot_is_not_counted_twice_when_it_is_ready(
    host: str, sample: SampleTenants, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_ANSWERS_BYTES = 30_000_000
    read = snapshots.read_state

    def large(caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
        byte_budget.reserve(20_000_000)
        seq, state = read(caller, resource)
        return seq, {**state, "config": {"_": "x" * 20_000_000}}

    monkeypatch.setattr(snapshots, "read_state", large)
    before = byte_budget.ANSWERS.held
    client = Client(host, sample.alice.key, "reader")
    await client.open()
    await client.initialize(ROOT)
    await client.unsubscribe(ROOT)
    await client.subscribe(ROOT)
    await asyncio.to_thread(until, lambda: byte_budget.ANSWERS.held == before)
    await client.close()
