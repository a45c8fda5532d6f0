"""Echoes of actions: as sent, and leading to the state of the next snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants

pytestmark = pytest.mark.django_db(transaction=True)

URI = "echo:/target"


@pytest.fixture
async def client(host: str, sample: SampleTenants) -> AsyncIterator[Watcher]:
    client = Watcher(host, sample.alice.key, "me")
    await client.open()
    await client.initialize(ROOT)
    await client.request("createSession", {"session": URI, "provider": "echo"})
    await client.subscribe(URI)
    yield client
    await client.close()


TOOL = {"name": "signal", "title": "", "description": "", "inputSchema": {"type": "object"}, "_meta": {}, "annotations": {}}
AS_IT_CAME: list[dict[str, Any]] = [
    {"type": "session/turnStarted", "turnId": "t", "userMessage": {"text": "hi", "attachments": []}},
    {"type": "session/pendingMessageSet", "kind": "steering", "id": "m", "userMessage": {"text": "hi", "attachments": []}},
    {"type": "session/activeClientChanged", "activeClient": {"clientId": "me", "displayName": "", "tools": [TOOL]}},
    {"type": "session/activeClientChanged", "activeClient": {"clientId": "me", "tools": [], "customizations": []}},
]


@pytest.mark.rule("R70", "R82")
@pytest.mark.parametrize("action", AS_IT_CAME)
async def test_empty_values_are_echoed_and_stored_as_sent(client: Watcher, action: dict[str, Any]) -> None:
    said = {**action, "session": URI}
    echo = await client.echo(await client.dispatch(said))
    assert echo["action"] == said
    assert "rejectionReason" not in echo
    await client.check(URI)


NONE = {"unheard": None, "of": 1}
WITH_MORE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "session/turnStarted", "turnId": "t", "userMessage": {"text": "hi", "attachments": None, **NONE}},
        {"type": "session/turnStarted", "turnId": "t", "userMessage": {"text": "hi"}},
    ),
    (
        {"type": "session/pendingMessageSet", "kind": "steering", "id": "m", "userMessage": {"text": "hi", **NONE}},
        {"type": "session/pendingMessageSet", "kind": "steering", "id": "m", "userMessage": {"text": "hi"}},
    ),
    (
        {
            "type": "session/activeClientChanged",
            "activeClient": {"clientId": "me", "displayName": None, "tools": [{"name": "signal", "title": None, **NONE}], **NONE},
        },
        {"type": "session/activeClientChanged", "activeClient": {"clientId": "me", "tools": [{"name": "signal"}]}},
    ),
]


@pytest.mark.rule("R30", "R36", "R70")
@pytest.mark.parametrize(("action", "echoed"), WITH_MORE)
async def test_members_that_are_not_stored_are_left_out_of_echoes(
    client: Watcher, action: dict[str, Any], echoed: dict[str, Any]
) -> None:
    echo = await client.echo(await client.dispatch({**action, "session": URI}))
    assert echo["action"] == {**echoed, "session": URI}
    # Before the echo the client has shown its own action.
    assert client.mirrors[URI].ahead == []
    await client.check(URI)


@pytest.mark.rule("R83")
async def test_a_rejection_contains_the_action_exactly_as_sent(client: Watcher) -> None:
    said = {"type": "session/turnCancelled", "session": URI, "turnId": "none", "unheard": None}
    echo = await client.echo(await client.dispatch(said))
    assert echo["action"] == said
    assert echo["rejectionReason"]


@pytest.mark.rule("R81")
async def test_actions_for_the_uri_of_another_kind_of_channel_are_ignored(client: Watcher) -> None:
    ignored = [
        await client.dispatch({"type": "terminal/input", "terminal": URI, "data": "x"}),
        await client.dispatch({"type": "terminal/cleared", "terminal": ROOT}),
        await client.dispatch({"type": "session/titleChanged", "session": ROOT, "title": "x"}),
    ]
    await client.echo(await client.dispatch({"type": "session/titleChanged", "session": URI, "title": "x"}))
    assert not [each for each in client.seen if each.get("origin", {}).get("clientSeq") in ignored]


@pytest.mark.rule("R110", "R111")
async def test_an_empty_name_is_no_provider(client: Watcher) -> None:
    with pytest.raises(RPCError) as refused:
        await client.request("createSession", {"session": "echo:/two", "provider": ""})
    assert refused.value.code == -32002
