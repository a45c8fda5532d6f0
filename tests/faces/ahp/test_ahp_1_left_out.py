"""AHP 0.9 and 1.0: what this host leaves out, and where a client would see it. No turn runs here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents_app import exact_json, registry
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.core.base import database
from sessions_app.models import Event, Message
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
CHAT = {"resource": "ahp-chat:/second", "title": "", "status": 1, "modifiedAt": "2026-01-01T00:00:00.000Z"}
PLUGIN = {"type": "plugin", "id": "p1", "uri": "file:///plugins/one", "name": "One"}
SIGN_IN = {"reason": "required", "resource": {"resource": "https://mcp.example.org"}}
OF_THE_HOST: list[tuple[str, dict[str, Any]]] = [
    ("session/chatAdded", {"summary": CHAT}),
    ("session/chatRemoved", {"chat": CHAT["resource"]}),
    ("session/chatUpdated", {"chat": CHAT["resource"], "changes": {"title": "T"}}),
    ("session/defaultChatChanged", {"defaultChat": CHAT["resource"]}),
    ("session/chatsReordered", {"chats": [CHAT["resource"]]}),
    ("session/customizationsChanged", {"customizations": []}),
    ("session/customizationUpdated", {"customization": PLUGIN}),
    ("session/customizationRemoved", {"id": "p1"}),
    ("session/mcpServerStateChanged", {"id": "p1", "state": {"kind": "ready"}}),
    ("session/changesetsChanged", {"changesets": []}),
    ("chat/toolCallAuthRequired", {"turnId": "t", "toolCallId": "c", "auth": SIGN_IN}),
    ("chat/toolCallAuthResolved", {"turnId": "t", "toolCallId": "c"}),
    ("chat/turnsLoaded", {"turns": []}),
    ("chat/changesetsChanged", {"changesets": []}),
    ("chat/canvasesChanged", {"canvases": []}),
]
ONLY_IN_1_0 = {"session/chatsReordered", "chat/changesetsChanged", "chat/canvasesChanged"}


@pytest.mark.rule("V120", "V125", "V170", "V253", "V255", "V256")
@both
async def test_a_client_cannot_do_what_only_hosts_do(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with (
        mirroring(host, sample.alice.key, "actor", version=version) as actor,
        mirroring(host, sample.alice.key, "other", version=version) as other,
    ):
        uri, chat = await actor.create(activeClient={"clientId": "actor", "tools": [], "customizations": [PLUGIN]})
        await other.subscribe(uri)
        await other.subscribe(chat)
        before = await actor.check(uri)
        for type_, members in OF_THE_HOST:
            reason = await actor.refused(uri if type_.startswith("session/") else chat, type_, **members)
            is_known = version is V1_0 or type_ not in ONLY_IN_1_0
            assert reason == ("only the host may dispatch actions of this type" if is_known else "unknown type of action"), type_
        for name in ("mcpServerStartRequested", "mcpServerStopRequested", "mcpServerBackgroundRequested"):
            # A plugin is no MCP server either.
            reason = await actor.refused(uri, f"session/{name}", id="p1")
            is_known = version is V1_0 or name != "mcpServerBackgroundRequested"
            assert reason == ("this session has no such MCP server" if is_known else "unknown type of action"), name
        assert await actor.check(uri) == before
        assert [each["resource"] for each in before["chats"]] == [chat]
        await actor.act(uri, "session/titleChanged", title="After")
        await other.until(lambda: other.state(uri)["title"] == "After")
        assert set(other.types(uri, chat)) == {"session/titleChanged", "session/chatUpdated"}
        await other.check(uri)
        await other.check(chat)


@pytest.mark.rule("V153")
@both
async def test_turns_come_with_snapshots_and_never_in_an_action(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    lines = [{"role": role, "content": f"{role} {number}"} for number in range(30) for role in ("user", "assistant")]
    session = await database.run(lambda: make_session(sample.alice.caller, seed=lines))
    chat = chat_uri(f"ahp-session:/{session.public_id}")
    async with mirroring(host, sample.alice.key, "pages", version=version) as client:
        await client.request("subscribe", {"channel": chat, "view": {"turns": 1}})
        assert len(client.state(chat)["turns"]) == 30
        assert await client.request("fetchTurns", {"channel": chat}) == {}
        await client.act(chat, "chat/truncated", turnId=client.state(chat)["turns"][9]["id"])
        assert await client.request("fetchTurns", {"channel": chat}) == {}
        await client.act(chat, "chat/draftChanged")
        assert client.types(chat) == ["chat/truncated", "chat/draftChanged"]
        state = await client.check(chat)
        assert (len(state["turns"]), "turnsNextCursor" in state) == (10, False)


@pytest.mark.rule("V221", "V222", "V322")
@both
async def test_no_resource_takes_a_token_and_nobody_is_asked_to_sign_in(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    token = "canary-token-5e1"
    async with mirroring(host, sample.alice.key, "signer", version=version) as client:
        uri, chat = await client.create()
        for resource in ("https://mcp.example.org", "https://api.openai.com/v1", "echo", ROOT, uri, chat):
            with pytest.raises(RPCError) as failed:
                await client.request("authenticate", {"channel": ROOT, "resource": resource, "token": token, "scopes": ["a"]})
            assert failed.value.code == -32602, resource
            assert token not in failed.value.message
        assert await client.code_of("authenticate", channel=ROOT, resource="https://mcp.example.org", token="") == -32602
        await client.start(chat, "hello")
        await client.check(uri)
        await client.check(chat)
        await client.until(lambda: any(each["type"] == "root/sessionSummaryChanged" for each in client.heard))
        assert {each["type"] for each in client.heard} == {"root/sessionAdded", "root/sessionSummaryChanged"}
    assert not await database.run(lambda: Event.objects.filter(data__contains=token).exists())


@pytest.fixture
def files_of_clients(host: str) -> Iterator[None]:
    """``echo`` lets the host ask clients for files, which it does in 0.1."""
    with registry.use(replace(spec, client_files=spec.name == "echo") for spec in registry.described().values()):
        yield


@pytest.mark.rule("V241", "V320")
@pytest.mark.usefixtures("files_of_clients", "workspaces")
@both
async def test_the_host_sends_clients_no_requests(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    asked: list[str] = []

    async def answer(method: str, params: dict[str, Any]) -> Any:
        asked.append(method)
        return {"data": "of the client", "encoding": "utf-8"}

    async with mirroring(host, sample.alice.key, "owner", version=version, on_request=answer) as client:
        _, chat = await client.create()
        uris = ["file:///desk/notes.txt", "notebook:/page/1"]
        attachments = [{"type": "resource", "label": f"file {number}", "uri": uri} for number, uri in enumerate(uris)]
        await client.start(chat, "look", message={"text": "look", "origin": {"kind": "user"}, "attachments": attachments})
        # An answer to nothing changes nothing.
        await client.send(jsonrpc.response(1, {"data": "late"}))
        assert await client.request("ping") is None
        await client.check(chat)
    assert asked == []
    message = await Message.objects.filter(role="user").order_by("-pk").afirst()
    assert message is not None
    texts = [block["text"] for block in exact_json.loads(message.content)]
    assert texts == ["look", *(f"[Attachment file {number}: {uri}]" for number, uri in enumerate(uris))]


@pytest.mark.rule("V187", "V253", "V255")
@both
async def test_plugins_of_clients_are_listed_whole_and_go_with_them(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    second = {**PLUGIN, "id": "p2", "uri": "file:///plugins/two", "name": "Two"}
    async with (
        mirroring(host, sample.alice.key, "owner", version=version) as owner,
        mirroring(host, sample.alice.key, "watcher", version=version) as watcher,
    ):
        uri, _ = await owner.create()
        await watcher.subscribe(uri)

        def shown() -> list[tuple[str, str]]:
            return [(each["id"], each["clientId"]) for each in watcher.state(uri)["customizations"]]

        async def publish(*plugins: dict[str, Any]) -> None:
            entry = {"clientId": "owner", "tools": [], "customizations": list(plugins)}
            await owner.act(uri, "session/activeClientSet", activeClient=entry)

        for plugins in ([PLUGIN], [PLUGIN, second], [second]):
            await publish(*plugins)
            await watcher.until(lambda plugins=plugins: shown() == [(each["id"], "owner") for each in plugins])  # type: ignore[misc]
        off = [{"kind": "session", "enabled": False}]
        for decisions in ([*off, {"kind": "global", "enabled": True}], off, []):
            await owner.act(uri, "session/customizationToggled", id="p2", enablement=decisions)
            assert (await watcher.check(uri))["customizations"][0].get("enablement", []) == decisions
        # Only plugins can be published: no MCP server is ever shown.
        server = {**PLUGIN, "type": "mcpServer", "state": {"kind": "ready"}}
        entry = {"clientId": "owner", "tools": [], "customizations": [server]}
        assert await owner.refused(uri, "session/activeClientSet", activeClient=entry)
        await owner.act(uri, "session/activeClientRemoved", clientId="owner")
        await watcher.until(lambda: shown() == [])
        assert {each for each in watcher.types(uri) if "ustomization" in each} == {
            "session/customizationsChanged",
            "session/customizationToggled",
        }
        await watcher.check(uri)


@pytest.mark.rule("V256", "V322")
@both
async def test_nothing_of_changesets_annotations_automations_and_canvases_is_shown(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    client = Mirror(host, sample.alice.key, "looker", version)
    await client.open()
    assert {"telemetry", "automations", "changesets", "annotations"}.isdisjoint(await client.initialize(ROOT))
    uri, chat = await client.create()
    await client.start(chat, "hello")
    await client.request("disposeSession", {"channel": (await client.create())[0]})
    states = [client.state(ROOT), await client.check(uri), await client.check(chat)]
    listed = (await client.request("listSessions", {"channel": ROOT}))["items"]
    left_out = {"changesets", "changes", "diffs", "annotations", "canvases", "backgroundWork", "movable", "origin"}
    for state in [*states, *listed, *states[1]["chats"]]:
        assert left_out.isdisjoint(state), state
    for method in ("invokeChangesetOperation", "listAutomations", "openCanvas"):
        assert await client.code_of(method, channel=uri, operationId="x") == -32601
    for type_ in ("changeset/filesReviewChanged", "annotations/set", "automation/removed", "automationRun/cancelRequested"):
        # Clients may dispatch them, but on channels that this host does not have.
        reason = await client.refused(uri, type_)
        assert "takes no actions of this type" in reason, reason
    await client.close()
