"""AHP 0.9 and 1.0 on one endpoint with 0.1: handshakes, sessions, chats, addresses, what is refused. No turn runs here."""

from __future__ import annotations

import asyncio
import base64
import tomllib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pytest_django import Settings

from sessions_app.ahp.client.client import Client
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.for_clients import ALL, V0_1
from sessions_app.core.base import database, times
from sessions_app.models import Event
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.e2e.ahp_watcher import Watcher
from tests.paths import ROOT as REPOSITORY
from tests.pure.ahp.test_offers import CASES
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])


@pytest.fixture
async def one(host: str, sample: SampleTenants) -> AsyncIterator[Mirror]:
    async with mirroring(host, sample.alice.key, "one") as client:
        yield client


# --- versions and the handshake ---


@pytest.mark.rule("V1", "V2", "V4", "V5", "V6", "V7", "V8", "V9", "V10")
async def test_each_offer_gets_its_version_or_its_error(host: str, sample: SampleTenants) -> None:
    for offered, expected in [*CASES, ([1], "invalid"), ([1, "0.1.0"], "invalid")]:
        client = Client(host, sample.alice.key, "offers")
        await client.open()
        params = {"channel": ROOT, "protocolVersions": offered, "clientId": "offers"}
        if expected not in ("unsupported", "invalid"):
            assert (await client.request("initialize", params))["protocolVersion"] == expected, offered
            await client.close()
            continue
        with pytest.raises(RPCError) as failed:
            await client.request("initialize", params)
        if expected == "unsupported":
            assert failed.value.code == -32005
            assert failed.value.data == {"supportedVersions": ["1.0.0", "0.9.0", "0.1.0"]}
            assert await client.ended() == 1002
        else:
            # The client may try again on the same connection.
            assert failed.value.code == -32602, offered
            again = await client.request("initialize", {**params, "protocolVersions": ["0.9.0"]})
            assert again["protocolVersion"] == "0.9.0"
        await client.close()


@pytest.mark.rule("V11", "V12", "V15", "V18", "V60", "V61", "V322")
@both
async def test_the_handshake_names_the_server_and_shows_the_root(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    client = Mirror(host, sample.alice.key, "hand", version)
    await client.open()
    assert await client.request("ping") is None
    assert await client.request("ping", {"channel": ROOT}) is None
    assert await client.code_of("listSessions", channel=ROOT) == -32600
    wrong = {"channel": "echo:/a", "protocolVersions": ["1.0.0"], "clientId": "hand"}
    assert await client.code_of("initialize", **wrong) == -32602
    result = await client.initialize(ROOT, "ahp-session:/nope", ROOT)
    assert result["protocolVersion"] == version.offers[0]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert result["serverInfo"] == {"name": "Agenthost", "version": project["version"]}
    assert [each["resource"] for each in result["snapshots"]] == [ROOT]
    assert set(result) - {"defaultDirectory"} == {"protocolVersion", "serverSeq", "snapshots", "serverInfo"}
    state = client.state(ROOT)
    assert "_meta" not in state
    assert {"echo"} <= {agent["provider"] for agent in state["agents"]}
    assert all("capabilities" not in agent and agent["protectedResources"] == [] for agent in state["agents"])
    assert await client.code_of("initialize", **{**wrong, "channel": ROOT}) == -32600
    await client.close()


@pytest.mark.rule("V1", "V13")
async def test_a_client_that_offers_all_versions_speaks_the_newest(host: str, sample: SampleTenants) -> None:
    client = Client(host, sample.alice.key, "all", version=ALL)
    await client.open()
    assert (await client.initialize(ROOT))["protocolVersion"] == "1.0.0"
    assert client.version is V1_0
    assert "agents" in client.state(ROOT)
    await client.close()


# --- sessions and chats ---


@pytest.mark.rule("V42", "V43", "V45", "V63", "V70", "V80", "V81", "V83", "V84", "V85", "V86")
@both
async def test_a_session_is_made_announced_and_disposed_of(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    uri = "ahp-session:/made"
    async with (
        mirroring(host, sample.alice.key, "maker", version=version) as maker,
        mirroring(host, sample.alice.key, "other", "ahp-session:/nothing", version=version) as other,
    ):
        await maker.create("echo", uri)
        state = maker.state(uri)
        assert (state["provider"], state["title"], state["status"], state["lifecycle"]) == ("echo", "", 1, "ready")
        assert (state["defaultChat"], state["activeClients"]) == (chat_uri(uri), [])
        assert [chat["resource"] for chat in state["chats"]] == [chat_uri(uri)]
        assert set(state) & {"summary", "turns", "createdAt", "activeClient", "activity"} == set()
        chat = maker.state(chat_uri(uri))
        assert (chat["resource"], chat["turns"], chat["status"]) == (chat_uri(uri), [], 1)
        added = await maker.until(lambda: next((each for each in maker.heard if each["type"] == "root/sessionAdded"), None))
        assert (added["channel"], added["summary"]["resource"]) == (ROOT, uri)
        assert other.heard == []
        assert await maker.code_of("createSession", channel=uri, provider="echo") == -32003
        assert await maker.code_of("createSession", channel="ahp-session:/x", provider="nobody") == -32002
        for bad in ("ahp-chat:/x", "plain", "ahp-session:/ü", ROOT, "a:/" + "x" * 1000):
            assert await maker.code_of("createSession", channel=bad, provider="echo") == -32602, bad
        stranger = {"clientId": "stranger", "tools": []}
        assert await maker.code_of("createSession", channel="a:/b", provider="echo", activeClient=stranger) == -32602
        assert await maker.code_of("createSession", channel="a:/b", provider="echo", config={"approval": "x"}) == -32602
        assert await maker.request("disposeSession", {"channel": uri}) is None
        await maker.until(
            lambda: any(each == {"type": "root/sessionRemoved", "channel": ROOT, "session": uri} for each in maker.heard)
        )
        assert await maker.code_of("disposeSession", channel=uri) == -32001
        assert await maker.code_of("subscribe", channel=uri) == -32001
        assert await maker.code_of("subscribe", channel=chat_uri(uri)) == -32008
        await maker.check(ROOT)


@pytest.mark.rule("V67", "V72", "V73", "V332")
@both
async def test_the_list_comes_in_pages_and_ends(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "lists", version=version) as client:
        uris = [(await client.create(uri=f"ahp-session:/{number}"))[0] for number in range(5)]
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = await client.request("listSessions", {"channel": ROOT, "limit": 2, **cursor})
            assert 1 <= len(page["items"]) <= 2
            found += [each["resource"] for each in page["items"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert found == uris[::-1]
        for item in page["items"]:
            assert ("chats" in item, "defaultChat" in item) == (version is V1_0, version is V1_0)
            assert item["createdAt"].endswith("Z")
        family, _, position = base64.urlsafe_b64decode(cursor["cursor"]).decode().partition("/")
        forged = [f"{'1' if family == '0.9' else '0.9'}/{position}", f"{family}/0001-01-01T00:00:00+00:00/1", f"{family}/x/1"]
        forged += [f"{family}/2026-01-01T00:00:00+00:00/{'9' * 40}", f"{family}/2026-01-01T00:00:00/1"]
        cursors = ["nonsense", "ü", *(base64.urlsafe_b64encode(each.encode()).decode() for each in forged)]
        wrongs: list[dict[str, Any]] = [{"limit": 0}, {"limit": -1}, {"limit": "2"}, *({"cursor": each} for each in cursors)]
        for wrong in wrongs:
            assert await client.code_of("listSessions", channel=ROOT, **wrong) == -32602, wrong
        assert len((await client.request("listSessions", {"limit": 10**40}))["items"]) == 5
        assert await client.code_of("listSessions", channel="ahp-session:/0") == -32602
        whole = await client.request("listSessions", {"channel": ROOT, "filter": {}})
        assert len(whole["items"]) == 5


@pytest.mark.rule("V130", "V131", "V132", "V133", "V135", "V136", "V134", "V125", "V331", "V46")
@both
async def test_a_session_has_one_chat_which_its_client_may_name(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "chats", version=version) as client:
        uri, chat = await client.create()
        assert await client.request("createChat", {"channel": uri, "chat": chat}) is None
        assert await client.code_of("createChat", channel=uri, chat="ahp-chat:/a", source={"kind": "fork"}) == -32602
        assert await client.request("createChat", {"channel": uri, "chat": "ahp-chat:/mine"}) is None
        assert await client.request("createChat", {"channel": uri, "chat": "ahp-chat:/mine"}) is None
        assert await client.code_of("createChat", channel=uri, chat="ahp-chat:/second") == -32602
        assert await client.code_of("createChat", channel="ahp-session:/nope", chat="ahp-chat:/x") == -32001
        await client.subscribe("ahp-chat:/mine")
        assert client.state("ahp-chat:/mine")["resource"] == client.state(chat)["resource"]
        assert await client.code_of("disposeChat", channel=chat) == -32602
        assert await client.code_of("disposeChat", channel="ahp-chat:/nope") == -32008
        assert await client.request("fetchTurns", {"channel": chat}) == {}
        assert await client.code_of("fetchTurns", channel=chat, cursor="x") == -32602
        assert await client.code_of("fetchTurns", channel="ahp-chat:/nope") == -32008
        asked = {"kind": "userMessage", "text": "/", "offset": 1}
        for channel in (uri, chat):
            assert await client.request("completions", {"channel": channel, **asked}) == {"items": []}
        assert await client.code_of("completions", channel=chat, **{**asked, "offset": 2}) == -32602
        moved = -32601 if version is V0_9 else -32602
        assert await client.code_of("moveChat", channel=chat, destination={"kind": "newSession"}) == moved
        second, _ = await client.create()
        message = {"text": "first words", "origin": {"kind": "user"}}
        await client.request("createChat", {"channel": second, "chat": chat_uri(second), "initialMessage": message})
        assert await client.code_of("createChat", channel=second, chat=chat_uri(second), initialMessage=message) == -32004
        assert await client.code_of("createChat", channel=second, chat="ahp-chat:/late") == -32602
        await client.until(lambda: "activeTurn" in client.state(chat_uri(second)))


@pytest.mark.rule("V44", "V46", "V47", "V49", "V50", "V53", "V54")
async def test_a_session_is_spoken_of_as_each_subscription_spelled_it(one: Mirror, sample: SampleTenants) -> None:
    session = await database.run(make_session, sample.alice.caller)
    spellings = [f"ahp-session:/{session.public_id}", f"echo:/{session.public_id}"]
    chats = [*(chat_uri(each) for each in spellings), f"ahp-chat:/{session.public_id}"]
    for uri in (*spellings, *chats):
        await one.subscribe(uri)
    assert {one.state(uri)["defaultChat"] for uri in spellings} == {chats[0]}
    await one.act(spellings[0], "session/titleChanged", title="Once")
    await one.until(lambda: all(one.state(uri)["title"] == "Once" for uri in spellings))
    renamed = [each for each in one.seen if each["action"]["type"] == "session/titleChanged"]
    assert [each["channel"] for each in renamed] == spellings
    assert len({each["serverSeq"] for each in renamed}) == 1
    await one.unsubscribe(spellings[1])
    await one.act(spellings[0], "session/titleChanged", title="Twice")
    assert [each["channel"] for each in one.seen if each["action"].get("title") == "Twice"] == [spellings[0]]
    for uri in (spellings[0], *chats):
        await one.check(uri)
    assert await one.code_of("subscribe", channel="echo:/nothing") == -32001
    assert await one.code_of("subscribe", channel="ahp-chat:/nothing") == -32008
    assert await one.code_of("subscribe", channel=spellings[0], view={"turns": "x"}) == -32602
    # A session that was born over 0.1 keeps its URI there, and has another one here.
    old = Watcher(one.url, sample.alice.key, "old")
    await old.open()
    await old.initialize()
    await old.request("createSession", {"session": "echo:/chosen", "provider": "echo"})
    listed = (await one.request("listSessions", {"channel": ROOT}))["items"][0]
    assert listed["resource"].startswith("ahp-session:/sess_")
    for uri in ("echo:/chosen", listed["resource"]):
        await one.subscribe(uri)
        assert one.state(uri)["defaultChat"] == chat_uri(listed["resource"])
    await old.close()


# --- what clients dispatch ---


@pytest.mark.rule("V17", "V66", "V90", "V91", "V92", "V94", "V121", "V330")
@both
async def test_what_a_client_may_not_do_is_rejected_to_it_alone(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with (
        mirroring(host, sample.alice.key, "actor", version=version) as actor,
        mirroring(host, sample.alice.key, "other", version=version) as other,
    ):
        uri, chat = await actor.create()
        await other.subscribe(uri)
        await other.subscribe(chat)
        for channel, type_, members in (
            (uri, "session/ready", {}),
            (uri, "session/unheardOf", {}),
            (uri, "session/defaultChatChanged", {"defaultChat": chat}),
            (uri, "session/titleChanged", {"title": 7}),
            (chat, "session/titleChanged", {"title": "of the chat"}),
            (uri, "chat/turnCancelled", {"turnId": "t", "duration": 0}),
            (chat, "chat/turnCancelled", {"turnId": "t", "duration": 0}),
            (chat, "chat/turnResume", {"turnId": "t"}),
            (chat, "chat/turnComplete", {"turnId": "t", "duration": 0}),
            (chat, "chat/workingDirectorySet", {"directory": "file:///x"}),
            (uri, "session/workingDirectorySet", {"directory": "file:///x"}),
            (uri, "session/mcpServerStartRequested", {"id": "x"}),
            (uri, "session/customizationToggled", {"id": "nothing", "enablement": []}),
            (uri, "session/activeClientSet", {"activeClient": {"clientId": "other", "tools": []}}),
            (uri, "session/activeClientRemoved", {"clientId": "actor"}),
            (uri, "session/activeClientRemoved", {"clientId": "other"}),
            (chat, "chat/pendingMessageRemoved", {"kind": "queued", "id": "nothing"}),
            (chat, "chat/inputCompleted", {"requestId": "nothing", "response": "accept"}),
            (chat, "canvas/stateChanged", {}),
        ):
            assert await actor.refused(channel, type_, **members), type_
        # An editor's settings are nowhere afterwards, not even in the rejection.
        settings = await actor.dispatch({"type": "root/configChanged", "config": {"a": 1, "token": "canary-71"}}, ROOT)
        rejected = await actor.echo(settings)
        assert (rejected["action"], bool(rejected["rejectionReason"])) == ({"type": "root/configChanged", "config": {}}, True)
        assert not await database.run(lambda: Event.objects.filter(data__contains="canary-71").exists())
        if version is V0_9:
            assert "unknown" in await actor.refused(chat, "chat/isReadChanged", isRead=True)
        # What is sent to nothing is not even rejected.
        nowhere = await actor.dispatch({"type": "chat/turnCancelled", "turnId": "t", "duration": 0}, "ahp-chat:/nope")
        await actor.act(uri, "session/titleChanged", title="After")
        assert not [each for each in actor.seen if each.get("origin", {}).get("clientSeq") == nowhere]
        await other.until(lambda: other.state(uri)["title"] == "After")
        assert [each for each in other.seen if "rejectionReason" in each] == []
        for client in (actor, other):
            await client.check(uri)
            await client.check(chat)


@pytest.mark.rule("V97", "V140", "V141", "V142", "V150", "V154")
@both
async def test_a_turn_is_started_as_its_client_says_or_not_at_all(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "starter", version=version) as client:
        uri, chat = await client.create()
        message = {"text": "hello", "origin": {"kind": "user"}}
        good: dict[str, Any] = {"turnId": "t", "startedAt": "2026-01-01T10:00:00.000Z", "message": message}
        for wrong in (
            {"startedAt": None},
            {"startedAt": "yesterday"},
            {"startedAt": "2026-01-01T10:00:00"},
            # Clients add the duration to it: the end would be no time.
            {"startedAt": "9999-12-31T23:59:59.999Z"},
            {"startedAt": "0001-01-01T00:00:00+10:00"},
            {"startedAt": "2026-W01-1T00:00:00Z"},
            {"startedAt": "2026-02-30T00:00:00Z"},
            {"message": {**message, "origin": {"kind": "agent"}}},
            {"message": {**message, "model": {"id": "nobodys"}}},
            {"message": {**message, "agent": {"uri": "a:/b"}}},
            {"message": {**message, "text": ""}},
            {"message": {**message, "attachments": [{"type": "chat", "label": "c", "resource": chat}]}},
            {"message": {"text": "no origin"}},
            {"turnId": ""},
            {"queuedMessageId": "q"},
        ):
            members = {name: value for name, value in {**good, **wrong}.items() if value is not None}
            assert await client.refused(chat, "chat/turnStarted", **members), wrong
        echo = await client.act(chat, "chat/turnStarted", **good)
        assert echo["action"] == {"type": "chat/turnStarted", **good}
        assert echo["origin"]["clientId"] == "starter"
        state = await client.check(chat)
        assert (state["activeTurn"]["startedAt"], state["modifiedAt"], state["status"]) == (
            good["startedAt"],
            good["startedAt"],
            8,
        )
        assert await client.refused(chat, "chat/turnStarted", **{**good, "turnId": "second"})
        cancelled = await client.act(chat, "chat/turnCancelled", turnId="t", duration=1500)
        assert cancelled["action"]["duration"] == 1500
        state = await client.check(chat)
        assert (state["turns"][0]["state"], state["turns"][0]["duration"]) == ("cancelled", 1500)
        assert state["modifiedAt"] == "2026-01-01T10:00:01.500Z"
        session = await client.check(uri)
        assert session["chats"][0]["modifiedAt"] == state["modifiedAt"]
        listed = (await client.request("listSessions", {}))["items"][0]
        assert listed["modifiedAt"] == state["modifiedAt"]
        assert client.types(uri)[-1] == "session/chatUpdated"
        assert await client.refused(chat, "chat/turnStarted", **good)
        await client.act(chat, "chat/turnStarted", **{**good, "turnId": "long", "startedAt": "2999-12-31T23:59:59.999+00:00"})
        cancelled = await client.act(chat, "chat/turnCancelled", turnId="long", duration=1e300)
        assert cancelled["action"]["duration"] == 10**12
        assert (await client.check(chat))["modifiedAt"] > "3000"


@pytest.mark.rule("V49", "V92", "V144")
@both
async def test_odd_values_are_refused_or_cut_and_never_fail_the_host(
    host: str, sample: SampleTenants, version: ClientVersion, caplog: pytest.LogCaptureFixture
) -> None:
    async with mirroring(host, sample.alice.key, "odd", version=version) as client:
        uri, chat = await client.create()
        for odd in (
            "",
            "\0",
            "ahp-session:/\0",
            "ahp-chat://default/",
            "ahp-chat://default/AAAA",
            chat_uri(chat),
            "x" * 5000,
            "\ud800",
        ):
            assert await client.code_of("subscribe", channel=odd) in (-32001, -32008, -32602), odd
            assert await client.code_of("disposeSession", channel=odd) in (-32001, -32602), odd
            assert await client.code_of("createChat", channel=uri, chat=odd) == -32602, odd
            assert await client.code_of("createSession", channel=odd, provider="echo") == -32602, odd
        for number, (given, kept) in enumerate(((-5, 0), (1.5, 1), (10**40, times.LONGEST_MS), (1e300, times.LONGEST_MS))):
            turn = await client.start(chat, f"turn {number}")
            echo = await client.act(chat, "chat/turnCancelled", turnId=turn, duration=given)
            assert echo["action"]["duration"] == kept
            await client.check(chat)
            await client.check(uri)
        for time in (
            "9999-12-31T23:59:59.999Z",
            "0001-01-01T00:00:00+14:00",
            "2026-01-01T00:00:00.123456789Z",
            "20260101T000000Z",
        ):
            action = {"type": "chat/turnStarted", "turnId": f"at {time}", "startedAt": time}
            echo = await client.echo(
                await client.dispatch({**action, "message": {"text": "x", "origin": {"kind": "user"}}}, chat)
            )
            if "rejectionReason" not in echo:
                await client.act(chat, "chat/turnCancelled", turnId=f"at {time}", duration=10)
            await client.check(chat)
            await client.check(uri)
    assert "_failed" not in caplog.text


@pytest.mark.rule("V106", "V107", "V212", "V210", "V148")
@both
async def test_drafts_pending_messages_and_flags_are_kept(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "keeper", version=version) as client:
        uri, chat = await client.create()
        draft = {"text": "half a thou", "origin": {"kind": "user"}}
        await client.act(chat, "chat/draftChanged", draft={**draft, "_meta": {"a": 1}})
        assert (await client.check(chat))["draft"] == draft
        assert await client.refused(chat, "chat/draftChanged", draft={**draft, "origin": {"kind": "agent"}})
        await client.act(chat, "chat/draftChanged")
        assert "draft" not in await client.check(chat)
        await client.start(chat, "begin")
        for id_ in ("a", "b"):
            await client.act(chat, "chat/pendingMessageSet", kind="queued", id=id_, message=draft)
        await client.act(chat, "chat/pendingMessageSet", kind="steering", id="s", message=draft)
        await client.act(chat, "chat/queuedMessagesReordered", order=["b", "a"])
        state = await client.check(chat)
        assert [each["id"] for each in state["queuedMessages"]] == ["b", "a"]
        assert state["steeringMessage"] == {"id": "s", "message": draft}
        await client.act(chat, "chat/pendingMessageRemoved", kind="queued", id="a")
        await client.act(uri, "session/isReadChanged", isRead=True)
        assert (await client.check(uri))["status"] & 32
        await client.act(uri, "session/isArchivedChanged", isArchived=True)
        session = await client.check(uri)
        assert session["status"] & 64
        if version is V1_0:
            await client.act(chat, "chat/isReadChanged", isRead=True)
            assert (await client.check(chat))["status"] & 96 == 96
            await client.act(chat, "chat/isArchivedChanged", isArchived=False)
            await client.until(lambda: not client.state(uri)["status"] & 64)
        else:
            assert (await client.check(chat))["status"] < 32
        await client.check(uri)
        await client.check(chat)


@pytest.mark.rule("V180", "V181", "V182", "V250", "V251", "V252", "V254")
@both
async def test_a_client_joins_with_its_tools_and_plugins_and_leaves(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    async with (
        mirroring(host, sample.alice.key, "first", version=version) as first,
        mirroring(host, sample.alice.key, "watcher", version=version) as watcher,
    ):
        uri, _ = await first.create()
        await watcher.subscribe(uri)
        tool = {"name": "signal", "inputSchema": {"type": "object", "properties": {}}}
        plugin = {"type": "plugin", "id": "p1", "uri": "file:///plugins/one", "name": "One"}
        entry = {"clientId": "first", "displayName": "Bridge", "tools": [tool], "customizations": [plugin]}
        await first.act(uri, "session/activeClientSet", activeClient=entry)
        state = await watcher.check(uri)
        assert [each["clientId"] for each in state["activeClients"]] == ["first"]
        assert [each["id"] for each in state["customizations"]] == ["p1"]
        off = [{"kind": "session", "enabled": False}, {"kind": "global", "enabled": True}]
        await first.act(uri, "session/customizationToggled", id="p1", enablement=off)
        assert (await watcher.check(uri))["customizations"][0]["enablement"] == off
        await first.act(uri, "session/customizationToggled", id="p1", enablement=[])
        assert "enablement" not in (await watcher.check(uri))["customizations"][0]
        await first.act(uri, "session/activeClientRemoved", clientId="first")
        state = await watcher.check(uri)
        assert state["activeClients"] == []
        await first.act(uri, "session/activeClientSet", activeClient=entry)
        await watcher.until(lambda: watcher.state(uri)["activeClients"])
        await first.unsubscribe(uri)
        await watcher.until(lambda: not watcher.state(uri)["activeClients"])
        await watcher.check(uri)


@pytest.mark.rule("V36", "V40", "V82", "V87", "V88", "V220", "V223", "V320", "V321", "V323", "V336")
@both
async def test_what_is_left_out_gets_its_error(
    host: str, sample: SampleTenants, settings: Settings, version: ClientVersion
) -> None:
    settings.AGENTHOST_WORKSPACES_DIR, settings.AGENTHOST_TERMINALS = None, False
    async with mirroring(host, sample.alice.key, "asker", version=version) as client:
        for method in (
            *("createTerminal", "disposeTerminal", "createResourceWatch", "invokeChangesetOperation"),
            *("createAutomation", "openCanvas", "reorderChat", "nothing"),
        ):
            assert await client.code_of(method, channel=ROOT) == -32601, method
        uri = "file:///workspace/a"
        params = {"uri": uri, "source": uri, "destination": f"{uri}b", "data": "", "encoding": "utf-8"}
        for what in ("Read", "Write", "List", "Copy", "Move", "Delete", "Request", "Resolve", "Mkdir"):
            assert await client.code_of(f"resource{what}", channel=ROOT, **params) == -32601, what
        assert await client.code_of("createResourceWatch", channel=ROOT, uri=uri) == -32601
        for channel in ("ahp-terminal:/a", "ahp-resource-watch:/a", "ahp-changeset:/a", "ahp-automations://", "ahp-otlp:a"):
            assert await client.code_of("subscribe", channel=channel) == -32008, channel
        for method in ("listSessions", "resolveSessionConfig", "ping"):
            # About the root, whether it is named or not; and about nothing else.
            await client.request(method, {"provider": "echo"} if method == "resolveSessionConfig" else {})
            assert await client.code_of(method, channel="ahp-session:/a", provider="echo") == -32602, method
        for method in ("disposeSession", "createChat", "fetchTurns"):
            assert await client.code_of(method, chat="ahp-chat:/a") == -32602, method
        assert await client.code_of("authenticate", channel=ROOT, resource="https://a/b", token="t") == -32602
        schema = (await client.request("resolveSessionConfig", {"channel": ROOT, "provider": "echo"}))["schema"]
        assert "approval" in schema["properties"]
        assert "model" not in schema["properties"]
        asked = {"channel": ROOT, "provider": "echo", "property": "approval"}
        assert await client.request("sessionConfigCompletions", asked) == {"items": []}
        uri = "ahp-session:/several"
        directories = ["file:///projects/one", "file:///projects/two"]
        await client.create("echo", uri, workingDirectories=directories, progressToken="p")
        assert client.state(uri)["workingDirectories"] == directories[:1]


@pytest.mark.rule("V180", "V183", "V185", "V186")
async def test_several_clients_are_active_and_0_1_shows_the_first(host: str, sample: SampleTenants) -> None:
    old = Watcher(host, sample.alice.key, "old")
    await old.open()
    await old.initialize()
    async with (
        mirroring(host, sample.alice.key, "first", version=V0_9) as first,
        mirroring(host, sample.alice.key, "second") as second,
    ):
        uri, _ = await first.create()
        await second.subscribe(uri)
        await old.subscribe(uri)
        tool = {"name": "signal", "inputSchema": {"type": "object", "properties": {}}}
        for client in (first, second):
            await client.act(uri, "session/activeClientSet", activeClient={"clientId": client.client_id, "tools": [tool]})
        await first.until(lambda: len(first.state(uri)["activeClients"]) == 2)
        assert [each["clientId"] for each in (await second.check(uri))["activeClients"]] == ["first", "second"]
        assert (await old.check(uri))["activeClient"]["clientId"] == "first"
        claim = {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "old", "tools": []}}
        assert (await old.echo(await old.dispatch(claim)))["rejectionReason"]
        await first.act(uri, "session/activeClientRemoved", clientId="first")
        await old.until(lambda: old.state(uri)["activeClient"]["clientId"] == "second")
        await old.check(uri)
        await first.act(uri, "session/activeClientSet", activeClient={"clientId": "first", "tools": []})
        await second.until(lambda: len(second.state(uri)["activeClients"]) == 2)
        assert [each["clientId"] for each in (await second.check(uri))["activeClients"]] == ["second", "first"]
        await first.check(uri)
        await old.check(uri)
        await second.act(uri, "session/activeClientRemoved", clientId="second")
        await old.until(lambda: old.state(uri)["activeClient"]["clientId"] == "first")
        await old.check(uri)
    await old.close()


# --- coming back, and several versions at once ---


@pytest.mark.rule("V20", "V21", "V22", "V23", "V24", "V300", "V301", "V303", "V306", "V307", "V308")
async def test_a_client_comes_back_without_naming_its_version(host: str, sample: SampleTenants) -> None:
    async with mirroring(host, sample.alice.key, "stays") as stays:
        for version in (V0_9, V1_0):
            uri, chat = await stays.create()
            back = Mirror(host, sample.alice.key, "comes-back", version)
            await back.open()
            await back.initialize(ROOT, uri, chat)
            back.cut()
            await back.ended()
            await stays.act(uri, "session/titleChanged", title="Missed")
            await stays.act(chat, "chat/isReadChanged", isRead=True)
            assert await back.reconnect() == "replay"
            assert back.state(uri)["title"] == "Missed"
            assert ("chat/isReadChanged" in back.types(chat)) == (version is V1_0)
            for channel in (ROOT, uri, chat):
                await back.check(channel)
            await stays.request("disposeSession", {"channel": uri})
            for last, kind in ((0, "snapshot"), (times.LONGEST_MS, "snapshot"), (2**70, "snapshot")):
                await back.close()
                back.last_seq = last
                assert await back.reconnect() == kind
            assert set(back.mirrors) == {ROOT}
            await back.close()


@pytest.mark.rule("V22")
async def test_an_unknown_client_that_comes_back_begins_anew_on_the_same_connection(host: str, sample: SampleTenants) -> None:
    for params in ({"channel": ROOT, "subscriptions": []}, {"subscriptions": ["ahp-session:/a"]}):
        client = Mirror(host, sample.alice.key, "unheard-of")
        await client.open()
        assert await client.code_of("reconnect", clientId="unheard-of", lastSeenServerSeq=5, **params) == -32008
        assert (await client.initialize(ROOT))["protocolVersion"] == "1.0.0"
        await client.close()
        await database.run(_forget, "unheard-of")
    old = Client(host, sample.alice.key, "unheard-of-too")
    await old.open()
    result = await old.request("reconnect", {"clientId": "unheard-of-too", "lastSeenServerSeq": 0, "subscriptions": []})
    assert result["type"] in ("replay", "snapshot")
    await old.request("listSessions", {})
    await old.close()


def _forget(client: str) -> None:
    from sessions_app.models import ClientHandshake

    ClientHandshake.objects.filter(client=client).delete()


@pytest.mark.rule("V1", "V16", "V54", "V56", "V305", "V400", "V401", "V402", "V415", "V416")
async def test_clients_of_three_versions_share_a_session(host: str, sample: SampleTenants) -> None:
    old = Watcher(host, sample.alice.key, "old", version=V0_1)
    await old.open()
    await old.initialize()
    async with (
        mirroring(host, sample.alice.key, "nine", version=V0_9) as nine,
        mirroring(host, sample.alice.key, "one") as one,
    ):
        uri, chat = await one.create()
        await nine.subscribe(uri)
        await nine.subscribe(chat)
        await old.subscribe(uri)
        await old.echo(await old.dispatch({"type": "session/titleChanged", "session": uri, "title": "Shared"}))
        await one.act(chat, "chat/draftChanged", draft={"text": "d", "origin": {"kind": "user"}})
        await nine.start(chat, "from nine")
        await one.act(chat, "chat/isReadChanged", isRead=True)
        queued = {
            "type": "session/pendingMessageSet",
            "session": uri,
            "kind": "queued",
            "id": "q",
            "userMessage": {"text": "next"},
        }
        await old.echo(await old.dispatch(queued))
        turn = nine.state(chat)["activeTurn"]["id"]
        await old.echo(await old.dispatch({"type": "session/turnCancelled", "session": uri, "turnId": turn}))
        await one.act(uri, "session/isArchivedChanged", isArchived=True)
        await asyncio.gather(*(client.until(lambda client=client: client.state(uri)["status"] & 64) for client in (nine, one)))  # type: ignore[misc]
        for client in (nine, one):
            await client.check(uri)
            await client.check(chat)
        await old.check(uri)
        added = {"chat/isReadChanged", "chat/isArchivedChanged"}
        assert added & set(one.types(chat))
        assert not added & set(nine.types(chat))
        started = {
            each["serverSeq"]
            for client in (nine, one, old)
            for each in client.seen
            if each["action"]["type"].endswith("/turnStarted")
        }
        assert len(started) == 1
    await old.close()


@pytest.mark.rule("V310", "V311", "V312", "V313", "V314", "V315")
async def test_an_editor_without_its_flag_finds_the_agent_in_every_uri(host: str, sample: SampleTenants) -> None:
    editor: dict[str, Any] = {"clientInfo": {"name": "vscode-editor-window", "version": "1"}}
    async with mirroring(host, sample.alice.key, "one") as one:
        uri, _ = await one.create()
        flagged = Mirror(host, sample.alice.key, "flagged", hello={**editor, "_meta": {"vscode.ahpSessionUris": True}})
        await flagged.open()
        assert (await flagged.initialize(ROOT))["_meta"] == {"vscode.ahpSessionUris": True}
        assert [each["resource"] for each in (await flagged.request("listSessions", {}))["items"]] == [uri]
        await flagged.close()
        async with mirroring(host, sample.alice.key, "editor", hello=editor) as plain:
            listed = (await plain.request("listSessions", {"channel": ROOT}))["items"][0]
            named = listed["resource"]
            assert named.startswith("echo:/sess_")
            assert [each["resource"] for each in listed["chats"]] == [chat_uri(named)]
            await plain.subscribe(named)
            chat = plain.state(named)["defaultChat"]
            assert chat == chat_uri(named)
            await plain.subscribe(chat)
            assert await plain.request("createChat", {"channel": named, "chat": chat}) is None
            await plain.dispatch({"type": "session/titleChanged", "title": "By the editor"}, chat)
            await plain.until(lambda: plain.state(named)["title"] == "By the editor")
            await plain.start(chat, "hello")
            updated = [each for each in plain.seen if each["action"]["type"] == "session/chatUpdated"]
            assert {each["action"]["chat"] for each in updated} == {chat}
            await plain.check(named)
            await plain.check(chat)
            plain.cut()
            await plain.ended()
            await one.act(uri, "session/titleChanged", title="Missed")
            assert await plain.reconnect() == "replay"
            assert plain.state(named)["title"] == "Missed"
            await plain.create("echo", "echo:/chosen-by-editor")
            assert plain.state("echo:/chosen-by-editor")["defaultChat"] == chat_uri("echo:/chosen-by-editor")
