"""What a key may do over AHP: its scopes decide, the protocol does not."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from sessions_app.ahp.jsonrpc import RPCError
from sessions_app.ahp.wire.v0_1.state import ROOT
from sessions_app.core import database, keys
from sessions_app.models import ClientPresence, SessionClient
from tests.cast import Cast
from tests.e2e.ahp_scenes import made, refused, starting
from tests.e2e.ahp_watcher import Watcher

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGE = {"text": "hello"}


async def opened(host: str, key: str, client_id: str, *subscriptions: str) -> Watcher:
    client = Watcher(host, key, client_id)
    await client.open()
    await client.initialize(*subscriptions)
    return client


@pytest.mark.rule("R3", "R9")
@pytest.mark.parametrize("scope", ["meta:read", "sessions:write"])
async def test_a_key_that_may_not_read_sessions_does_not_connect(host: str, cast: Cast, scope: str) -> None:
    issued = await database.run(
        lambda: keys.issue(cast.alice.tenant, name="n", scopes=[scope], expires_at=None, allowed_agents=None, actor="the tests")
    )
    with pytest.raises(InvalidStatus) as failed:
        async with connect(host, additional_headers={"Authorization": f"Bearer {issued.raw}"}, proxy=None):
            pass
    assert failed.value.response.status_code == 403


@pytest.mark.rule("R9")
async def test_a_reading_key_watches_and_its_commands_change_nothing(host: str, cast: Cast) -> None:
    writer = await opened(host, cast.alice.key, "writer", ROOT)
    uri = await made(writer)
    reader = await opened(host, cast.alice.reading_key, "reader", ROOT, uri)
    for method, params in (
        ("createSession", {"session": "echo:/new", "provider": "echo"}),
        ("createSession", {"session": uri, "provider": "echo"}),
        ("createSession", {"session": "echo:/fork", "fork": {"session": uri, "turnId": "t"}}),
        ("disposeSession", {"session": uri}),
        ("disposeSession", {"session": "echo:/nothing"}),
    ):
        with pytest.raises(RPCError) as failed:
            await reader.request(method, params)
        assert (failed.value.code, failed.value.data) == (-32009, None), method
    assert [each["resource"] for each in (await reader.request("listSessions", {}))["items"]] == [uri]
    assert (await reader.request("fetchTurns", {"session": uri}))["turns"] == []
    await writer.request("createSession", {"session": "echo:/second", "provider": "echo"})
    await reader.until(lambda: [each["summary"]["resource"] for each in reader.heard] == ["echo:/second"])
    await reader.until(lambda: reader.state(ROOT)["activeSessions"] == 2)
    for client in (writer, reader):
        await client.judge(ROOT)
        await client.close()


@pytest.mark.rule("R9", "R83")
async def test_every_action_of_a_reading_key_is_rejected_and_nothing_of_it_happens(host: str, cast: Cast) -> None:
    writer = await opened(host, cast.alice.key, "writer")
    uri = await made(writer)
    reader = await opened(host, cast.alice.reading_key, "reader", uri)
    before = await reader.judge(uri)
    actions: list[dict[str, Any]] = [
        starting(uri, "hello"),
        {"type": "session/titleChanged", "session": uri, "title": "mine"},
        {"type": "session/isReadChanged", "session": uri, "isRead": True},
        {"type": "session/isArchivedChanged", "session": uri, "isArchived": True},
        {"type": "session/modelChanged", "session": uri, "model": {"id": "gpt-test"}},
        {"type": "session/configChanged", "session": uri, "config": {"approval": "auto"}},
        {"type": "session/pendingMessageSet", "session": uri, "kind": "queued", "id": "q", "userMessage": MESSAGE},
        {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "reader", "tools": []}},
        {"type": "session/turnCancelled", "session": uri, "turnId": "t"},
        {"type": "session/truncated", "session": uri},
        {"type": "session/never-heard-of", "session": uri},
        {"type": "root/configChanged", "config": {}},
    ]
    for action in actions:
        assert await refused(reader, action) == "this key may only read", action["type"]
    assert await reader.judge(uri) == before
    assert writer.seen == []
    for client in (writer, reader):
        await client.close()


@pytest.mark.rule("R9", "R188")
async def test_a_reading_key_takes_and_keeps_no_clients_place(host: str, cast: Cast) -> None:
    writer = await opened(host, cast.alice.key, "me")
    await made(writer, activeClient={"clientId": "me", "tools": []})
    reader = await opened(host, cast.alice.reading_key, "me")
    assert await ClientPresence.objects.acount() == 1
    await reader.close()
    # Its end is stored before the next connection of the same client id is.
    another = await opened(host, cast.alice.reading_key, "me")
    await another.request("ping")
    assert await SessionClient.objects.filter(left_at=None).acount() == 1
    await another.close()
    await writer.close()
