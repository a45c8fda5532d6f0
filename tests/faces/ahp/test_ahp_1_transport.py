"""AHP 0.9 and 1.0: frames, order, slow readers, pings, limits, changes of agents, URIs. All versions share one transport."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pytest_django import Settings
from websockets.exceptions import InvalidStatus

from agents_app import exact_json
from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport import consumer
from sessions_app.ahp.transport.rate_limit import RateLimit
from sessions_app.ahp.version import Resource
from sessions_app.ahp.versions.for_clients import V0_1
from sessions_app.ahp.versions.v0_9.snapshots import Snapshots
from sessions_app.core import turns
from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.models import ApiKey, ClientPresence
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.faces.ahp.test_listings import (
    Process,
    _hosts_looks_wait_for_other_processes,  # noqa: F401 - around each test
    _looks_often,  # noqa: F401 - around each test
    _with_other_options,
)
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
every = pytest.mark.parametrize("version", [V0_1, V0_9, V1_0], ids=["0.1", "0.9", "1.0"])


async def opened(host: str, key: str, version: ClientVersion, client_id: str = "client", **options: Any) -> Client:
    client = Client(host, key, client_id, version=version, **options)
    await client.open()
    await client.initialize()
    return client


@pytest.mark.rule("V30")
@both
async def test_each_text_frame_is_one_message_and_answers_come_in_order(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    received: list[dict[str, Any]] = []
    client = await opened(host, sample.alice.key, version, on_frame=lambda frame: received.append(exact_json.loads(frame)))
    del received[:]
    request = {"jsonrpc": "2.0", "method": "listSessions", "params": {"channel": ROOT}}
    await client.send(exact_json.dumps([{**request, "id": 1}, {**request, "id": 2}]))
    for id_ in range(100, 120):
        method = "listSessions" if id_ % 2 else "nothing"
        await client.send(exact_json.dumps({**request, "id": id_, "method": method}))
    await client.until(lambda: len(received) == 21)
    assert (received[0]["id"], received[0]["error"]["code"]) == (None, -32600)
    assert [each["id"] for each in received[1:]] == list(range(100, 120))
    assert ["result" in each for each in received[1:]] == [bool(id_ % 2) for id_ in range(100, 120)]
    await client.send(exact_json.dumps({**request, "id": 7}).encode())
    assert await client.ended() == 1003
    assert len(received) == 21


@pytest.mark.rule("V30")
@both
async def test_a_client_that_does_not_read_is_closed_and_misses_nothing_when_it_comes_back(
    host: str, sample: SampleTenants, settings: Settings, version: ClientVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AGENTHOST_AHP_QUEUE_BYTES = 20_000
    # The host does not wait long for the last frames of a slow client.
    monkeypatch.setattr(consumer, "_CLOSING_SECONDS", 0.1)
    async with (
        mirroring(host, sample.alice.key, "slow", version=version) as slow,
        mirroring(host, sample.alice.key, "quick", version=version) as quick,
    ):
        uri, chat = await quick.create()
        await slow.subscribe(uri)
        await slow.subscribe(chat)
        # More than the sockets take for a client that does not read.
        large, entered, read = "x" * 20_000_000, threading.Event(), Snapshots.read_state

        def padded(self: Snapshots, caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
            seq, state = read(self, caller, resource)
            entered.set()
            return seq, {**state, "_meta": {"large": large}}

        assert slow._socket is not None
        slow._socket.transport.pause_reading()
        with monkeypatch.context() as patch:
            patch.setattr(Snapshots, "read_state", padded)
            subscribe = {"jsonrpc": "2.0", "id": 1000, "method": "subscribe", "params": {"channel": ROOT}}
            await slow.send(exact_json.dumps(subscribe))
            assert await asyncio.to_thread(entered.wait, 30)
        for number in range(60):
            await quick.act(uri, "session/titleChanged", title=f"{number} " + "t" * 400)
        slow._socket.transport.resume_reading()
        with pytest.raises(Disconnected):
            await slow.until(lambda: False)
        assert slow.closed_with in (1013, 1006)
        await slow.reconnect()
        last = quick.state(uri)["title"]
        await slow.until(lambda: slow.state(uri)["title"] == last)
        await slow.check(uri)
        await slow.check(chat)


@pytest.mark.rule("V33")
@both
async def test_a_ping_is_answered_while_a_command_is_in_progress(
    host: str, sample: SampleTenants, version: ClientVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go = threading.Event(), threading.Event()
    read = Snapshots.read_state

    def blocked(self: Snapshots, caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
        entered.set()
        assert go.wait(60)
        return read(self, caller, resource)

    async with mirroring(host, sample.alice.key, "editor", version=version) as client:
        uri, chat = await client.create()
        monkeypatch.setattr(Snapshots, "read_state", blocked)
        try:
            answer = client.ask("subscribe", {"channel": chat})
            renamed = await client.dispatch({"type": "session/titleChanged", "title": "later"}, uri)
            assert await asyncio.to_thread(entered.wait, 30)
            for params in (None, {"channel": ROOT}):
                assert await client.request("ping", params) is None
            assert not answer.done()
        finally:
            go.set()
        assert (await answer)["snapshot"]["resource"] == chat
        assert "rejectionReason" not in await client.echo(renamed)


@pytest.mark.rule("V38")
@every
async def test_the_limits_and_closing_codes_of_frames_and_keys_are_those_of_all_versions(
    host: str, sample: SampleTenants, settings: Settings, version: ClientVersion
) -> None:
    settings.AGENTHOST_AHP_MAX_FRAME_BYTES = 50_000
    client = await opened(host, sample.alice.key, version)
    await client.send('"' + "x" * 50_000 + '"')
    assert await client.ended() == 1009
    client = await opened(host, sample.alice.key, version)
    await client.send(b"{}")
    assert await client.ended() == 1003
    client = await opened(host, sample.alice.key, version)
    key = await ApiKey.objects.select_related("tenant").aget(pk=sample.alice.caller.key)
    await database.run(turns.revoke_key, key, actor="the tests")
    assert await client.ended() == 1008


@pytest.mark.rule("V38")
async def test_connections_of_all_versions_share_one_limit_and_one_presence(
    host: str, sample: SampleTenants, settings: Settings
) -> None:
    settings.AGENTHOST_AHP_CONNECTIONS = 3
    clients = [await opened(host, sample.alice.key, version, name) for version, name in ((V0_1, "a"), (V0_9, "b"), (V1_0, "c"))]
    for version in (V0_1, V0_9, V1_0):
        with pytest.raises(InvalidStatus) as refused:
            await Client(host, sample.alice.key, "too-many", version=version).open()
        assert refused.value.response.status_code == 429
    present = ClientPresence.objects.filter(tenant_id=sample.alice.caller.tenant).values_list("client", flat=True)
    assert sorted([each async for each in present]) == ["a", "b", "c"]
    for client in clients:
        await client.close()


@pytest.mark.rule("V38")
@every
async def test_every_dispatched_action_counts_for_the_limit_per_second(
    host: str, sample: SampleTenants, version: ClientVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[RateLimit] = []
    take = RateLimit.take

    async def counted(self: RateLimit) -> None:
        taken.append(self)
        await take(self)

    monkeypatch.setattr(RateLimit, "take", counted)
    session = await database.run(make_session, sample.alice.caller)
    client = await opened(host, sample.alice.key, version)
    uri = f"echo:/{session.public_id}"
    for number in range(5):
        action = {"type": "session/titleChanged", "title": f"{number}", **({"session": uri} if version is V0_1 else {})}
        await client.dispatch(action, None if version is V0_1 else uri)
    await client.subscribe(uri)
    assert (len(taken), len(set(map(id, taken)))) == (5, 1)
    await client.close()


@pytest.mark.rule("V39")
@both
async def test_a_chat_whose_agent_has_changed_is_subscribed_again_with_snapshots(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    changed, same = [await database.run(make_session, sample.alice.caller, name) for name in ("pilot", "echo")]
    uris = [f"ahp-session:/{each.public_id}" for each in (changed, same)]
    watched = {
        "session": (uris[0],),
        "chat": (chat_uri(uris[0]),),
        "other": (ROOT, uris[1], chat_uri(uris[1])),
    }
    clients = {}
    for name, subscriptions in watched.items():
        client = Mirror(host, sample.alice.key, name, version, hello={"locale": "de-CH"})
        await client.open()
        await client.initialize(*subscriptions)
        clients[name] = client
    await database.run(Process(_with_other_options()).show, sample.alice)
    for name in ("session", "chat"):
        assert await clients[name].ended() == 1012
        assert not clients[name].seen
        assert await clients[name].reconnect() == "snapshot"
        await clients[name].check(watched[name][0])
    assert "ship" in clients["session"].state(uris[0])["config"]["schema"]["properties"]
    other = clients["other"]
    await other.until(lambda: other.types(ROOT) == ["root/agentsChanged"])
    for uri in watched["other"]:
        await other.check(uri)
    for client in clients.values():
        await client.close()


@pytest.mark.rule("V39")
@both
async def test_a_locale_may_be_any_text_and_nothing_else(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    client = Mirror(host, sample.alice.key, "locale", version)
    await client.open()
    params = {"channel": ROOT, "protocolVersions": list(version.offers), "clientId": "locale"}
    wrong: Any
    for wrong in (7, ["de"], {}):
        assert await client.code_of("initialize", **params, locale=wrong) == -32602
    assert (await client.request("initialize", {**params, "locale": "xx-unknown"}))["protocolVersion"] == version.offers[0]
    await client.close()


@pytest.mark.rule("V41")
@both
async def test_uris_are_compared_as_they_are_spelled_and_name_no_agent(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    uris = ["ahp-session:/A", "ahp-session:/a", "ahp-session:/%61", "ahp-session:/a/", "pilot:/a", "chat:/turns"]
    async with mirroring(host, sample.alice.key, "speller", version=version) as client:
        for uri in uris[:4]:
            await client.create("echo", uri)
        # Neither its scheme nor its form decides which agent a session has, or how its state is folded.
        await client.create("echo", "pilot:/a")
        await client.create("pilot", "chat:/turns")
        assert client.state("pilot:/a")["provider"] == "echo"
        assert client.state("chat:/turns")["provider"] == "pilot"
        for uri in ("PILOT:/a", "Ahp-Session:/a", "ahp-session:/A/", "AHP-ROOT://", "ahp-root:///"):
            assert await client.code_of("subscribe", channel=uri) in (-32001, -32008), uri
        for uri in uris:
            await client.act(uri, "session/titleChanged", title=f"of {uri}")
        for uri in uris:
            assert (await client.check(uri))["title"] == f"of {uri}"
            await client.check(chat_uri(uri))
