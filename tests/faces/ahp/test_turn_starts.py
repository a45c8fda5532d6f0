"""Starts of turns, which the host handles on its event loop: locked sessions, lost connections, repetitions, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sessions_app.ahp.client.version import ClientVersion
from sessions_app.core.base import database
from sessions_app.core.base.caller import Limits
from sessions_app.core.records import addresses
from sessions_app.core.tenancy import keys, rates, tenants
from sessions_app.models import Session, Turn
from tests.core.conftest import locked
from tests.e2e.ahp_mirror import STARTED, V0_9, V1_0, mirroring
from tests.e2e.ahp_steps import create_session, rejection_reason, start_action, start_turn
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenant, SampleTenants

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
pytestmark = pytest.mark.django_db(transaction=True)


async def _client(host: str, tenant: SampleTenant, name: str) -> Watcher:
    client = Watcher(host, tenant.key, name)
    await client.open()
    await client.initialize()
    return client


@pytest.fixture
async def alice(host: str, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = await _client(host, sample.alice, "alice")
    yield client
    await client.close()


@pytest.fixture
async def bob(host: str, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = await _client(host, sample.bob, "bob")
    yield client
    await client.close()


def _turns(uri: str, caller: Any) -> list[str]:
    return list(Turn.objects.filter(session=addresses.find(caller, uri)).values_list("public_id", flat=True))


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not await database.run(condition):  # noqa: ASYNC110 - the host's database has no notification for it
            await asyncio.sleep(0.01)


async def test_no_thread_is_used(alice: Watcher, monkeypatch: pytest.MonkeyPatch, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no connections for loops")
    uris = [await create_session(alice) for _ in range(3)]
    await start_turn(alice, uris[0], "the loop opens its connections")

    async def refuse(*_arguments: Any) -> None:
        raise AssertionError("in a thread")

    monkeypatch.setattr(database, "serve", refuse)
    for uri in uris[1:]:
        await start_turn(alice, uri, "hello")
    assert "active" in await rejection_reason(alice, start_action(uris[1], "again"))


@both
async def test_no_thread_is_used_in_newer_versions(
    host: str, sample: SampleTenants, version: ClientVersion, monkeypatch: pytest.MonkeyPatch, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no connections for loops")
    async with mirroring(host, sample.alice.key, "newer", version=version) as client:
        chats = [(await client.create())[1] for _ in range(4)]
        await client.start(chats[0], "the loop opens its connections")

        async def refuse(*_arguments: Any) -> None:
            raise AssertionError("in a thread")

        monkeypatch.setattr(database, "serve", refuse)
        for chat in chats[1:3]:
            await client.start(chat, "hello")
        message = {"text": "again", "origin": {"kind": "user"}}
        again = {"turnId": "again", "startedAt": STARTED, "message": message}
        assert "active" in await client.refused(chats[1], "chat/turnStarted", **again)
        assert "no model" in await client.refused(
            chats[3], "chat/turnStarted", **again | {"message": {**message, "model": {"id": "x"}}}
        )
        # A chat that does not exist is ignored, on the loop too.
        await client.dispatch({"type": "chat/turnStarted", **again}, "ahp-chat:/sess_nobody")
        await client.act(chats[3], "chat/turnStarted", **again)
        assert len([each for each in client.seen if "rejectionReason" in each]) == 2


@both
async def test_a_turn_of_newer_versions_starts_when_its_session_is_free(
    host: str, sample: SampleTenants, version: ClientVersion, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    async with mirroring(host, sample.alice.key, "newer", version=version) as client:
        _, chat = await client.create()
        row = await database.run(lambda: Session.objects.get(tenant__slug="alice"))
        holding = locked(lambda: Session.objects.select_for_update().get(pk=row.pk))
        await asyncio.to_thread(holding.__enter__)
        message = {"text": "hello", "origin": {"kind": "user"}}
        try:
            action = {"type": "chat/turnStarted", "turnId": "t1", "startedAt": STARTED, "message": message}
            seq = await client.dispatch(action, chat)
            await client.request("ping", {"channel": "ahp-root://"})
            assert client._echo_of(seq) is None
        finally:
            await asyncio.to_thread(holding.__exit__, None, None, None)
        assert "rejectionReason" not in await client.echo(seq)


async def test_a_turn_starts_when_its_session_is_free_and_others_start_meanwhile(
    alice: Watcher, bob: Watcher, on_postgres: bool
) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    uri, other = await create_session(alice), await create_session(bob)
    await start_turn(bob, await create_session(bob), "the loop opens its connections")
    row = await database.run(lambda: Session.objects.get(tenant__slug="alice"))
    holding = locked(lambda: Session.objects.select_for_update().get(pk=row.pk))
    await asyncio.to_thread(holding.__enter__)
    try:
        seq = await alice.dispatch(start_action(uri, "hello"))
        await start_turn(bob, other, "hello")
        assert alice._echo_of(seq) is None
    finally:
        await asyncio.to_thread(holding.__exit__, None, None, None)
    assert "rejectionReason" not in await alice.echo(seq)


async def test_a_turn_starts_although_its_client_has_left(alice: Watcher, sample: SampleTenants, on_postgres: bool) -> None:
    if not on_postgres:
        pytest.skip("SQLite has no row locks")
    uri = await create_session(alice)
    row = await database.run(lambda: Session.objects.get(tenant__slug="alice"))
    holding = locked(lambda: Session.objects.select_for_update().get(pk=row.pk))
    await asyncio.to_thread(holding.__enter__)
    try:
        await alice.dispatch(start_action(uri, "hello"))
        await alice.request("ping", {})
        alice.cut()
    finally:
        await asyncio.to_thread(holding.__exit__, None, None, None)
    await _until(lambda: len(_turns(uri, sample.alice.caller)) == 1)


async def test_an_action_that_is_sent_again_starts_one_turn(alice: Watcher, sample: SampleTenants) -> None:
    uri = await create_session(alice)
    action = start_action(uri, "hello", "t1")
    seq = await alice.dispatch(action)
    await alice.echo(seq)
    await alice.reconnect()
    await alice.notify("dispatchAction", {"clientSeq": seq, "action": action})
    await alice.echo(await alice.dispatch({"type": "session/titleChanged", "session": uri, "title": "after it"}))
    assert [each for each in alice.seen if "rejectionReason" in each] == []
    assert await database.run(_turns, uri, sample.alice.caller) == ["t1"]


async def test_an_action_that_is_sent_twice_by_one_connection_is_handled_twice(alice: Watcher) -> None:
    uri = await create_session(alice)
    action = start_action(uri, "hello", "t1")
    seq = await alice.dispatch(action)
    await alice.echo(seq)
    await alice.notify("dispatchAction", {"clientSeq": seq, "action": action})
    await alice.until(lambda: "rejectionReason" in alice.seen[-1])
    assert alice.seen[-1]["rejectionReason"] == "a turn is active in this session"


async def test_a_turns_id_is_used_once(alice: Watcher) -> None:
    uri = await create_session(alice)
    await alice.echo(await alice.dispatch(start_action(uri, "hello", "t1")))
    await alice.echo(await alice.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": "t1"}))
    assert "already has a turn with this id" in await rejection_reason(alice, start_action(uri, "again", "t1"))
    assert "1 to 256 characters" in await rejection_reason(alice, start_action(uri, "again", ""))


async def test_a_uri_that_is_used_again_means_the_new_session(alice: Watcher, sample: SampleTenants) -> None:
    uri = await create_session(alice)
    await start_turn(alice, uri, "hello")
    await alice.unsubscribe(uri)
    await alice.request("disposeSession", {"session": uri})
    await create_session(alice, uri=uri)
    await alice.echo(await alice.dispatch(start_action(uri, "hello", "of the new one")))
    assert await database.run(_turns, uri, sample.alice.caller) == ["of the new one"]


async def test_an_agent_that_the_key_may_not_see_starts_no_turn(alice: Watcher, host: str, sample: SampleTenants) -> None:
    uri = await create_session(alice)
    await start_turn(alice, await create_session(alice), "hello")

    def issue() -> str:
        return keys.issue(
            sample.alice.tenant, name="other", scopes=["*"], expires_at=None, allowed_agents=["pilot"], actor="tests"
        ).raw

    other = Watcher(host, await database.run(issue), "other")
    await other.open()
    await other.initialize()
    await other.dispatch(start_action(uri, "hello"))
    await start_turn(other, await create_session(other, "pilot"), "hello")
    await other.close()
    assert await database.run(_turns, uri, sample.alice.caller) == []


@pytest.mark.rule("A6")
@pytest.mark.parametrize("limits", [Limits(turns_at_once=1), Limits(turns_per_minute=1), Limits(tokens_per_day=0)])
async def test_limits_hold(host: str, sample: SampleTenants, limits: Limits) -> None:
    def limit() -> None:
        tenants.set_limits(sample.alice.tenant, limits, session_retention_days=None, actor="tests")

    await database.run(limit)
    client = await _client(host, sample.alice, "limited")
    first, second = await create_session(client), await create_session(client)
    if limits.tokens_per_day is None:
        await start_turn(client, first, "hello")
    assert "has used its quota" in await rejection_reason(client, start_action(second, "hello"))
    await client.close()
    # While the host's loop can still close its connections.
    await asyncio.to_thread(rates.reset)
    assert await database.run(_turns, second, sample.alice.caller) == []


async def test_a_large_message_starts_a_turn(alice: Watcher) -> None:
    uri = await create_session(alice)
    await start_turn(alice, uri, "x" * 100_000)
    await alice.check(uri)
