"""AHP 0.9 and 1.0: models, tools, attachments, times of turns, dispatches, one state in three versions. No turn runs here."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.core.base import database
from sessions_app.core.base.events import Kind
from sessions_app.models import DispatchRecord, Event, Message, Turn
from tests.e2e.ahp_mirror import ROOT, STARTED, V0_9, V1_0, chat_uri, mirroring
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
TOOL: dict[str, Any] = {
    "name": "signal",
    "title": "Signal",
    "description": "Hoists a flag",
    "inputSchema": {"type": "object", "properties": {"flag": {"type": "string"}}, "required": ["flag"]},
    "outputSchema": {"type": "object", "properties": {"up": {"type": "boolean"}}},
    "annotations": {
        "title": "Hoist",
        "readOnlyHint": False,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": True,
    },
    "_meta": {"from": {"a": [1.0, None]}},
}


@pytest.mark.rule("V62", "V142")
@both
async def test_a_model_of_an_agent_can_be_chosen_by_its_id_without_a_configuration(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "chooser", version=version) as client:
        (models,) = [agent["models"] for agent in client.state(ROOT)["agents"] if agent["provider"] == "echo"]
        id_ = "openai-chat:gpt-test"
        assert models == [{"id": id_, "provider": "echo", "name": id_, "supportsVision": True}]
        _, chat = await client.create()
        message: dict[str, Any] = {"text": "hello", "origin": {"kind": "user"}}
        started = {"turnId": "t", "startedAt": STARTED}
        wrong: Any
        for wrong in (
            {"id": id_, "config": {"temperature": 1}},
            {"id": id_, "config": {"of": {"no": "primitive"}}},
            {"id": "nothing"},
            {"config": {}},
            id_,
        ):
            assert await client.refused(chat, "chat/turnStarted", **started, message={**message, "model": wrong}), wrong
        await client.act(chat, "chat/turnStarted", **started, message={**message, "model": {"id": id_}})
        assert (await client.check(chat))["activeTurn"]["message"]["model"] == {"id": id_}


@pytest.mark.rule("V74")
@both
async def test_definitions_of_tools_have_all_their_members(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "owner", version=version) as client:
        uri, _ = await client.create("pilot", activeClient={"clientId": "owner", "tools": [TOOL]})
        state = client.state(uri)
        assert state["activeClients"] == [{"clientId": "owner", "tools": [TOOL]}]
        tools = {tool["name"]: tool for tool in state["serverTools"]}
        assert set(tools) == {"tide_table", "order_rope"}
        assert tools["tide_table"] == {
            "name": "tide_table",
            "description": "Times of high and low water.",
            "inputSchema": {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
        }
        wrong: Any
        for wrong in (
            {"name": 7},
            {"title": ["T"]},
            {"inputSchema": "object"},
            {"inputSchema": {"type": "string"}},
            {"outputSchema": {"type": "array"}},
            {"annotations": {"readOnlyHint": "yes"}},
            {"_meta": []},
        ):
            entry = {"clientId": "owner", "tools": [{**TOOL, **wrong}]}
            assert await client.refused(uri, "session/activeClientSet", activeClient=entry), wrong
        await client.act(uri, "session/activeClientSet", activeClient={"clientId": "owner", "tools": [{"name": "signal"}]})
        assert (await client.check(uri))["activeClients"][0]["tools"] == [{"name": "signal"}]


@pytest.mark.rule("V151", "V148")
@both
async def test_an_attached_text_reaches_the_model_and_stays_as_it_was_sent(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    lines = {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}}
    attachments: list[dict[str, Any]] = [
        {
            "type": "simple",
            "label": "berth",
            "modelRepresentation": "Berth 7 is free.",
            "range": lines,
            "displayKind": "document",
            "_meta": {"command": {"a": [1.0, None]}},
        },
        {"type": "embeddedResource", "label": "notes", "data": "b25lCnR3bwp0aHJlZQ==", "contentType": "text/plain"},
    ]
    attachments[1]["selection"] = {"range": lines}
    message = {"text": "see", "origin": {"kind": "user"}, "attachments": attachments}
    async with mirroring(host, sample.alice.key, "sender", version=version) as client:
        _, chat = await client.create()
        wrong: Any
        for wrong in ({"modelRepresentation": 7}, {"displayKind": []}, {"range": "0-3"}, {"_meta": "m"}):
            bad = {**message, "attachments": [{**attachments[0], **wrong}]}
            assert await client.refused(chat, "chat/turnStarted", turnId="t", startedAt=STARTED, message=bad), wrong
        await client.start(chat, "see", message=message)
        assert (await client.check(chat))["activeTurn"]["message"]["attachments"] == attachments
    stored = await Message.objects.filter(role="user").order_by("-pk").afirst()
    assert stored is not None
    texts = [block["text"] for block in exact_json.loads(stored.content)]
    assert texts[:2] == ["see", "Berth 7 is free."]
    assert ("two" in texts[2], "three" in texts[2]) == (True, False)


@pytest.mark.rule("V412", "V109")
@both
async def test_a_turn_keeps_its_clients_times_beside_those_of_the_host(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "timer", version=version) as client:
        _, chat = await client.create()
        turn = await client.start(chat, "hello", startedAt="2001-02-03T04:05:06.789+01:00")
        await client.act(chat, "chat/turnCancelled", turnId=turn, duration=123_456)
        (shown,) = (await client.check(chat))["turns"]
        assert (shown["startedAt"], shown["duration"]) == ("2001-02-03T04:05:06.789+01:00", 123_456)
        row = await Turn.objects.aget(public_id=turn)
        assert (row.began, row.duration_ms) == (shown["startedAt"], 123_456)
        assert row.ended_at is not None
        assert row.created_at.year > 2020
        assert 0 <= (row.ended_at - row.created_at).total_seconds() < 120


@pytest.mark.rule("V413", "V24", "V96")
async def test_actions_of_all_versions_are_in_one_log(host: str, sample: SampleTenants) -> None:
    session = await database.run(make_session, sample.alice.caller)
    uri = f"echo:/{session.public_id}"
    for version in (V0_9, V1_0):
        async with mirroring(host, sample.alice.key, "same", version=version) as client:
            await client.act(uri, "session/titleChanged", title=client.version.offers[0])
    old = Watcher(host, sample.alice.key, "same")
    await old.open()
    await old.initialize(uri)
    await old.echo(await old.dispatch({"type": "session/titleChanged", "session": uri, "title": "0.1.0"}))
    await old.close()
    rows = [row async for row in DispatchRecord.objects.filter(tenant_id=sample.alice.caller.tenant, client="same")]
    # Each handshake begins a life of the client, and with it numbers of its own.
    assert len({row.life for row in rows}) == len(rows) == 3
    assert {row.seq for row in rows} == {"1"}
    titles = [exact_json.loads(each.data) async for each in Event.objects.filter(kind=Kind.TITLE_CHANGED).order_by("seq")]
    said = [(each["title"], each["origin"]["protocol"]) for each in titles if "origin" in each]
    assert said == [("0.9.0", "ahp/1"), ("1.0.0", "ahp/1"), ("0.1.0", "ahp/0.1")]
    # A life that goes on has one number for one action, over any of its connections.
    async with mirroring(host, sample.alice.key, "goes-on") as client:
        seq = await client.dispatch({"type": "session/titleChanged", "title": "once"}, uri)
        await client.echo(seq)
        client.cut()
        await client.ended()
        await client.reconnect()
        again = {"channel": uri, "clientSeq": seq, "action": {"type": "session/titleChanged", "title": "once"}}
        await client.notify("dispatchAction", again)
        await client.act(uri, "session/titleChanged", title="after")
    assert await DispatchRecord.objects.filter(client="goes-on").acount() == 2


@pytest.mark.rule("V414", "V56", "V101")
async def test_three_versions_show_one_state_at_one_number(host: str, sample: SampleTenants) -> None:
    session = await database.run(make_session, sample.alice.caller, "pilot")
    uri, old_uri = f"ahp-session:/{session.public_id}", f"pilot:/{session.public_id}"
    chat = chat_uri(uri)
    old = Watcher(host, sample.alice.key, "old")
    await old.open()
    async with mirroring(host, sample.alice.key, "one") as one, mirroring(host, sample.alice.key, "nine", version=V0_9) as nine:
        turn = await one.start(chat, "hello")
        await one.act(chat, "chat/turnCancelled", turnId=turn, duration=5)
        await one.act(chat, "chat/pendingMessageSet", kind="steering", id="s", message={"text": "p", "origin": {"kind": "user"}})
        for client in (one, nine):
            client.cut()
            await client.ended()
            await client.open()
            await client.initialize(uri, chat)
        await old.initialize(old_uri)
        mirrors = [one.mirrors[uri], one.mirrors[chat], nine.mirrors[uri], nine.mirrors[chat], old.mirrors[old_uri]]
        assert len({each.from_seq for each in mirrors}) == 1
        for client in (one, nine):
            of_session, of_chat = client.state(uri), client.state(chat)
            (summary,) = of_session["chats"]
            assert {name: of_chat.get(name, "") for name in summary} == summary
            assert (of_session["title"], [each["id"] for each in of_chat["turns"]]) == (summary["title"], [turn])
        shown = old.state(old_uri)
        assert (shown["summary"]["title"], [each["id"] for each in shown["turns"]]) == (one.state(uri)["title"], [turn])
        assert [each["name"] for each in shown["serverTools"]] == [each["name"] for each in one.state(uri)["serverTools"]]
    await old.close()


@pytest.mark.rule("V417", "V410")
@both
async def test_a_change_of_a_state_costs_few_events(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "counter", version=version) as client:
        uri, chat = await client.create()
        await client.act(uri, "session/isReadChanged", isRead=True)

        async def kinds(channel: str, type_: str, **members: Any) -> list[str]:
            """Of the events of this action, without those of the tenant's root."""
            before = await database.run(lambda: Event.objects.latest("pk").pk)
            await client.act(channel, type_, **members)
            rows = Event.objects.filter(pk__gt=before).exclude(kind=Kind.ACTIVE_SESSIONS_CHANGED).order_by("pk")
            return [each.kind async for each in rows]

        assert await kinds(uri, "session/titleChanged", title="T") == ["title_changed", "conversation_changed"]
        assert await kinds(chat, "chat/draftChanged") == ["draft_changed"]
        message = {"text": "hello", "origin": {"kind": "user"}}
        started = await kinds(chat, "chat/turnStarted", turnId="t", startedAt=STARTED, message=message)
        assert started == ["turn_started", "read_cleared", "conversation_changed"]
        archived = await kinds(uri, "session/isArchivedChanged", isArchived=True)
        assert archived == ["archived_changed", "chat_archived_changed", "conversation_changed"]
        ended = await kinds(chat, "chat/turnCancelled", turnId="t", duration=1)
        assert Counter(ended)["turn_cancelled"] == 1
        assert len(ended) <= 4
