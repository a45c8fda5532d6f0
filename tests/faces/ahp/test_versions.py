"""Two versions of AHP on one host: clients of both share a session, and each event is encoded once for each version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp import versions
from sessions_app.ahp.client.client import Client, Disconnected, Envelope
from sessions_app.ahp.transport.jsonrpc import Request, RPCError
from sessions_app.ahp.version import Resource, Versions
from sessions_app.ahp.versions.v0_1 import snapshots as v0_1_snapshots
from sessions_app.ahp.versions.v0_1.projection import actions as v0_1_actions
from sessions_app.ahp.versions.v0_1.version import VERSION as V0_1
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from sessions_app.core.base import database
from sessions_app.core.base.caller import Caller
from sessions_app.core.log.journal.types import Event
from sessions_app.core.records import session_changes
from tests.e2e.ahp_steps import start_action
from tests.e2e.ahp_watcher import Watcher, without_clock
from tests.faces.ahp import toy_version
from tests.faces.ahp.toy_version import uri_of
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = Versions(toy_version.VERSION, V0_1, default=V0_1)
URI = "echo:/shared"


@pytest.fixture(autouse=True)
def _both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "served", lambda: BOTH)


class ToyClient(Client):
    """``notified``: method and params of all notifications but actions."""

    def __init__(self, url: str, key: str, client_id: str) -> None:
        super().__init__(url, key, client_id, on_frame=self._note, version=toy_version.CLIENT_SIDE)
        self.notified: list[tuple[str, Any]] = []

    def _note(self, frame: str) -> None:
        message = exact_json.loads(frame)
        if message.get("method") not in (None, "action"):
            self.notified.append((message["method"], message["params"]))


async def _opened(client: Client, *subscriptions: str, answered: str) -> None:
    await client.open()
    result = await client.initialize(*subscriptions)
    assert result["protocolVersion"] == answered


def _of_sessions(client: Client) -> list[Envelope]:
    return [each for each in client.seen if each["action"]["type"].startswith("session/")]


def _numbers(client: Client) -> list[int]:
    return [each["serverSeq"] for each in _of_sessions(client)]


def _handshake(method: str, **params: Any) -> Request:
    return Request(1, method, params)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (_handshake("initialize", protocolVersions=["0.1.0"]), "0.1"),
        (_handshake("initialize", protocolVersions=["0.2.0"]), "toy"),
        (_handshake("initialize", protocolVersions=["0.1.0", "0.2.0"]), "toy"),
        (_handshake("initialize", protocolVersions=["9.0.0"]), "0.1"),
        (_handshake("initialize", protocolVersions=[1, None, "0.2.0"]), "toy"),
        (_handshake("initialize", protocolVersions="0.2.0"), "0.1"),
        (_handshake("reconnect", subscriptions=["toy-session:echo:/a"]), "toy"),
        (_handshake("reconnect", subscriptions=["echo:/a"]), "0.1"),
        (Request(1, "ping", None), "0.1"),
    ],
)
def test_the_first_version_of_the_table_that_a_client_offers_is_chosen(request_: Request, name: str) -> None:
    assert BOTH.of_handshake(request_).name == name


@pytest.mark.rule("R44")
async def test_a_client_that_offers_no_version_of_the_host_gets_all_names_in_the_table(host: str, sample: SampleTenants) -> None:
    client = Client(host, sample.alice.key, "stranger")
    await client.open()
    with pytest.raises(RPCError) as failed:
        await client.request("initialize", {"protocolVersions": ["9.0.0"], "clientId": "stranger"})
    assert failed.value.data == {"supportedVersions": ["0.2.0", "0.1.0"]}
    assert await client.ended() == 1002


async def test_clients_of_two_versions_share_a_live_session(host: str, sample: SampleTenants) -> None:
    old, toy = Watcher(host, sample.alice.key, "old"), ToyClient(host, sample.alice.key, "toy")
    await _opened(old, ROOT, answered="0.1.0")
    await _opened(toy, ROOT, answered="0.2.0")

    # Each version has its own commands, URIs and error codes.
    await toy.request("session/create", {"session": uri_of(URI), "provider": "echo"})
    for client, method, code in (
        (old, "session/create", -32601),
        (toy, "createSession", -32601),
        (old, "disposeSession", -32001),
        (toy, "disposeSession", toy_version.SESSION_NOT_FOUND),
    ):
        with pytest.raises(RPCError) as failed:
            await client.request(method, {"session": "echo:/unknown", "provider": "echo"})
        assert failed.value.code == code, method
    await old.subscribe(URI)
    await toy.subscribe(uri_of(URI))

    # Both clients get the actions of each, encoded in their own version.
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": URI, "title": "Shared"}))
    await toy.until(lambda: toy.state(uri_of(URI))["summary"]["title"] == "Shared")
    message = {"type": "session/turnStarted", "channel": uri_of(URI), "turnId": "t", "userMessage": {"text": "hello"}}
    assert (await toy.echo(await toy.dispatch(message)))["action"] == message
    await old.until(lambda: "activeTurn" in old.state(URI))
    assert [each["action"] for each in old.seen if each["action"]["type"] == "session/turnStarted"] == [
        start_action(URI, "hello", "t")
    ]
    assert old.state(URI)["activeTurn"] == toy.state(uri_of(URI))["activeTurn"]
    numbers = [
        [each["serverSeq"] for each in client.seen if each["action"]["type"].startswith("session/")] for client in (old, toy)
    ]
    assert numbers[0] == numbers[1]

    # A rejection goes to its sender alone.
    second = await toy.echo(await toy.dispatch({**message, "turnId": "second"}))
    assert second["rejectionReason"]
    refused = await old.echo(await old.dispatch(start_action(URI, "third")))
    assert refused["rejectionReason"]
    assert [len([each for each in client.seen if "rejectionReason" in each]) for client in (old, toy)] == [1, 1]

    # A snapshot is the state to which the actions led.
    await old.check(URI)
    folded = without_clock(toy.state(uri_of(URI)))
    assert without_clock(await toy.subscribe(uri_of(URI))) == folded

    # A client that reconnects gets what it missed in its own version.
    toy.cut()
    with pytest.raises(Disconnected):
        await toy.until(lambda: False)
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": URI, "title": "Missed"}))
    assert await toy.reconnect() == "replay"
    assert toy.seen[-1]["action"] == {"type": "session/titleChanged", "channel": uri_of(URI), "title": "Missed"}
    assert toy.state(uri_of(URI))["summary"]["title"] == "Missed"

    await old.request("disposeSession", {"session": URI})
    await old.until(lambda: {"type": "notify/sessionRemoved", "session": URI} in old.heard)
    await toy.until(lambda: ("root/sessionRemoved", {"session": uri_of(URI)}) in toy.notified)
    assert toy.notified[0][0] == "root/sessionAdded"
    assert toy.notified[0][1]["summary"]["resource"] == uri_of(URI)
    for client in (old, toy):
        await client.close()


async def test_a_session_may_have_several_channels(host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch) -> None:
    title_uri = uri_of(URI, "toy-title")
    old = Watcher(host, sample.alice.key, "old")
    both, toy = ToyClient(host, sample.alice.key, "both"), ToyClient(host, sample.alice.key, "toy")
    await _opened(old, ROOT, answered="0.1.0")
    for client in (both, toy):
        await _opened(client, ROOT, answered="0.2.0")
    await old.request("createSession", {"session": URI, "provider": "echo"})
    await both.subscribe(uri_of(URI))
    # A change just before the snapshot of one channel is in it, and is still sent to the other channel's subscriber.
    read = v0_1_snapshots.read_state

    def rename_and_read(caller: Caller, resource: Resource) -> tuple[int, dict[str, Any]]:
        if resource.channel.kind == "title" and resource.session is not None:
            session_changes.rename(caller, resource.session, "meanwhile", dispatched=None)
        return read(caller, resource)

    with monkeypatch.context() as patch:
        patch.setattr(v0_1_snapshots, "read_state", rename_and_read)
        await both.subscribe(title_uri)
    await toy.subscribe(title_uri)
    await old.subscribe(URI)
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": URI, "title": "4"}))
    await old.echo(await old.dispatch(start_action(URI, "hello", "t")))
    await both.until(lambda: "activeTurn" in both.state(uri_of(URI)))
    for client, uris in ((both, {uri_of(URI), title_uri}), (toy, {title_uri})):
        assert {each["action"]["channel"] for each in _of_sessions(client)} == uris
        assert client.state(title_uri)["summary"]["title"] == "4"
        assert "activeTurn" not in client.state(title_uri)
    assert both.state(uri_of(URI))["summary"]["title"] == "4"
    titles = {
        uri: [each["action"].get("title") for each in _of_sessions(both) if each["action"]["channel"] == uri]
        for uri in (uri_of(URI), title_uri)
    }
    assert titles == {uri_of(URI): ["meanwhile", "4", None], title_uri: ["4"]}

    # Unsubscribing from one channel leaves the other.
    await both.unsubscribe(uri_of(URI))
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": URI, "title": "last"}))
    await both.until(lambda: both.state(title_uri)["summary"]["title"] == "last")
    assert both.seen[-1]["action"]["channel"] == title_uri
    for each in (old, both, toy):
        await each.close()


async def test_an_event_is_encoded_once_for_each_version_whatever_the_number_of_connections(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await database.run(make_session, sample.alice.caller)
    uri = f"echo:/{session.public_id}"
    old = [Watcher(host, sample.alice.key, f"old-{number}") for number in range(4)]
    toys = [ToyClient(host, sample.alice.key, f"toy-{number}") for number in range(3)]
    for watcher in old:
        await _opened(watcher, ROOT, uri, answered="0.1.0")
    for toy in toys:
        await _opened(toy, ROOT, uri_of(uri), answered="0.2.0")
    encoded: Counter[tuple[str, int]] = Counter()

    def counting(module: Any, name: str) -> None:
        encode = getattr(module, name)

        def count(event: Event, channel: str) -> Any:
            encoded[channel, event.seq] += 1
            return encode(event, channel)

        monkeypatch.setattr(module, name, count)

    counting(v0_1_actions, "envelope_of")
    counting(toy_version, "envelope_of")
    for number in range(3):
        await database.run(session_changes.rename, sample.alice.caller, session, str(number), dispatched=None)
    for client, own in [*((each, uri) for each in old), *((each, uri_of(uri)) for each in toys)]:
        await client.until(lambda client=client, own=own: client.state(own)["summary"]["title"] == "2")  # type: ignore[misc]
    assert set(encoded.values()) == {1}
    # Each title is one event, and the change of the summary that follows from it another one.
    assert Counter(channel for channel, _seq in encoded) == {uri: 6, uri_of(uri): 6}
    for each in (*old, *toys):
        await each.close()


async def test_nothing_is_encoded_for_a_version_that_no_subscriber_uses(
    host: str, sample: SampleTenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(event: Event, uri: str) -> str:
        raise AssertionError(f"{event.kind} {uri}")

    monkeypatch.setattr(toy_version, "envelope_of", encode)
    session = await database.run(make_session, sample.alice.caller)
    uri = f"echo:/{session.public_id}"
    old, toy = Watcher(host, sample.alice.key, "old"), ToyClient(host, sample.alice.key, "toy")
    await _opened(old, uri, answered="0.1.0")
    await _opened(toy, ROOT, answered="0.2.0")
    await database.run(session_changes.rename, sample.alice.caller, session, "new", dispatched=None)
    await old.until(lambda: old.state(uri)["summary"]["title"] == "new")
    await toy.request("ping")
    for each in (old, toy):
        await each.close()
