"""AHP 0.9 and 1.0: what editors of the VS Code family do, and how the host bears with it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from pytest_django import Settings
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from agents_app import exact_json
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.models import ClientPresence, Event
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
EDITOR: dict[str, Any] = {"clientInfo": {"name": "vscode-editor-window", "version": "1"}}
FLAG = {"_meta": {"vscode.ahpSessionUris": True}}


@pytest.mark.rule("V316")
@both
@pytest.mark.parametrize("flag", [{}, FLAG], ids=["older", "newer"])
async def test_an_editor_comes_back_without_naming_the_root(
    host: str, sample: SampleTenants, version: ClientVersion, flag: dict[str, Any]
) -> None:
    session = await database.run(make_session, sample.alice.caller)
    uri = f"{'ahp-session' if flag else 'echo'}:/{session.public_id}"
    async with mirroring(host, sample.alice.key, "one") as one:
        editor = Mirror(host, sample.alice.key, "editor", version, hello={**EDITOR, **flag})
        await editor.open()
        await editor.initialize(ROOT, uri, chat_uri(uri))
        editor.cut()
        await editor.ended()
        await one.act(f"ahp-session:/{session.public_id}", "session/titleChanged", title="Missed")
        await editor.open()
        seen = {"clientId": "editor", "lastSeenServerSeq": editor.last_seq, "subscriptions": list(editor.mirrors), **flag}
        result = await editor.request("reconnect", seen)
        assert (result["type"], result["missing"]) == ("replay", [])
        assert editor.state(uri)["title"] == "Missed"
        listed = (await editor.request("listSessions", {"channel": ROOT}))["items"][0]
        assert (listed["resource"], "chats" in listed) == (uri, version is V1_0)
        for channel in (ROOT, uri, chat_uri(uri)):
            await editor.check(channel)
        await editor.close()


@pytest.mark.rule("V317", "V327", "V66")
@both
async def test_the_settings_that_an_editor_sends_at_each_connect_are_rejected_and_it_goes_on(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    plugins = [{"type": "plugin", "id": "p", "uri": "file:///canary-plugin", "name": "P", "enablement": []}]
    config = {"chat.agent": {"a": [1]}, "plugins": plugins, "token": "canary-editor"}
    hello = {**EDITOR, **FLAG}
    async with (
        mirroring(host, sample.alice.key, "other", version=version) as other,
        mirroring(host, sample.alice.key, "editor", version=version, hello=hello) as editor,
    ):
        for again in (False, True):
            if again:
                editor.cut()
                await editor.ended()
                assert await editor.reconnect() == "replay"
            for action in ({"config": config}, {"config": {"plugins": plugins}, "replace": True}):
                echo = await editor.echo(await editor.dispatch({"type": "root/configChanged", **action}, ROOT))
                assert echo["rejectionReason"] == "this host has no settings of its own"
                assert "canary" not in exact_json.dumps(echo)
            uri, _ = await editor.create()
            await editor.check(uri)
        assert "config" not in await editor.check(ROOT)
        await other.until(lambda: len([each for each in other.heard if each["type"] == "root/sessionAdded"]) == 2)
        assert "root/configChanged" not in other.types(ROOT)
        assert "config" not in await other.check(ROOT)
    assert not await database.run(lambda: Event.objects.filter(data__contains="canary").exists())


@pytest.mark.rule("V318")
@both
async def test_every_channel_with_a_state_is_answered_with_its_snapshot(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    editor = Mirror(host, sample.alice.key, "editor", version, hello={**EDITOR, **FLAG})
    await editor.open()
    uri, other = "ahp-session:/one", "ahp-session:/two"
    await editor.initialize(ROOT)
    for each in (uri, other):
        await editor.create("echo", each)
    channels = [ROOT, uri, chat_uri(uri), other, chat_uri(other)]
    for channel in channels:
        snapshot = (await editor.request("subscribe", {"channel": channel}))["snapshot"]
        assert (snapshot["resource"], snapshot["fromSeq"] > 0, bool(snapshot["state"])) == (channel, True, True)
    await editor.request("disposeSession", {"channel": other})
    for last in (editor.last_seq, 0):
        await editor.close()
        await editor.open()
        params = {"channel": ROOT, "clientId": "editor", "lastSeenServerSeq": last, "subscriptions": channels, **FLAG}
        result = await editor.request("reconnect", params)
        if last:
            # Only what does not exist any more is missing.
            assert (result["type"], result["missing"]) == ("replay", channels[3:])
        else:
            assert [each["resource"] for each in result["snapshots"]] == channels[:3]
    await editor.close()


async def _opened(editor: Mirror) -> None:
    """The place of its last connection is free soon after that has ended."""
    async with asyncio.timeout(30):
        while True:
            with suppress(InvalidStatus):
                return await editor.open()


@pytest.mark.rule("V318")
async def test_a_client_that_could_not_read_a_frame_may_come_back_at_once(
    host: str, sample: SampleTenants, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.AGENTHOST_AHP_CONNECTIONS = 2
    async with mirroring(host, sample.alice.key, "one") as one:
        uri, _ = await one.create()
        for _ in range(3):
            editor = Mirror(host, sample.alice.key, "editor", hello={**EDITOR, **FLAG})
            await _opened(editor)
            await editor.initialize(ROOT, uri)
            assert editor._socket is not None
            await editor._socket.close(4002, "unreadable")
            assert await editor.ended() == 4002
        await one.act(uri, "session/titleChanged", title="Still here")
        await _opened(editor)
        params = {"channel": ROOT, "clientId": "editor", "lastSeenServerSeq": editor.last_seq, "subscriptions": [uri], **FLAG}
        assert (await editor.request("reconnect", params))["type"] == "replay"
        assert editor.state(uri)["title"] == "Still here"
        present = ClientPresence.objects.filter(tenant_id=sample.alice.caller.tenant, client="editor")
        assert await present.acount() == 1
        await editor.close()
    assert "connection_failed" not in caplog.text


@pytest.mark.rule("V328")
@both
async def test_an_editor_connects_with_the_key_behind_the_address_as_it_was_given(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    offers = {"channel": ROOT, "protocolVersions": list(version.offers), "clientId": "editor", **EDITOR}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": offers}
    async with connect(f"{host}?tkn={sample.alice.key}", proxy=None) as socket:
        await socket.send(exact_json.dumps(request))
        result = exact_json.loads(str(await socket.recv()))["result"]
        assert result["protocolVersion"] == version.offers[0]
    for address in (f"{host}?tkn=ah_wrong", host):
        with pytest.raises(InvalidStatus) as refused:
            await connect(address, proxy=None)
        assert refused.value.response.status_code == 401, address


@pytest.mark.rule("V308", "V318")
async def test_a_session_that_is_gone_has_no_snapshot_but_an_error(host: str, sample: SampleTenants) -> None:
    async with mirroring(host, sample.alice.key, "editor", hello={**EDITOR, **FLAG}) as editor:
        uri, chat = await editor.create()
        await editor.request("disposeSession", {"channel": uri})
        for channel, code in ((uri, -32001), (chat, -32008)):
            with pytest.raises(RPCError) as failed:
                await editor.request("subscribe", {"channel": channel})
            assert failed.value.code == code
