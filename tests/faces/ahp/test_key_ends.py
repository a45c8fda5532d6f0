"""Connections end with their key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.tenant.switchboard import Switchboard
from sessions_app.ahp.transport import consumer, jsonrpc
from sessions_app.ahp.transport.connection import Connection
from sessions_app.ahp.versions import served
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.caller import Limits
from sessions_app.core.tenancy import key_watch, keys
from sessions_app.core.tenancy.key_watch import Slot
from sessions_app.core.tenancy.quotas import Quota
from sessions_app.models import ApiKey, Session
from tests.e2e.ahp_steps import start_action
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.rule("R8")
@pytest.mark.parametrize("end", [turns.revoke_key, keys.expire])
async def test_connections_are_closed_with_1008_when_their_key_ends_before_or_after_the_handshake(
    host: str, sample: SampleTenants, end: Callable[..., bool]
) -> None:
    ready, silent, other = (
        Client(host, key, name)
        for key, name in ((sample.alice.key, "a"), (sample.alice.key, "b"), (sample.alice.reading_key, "c"))
    )
    for client in (ready, silent, other):
        await client.open()
    for client in (ready, other):
        await client.initialize()
    key = await ApiKey.objects.select_related("tenant").aget(pk=sample.alice.caller.key)
    await database.run(end, key, actor="the tests")
    assert [await client.ended() for client in (ready, silent)] == [1008, 1008]
    await other.request("ping")
    await other.close()


@pytest.mark.rule("R8")
async def test_a_suspension_closes_all_connections_of_its_tenant_and_no_others(host: str, sample: SampleTenants) -> None:
    alice, reader, bob = (Client(host, key, "c") for key in (sample.alice.key, sample.alice.reading_key, sample.bob.key))
    for client in (alice, reader, bob):
        await client.open()
        await client.initialize()
    await database.run(turns.suspend_tenant, sample.alice.tenant, actor="the tests")
    assert [await client.ended() for client in (alice, reader)] == [1008, 1008]
    await bob.request("ping")
    await bob.close()


def _frame(**members: object) -> str:
    return jsonrpc.encode({"jsonrpc": "2.0", **members})


@pytest.mark.rule("R8")
async def test_frames_that_wait_when_the_key_ends_have_no_effect(sample: SampleTenants, scripted_agents: None) -> None:
    with key_watch.watching(Slot(Quota.CONNECTIONS_AT_ONCE, sample.alice.caller)) as key:
        connection = Connection(key, Switchboard(sample.alice.tenant.pk), served())
        connection.opened()
        key.on_end(lambda: connection.close(1008))
        for number in range(3):
            params = {"session": f"echo:/{number}", "provider": "echo"}
            await connection.receive(_frame(id=number, method="createSession", params=params))
        key.update(None)
        await asyncio.wait_for(connection.work(), 30)
        # A client that continues to send does not block.
        for number in range(200):
            await asyncio.wait_for(connection.receive(_frame(id=number, method="listSessions", params={})), 30)
    assert await Session.objects.acount() == 0
    assert await connection.next() == 1008


@pytest.mark.rule("R8")
async def test_an_action_that_waits_for_the_rate_limit_when_the_key_ends_has_no_effect(
    sample: SampleTenants, scripted_agents: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await database.run(make_session, sample.alice.caller)
    with key_watch.watching(Slot(Quota.CONNECTIONS_AT_ONCE, sample.alice.caller)) as key:
        connection = Connection(key, Switchboard(sample.alice.tenant.pk), served())
        connection.opened()
        connection.client, connection.life = "me", "life"

        async def wait() -> None:
            key.update(None)

        monkeypatch.setattr(connection._rate_limit, "take", wait)
        action = start_action(f"echo:/{session.public_id}", "hello")
        await connection.receive(_frame(method="dispatchAction", params={"clientSeq": 1, "action": action}))
        await connection.receive(_frame(method="dispatchAction", params={"clientSeq": 2, "action": action}))
        await asyncio.wait_for(connection.work(), 30)
    assert await session.turns.acount() == 0


@pytest.mark.rule("R8")
async def test_a_new_request_size_limit_of_a_key_applies_to_its_open_connections(host: str, sample: SampleTenants) -> None:
    client, other = Client(host, sample.alice.key, "a"), Client(host, sample.bob.key, "b")
    for each in (client, other):
        await each.open()
        await each.initialize()
    key = await ApiKey.objects.select_related("tenant").aget(pk=sample.alice.caller.key)
    await database.run(keys.set_limits, key, Limits(request_bytes=0), actor="the tests")

    async def ask_on() -> None:
        while True:
            await client.request("ping")

    with pytest.raises(Disconnected):
        await asyncio.wait_for(ask_on(), 30)
    assert client.closed_with == 1009
    await other.request("ping")
    await other.close()


@pytest.mark.rule("R8")
async def test_a_connection_of_an_ended_key_closes_though_its_client_reads_nothing(
    sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "_CLOSING_SECONDS", 0.01)
    sending = asyncio.Event()

    async def receive() -> consumer.Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(_message: consumer.Message) -> None:
        sending.set()
        await asyncio.Event().wait()

    with key_watch.watching(Slot(Quota.CONNECTIONS_AT_ONCE, sample.alice.caller)) as key:
        connection = Connection(key, Switchboard(sample.alice.tenant.pk), served())
        key.on_end(lambda: connection.close(consumer.KEY_ENDED))
        conversation = asyncio.create_task(consumer._converse(connection, receive, send))
        connection.outbox.put("something")
        await asyncio.wait_for(sending.wait(), 30)
        key.update(None)
        await asyncio.wait_for(conversation, 30)
