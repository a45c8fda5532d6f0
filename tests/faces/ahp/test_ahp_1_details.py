"""AHP 0.9 and 1.0: frames, members that are ignored, summaries, long histories, actions that are sent again."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app import exact_json
from sessions_app.ahp.client.client import Client
from sessions_app.ahp.client.version import ClientVersion
from sessions_app.ahp.versions.v0_9.wire import envelopes as envelopes_0_9
from sessions_app.ahp.versions.v1_0.wire import envelopes as envelopes_1_0
from sessions_app.core.base import database
from sessions_app.models import ClientHandshake, Event
from tests.e2e.ahp_mirror import ROOT, V0_9, V1_0, chat_uri, mirroring
from tests.e2e.ahp_watcher import Watcher
from tests.sample_tenants import SampleTenants, make_session

pytestmark = pytest.mark.django_db(transaction=True)

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])
CANARY = "canary-of-a-machine"


@pytest.mark.rule("V91", "V335")
def test_each_version_has_its_number_of_actions() -> None:
    assert (len(envelopes_0_9.KNOWN), len(envelopes_0_9.FROM_CLIENTS)) == (96, 44)
    assert (len(envelopes_1_0.KNOWN), len(envelopes_1_0.FROM_CLIENTS)) == (106, 47)


@pytest.mark.rule("V14", "V29", "V34", "V35", "V37", "V319", "V333")
@both
async def test_what_a_client_says_beside_the_protocol_is_ignored_and_kept_nowhere(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    hello: dict[str, Any] = {
        "protocolVersions": [*version.offers, "0.10.0", "0.8.0", "0.7.0", "0.6.0"],
        "clientInfo": {"name": "anybody", "title": "T", "version": "9"},
        "capabilities": {"mcpApps": {}, "later": {}},
        "_meta": {"machine": CANARY},
        "windows": [1],
    }
    async with mirroring(host, sample.alice.key, "beside", version=version, hello=hello) as client:
        uri, chat = await client.create("echo", _meta={"machine": CANARY}, later=CANARY)
        for method, params in (
            ("subscribe", {"channel": uri}),
            ("listSessions", {"channel": ROOT}),
            ("fetchTurns", {"channel": chat}),
            ("ping", {"channel": ROOT}),
        ):
            await client.request(method, {**params, "_meta": {"machine": CANARY}, "later": 1})
        assert await client.code_of("subscribe", channel=uri, _meta="no object") == -32602
        assert await client.code_of("x-agenthost/later", channel=ROOT) == -32601
        await client.notify("later/notification", {"channel": ROOT})
        action = {"turnId": "t", "startedAt": "2026-01-01T10:00:00Z", "message": {"text": "hi", "origin": {"kind": "user"}}}
        echo = await client.act(chat, "chat/turnStarted", **action, _meta={"machine": CANARY})
        assert echo["action"] == {"type": "chat/turnStarted", **action}
        token = {"channel": ROOT, "resource": "https://a/b", "token": "t", "expiresIn": "soon"}
        # A member of 1.0, which 0.9 does not read: both answer that there is no such resource, or that it is wrong.
        assert await client.code_of("authenticate", **token) == -32602
        await client.send(exact_json.dumps({"jsonrpc": "2.0", "id": "a text", "method": "ping"}))
        await client.check(chat)
        await client.check(uri)

    def kept() -> bool:
        rows = ClientHandshake.objects.filter(client="beside").values_list("version", flat=True)
        return Event.objects.filter(data__contains=CANARY).exists() or any(CANARY in each for each in rows)

    assert not await database.run(kept)


@pytest.mark.rule("V34")
async def test_the_id_of_a_request_may_be_a_text(host: str, sample: SampleTenants) -> None:
    answers: list[dict[str, Any]] = []
    client = Client(host, sample.alice.key, "texts", version=V1_0, on_frame=lambda frame: answers.append(exact_json.loads(frame)))
    await client.open()
    await client.initialize()
    for id_ in ("one", "", "7"):
        await client.send(exact_json.dumps({"jsonrpc": "2.0", "id": id_, "method": "listSessions", "params": {"limit": 0}}))
    await client.until(lambda: len(answers) == 4)
    assert [each["id"] for each in answers[1:]] == ["one", "", "7"]
    await client.close()


@pytest.mark.rule("V48", "V101", "V155")
@both
async def test_a_snapshot_has_all_turns_whatever_the_view(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    lines = [{"role": role, "content": f"{role} {number}"} for number in range(205) for role in ("user", "assistant")]
    session = await database.run(lambda: make_session(sample.alice.caller, seed=lines))
    uri = f"ahp-session:/{session.public_id}"
    old = Watcher(host, sample.alice.key, "old")
    await old.open()
    await old.initialize()
    async with mirroring(host, sample.alice.key, "views", version=version) as client:
        advice = {"view": {"turns": 3}, "delivery": {"maxLatencyMs": 50}}
        await client.request("subscribe", {"channel": chat_uri(uri), **advice})
        turns = client.state(chat_uri(uri))["turns"]
        assert [each["message"]["text"] for each in turns] == [f"user {number}" for number in range(205)]
        assert "turnsNextCursor" not in client.state(chat_uri(uri))
        created = (await client.request("listSessions", {"channel": ROOT}))["items"][0]["createdAt"]
        assert {(each["startedAt"], each["duration"], each["state"]) for each in turns} == {(created, 0, "complete")}
        wrongs: list[dict[str, Any]] = [
            {"view": 3},
            {"view": {"turns": "3"}},
            {"delivery": {"maxLatencyMs": "x"}},
            {"delivery": []},
        ]
        for wrong in wrongs:
            assert await client.code_of("subscribe", channel=chat_uri(uri), **wrong) == -32602, wrong
    assert len((await old.subscribe(f"echo:/{session.public_id}"))["turns"]) == 200
    await old.close()


@pytest.mark.rule("V51", "V64", "V65", "V100", "V105", "V126", "V334")
@both
async def test_summaries_change_by_what_has_changed(host: str, sample: SampleTenants, version: ClientVersion) -> None:
    async with mirroring(host, sample.alice.key, "lists", version=version) as client:
        uri, chat = await client.create("echo", progressToken="p")
        await client.act(uri, "session/titleChanged", title="Renamed")
        await client.start(chat, "begin")

        def changes() -> list[dict[str, Any]]:
            return [each["changes"] for each in client.heard if each["type"] == "root/sessionSummaryChanged"]

        await client.until(lambda: any(each.get("status") == 8 for each in changes()))
        assert any(each.get("title") == "Renamed" for each in changes())
        allowed = {"title", "status", "modifiedAt", "activity"} | ({"chats"} if version is V1_0 else set())
        assert {name for each in changes() for name in each} <= allowed
        listed = (await client.request("listSessions", {"channel": ROOT}))["items"][0]
        assert listed["activity"] == ""
        assert "activity" not in client.state(uri)
        assert "activity" not in client.state(chat)
        # The summary in the session and the chat's state are equal, and the chat's title is the session's.
        state, (summary,) = await client.check(chat), (await client.check(uri))["chats"]
        assert {**{name: state.get(name) for name in summary}, "activity": ""} == summary
        assert state["title"] == listed["title"] == "Renamed"
        if version is V1_0:
            assert listed["chats"] == [{name: summary[name] for name in ("resource", "title", "status")}]
        numbers = [each["serverSeq"] for each in client.seen]
        assert numbers == sorted(numbers)
        assert not [each for each in client.heard if each["type"] == "root/progress"]


@pytest.mark.rule("V95", "V96")
@both
async def test_an_action_that_is_sent_again_after_coming_back_has_one_effect(
    host: str, sample: SampleTenants, version: ClientVersion
) -> None:
    async with mirroring(host, sample.alice.key, "again", version=version) as client:
        uri, chat = await client.create()
        message = {"text": "hello", "origin": {"kind": "user"}}
        started = {"type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-01-01T10:00:00Z", "message": message}
        refused = {"type": "chat/turnCancelled", "turnId": "nothing", "duration": 0}
        sent = [(await client.dispatch(action, chat), action) for action in (started, refused)]
        for seq, _ in sent:
            await client.echo(seq)
        client.cut()
        await client.ended()
        assert await client.reconnect() == "replay"
        for seq, action in sent:
            await client.notify("dispatchAction", {"channel": chat, "clientSeq": seq, "action": action})
        await client.act(uri, "session/titleChanged", title="after it")
        echoes = [each["origin"]["clientSeq"] for each in client.seen if "origin" in each]
        assert len([each for each in client.seen if each["action"]["type"] == "chat/turnStarted"]) == 1
        assert echoes.count(sent[1][0]) == 1
        assert (await client.check(chat))["activeTurn"]["id"] == "t1"


@pytest.mark.rule("V53", "V94", "V207")
async def test_a_client_that_watches_nothing_gets_its_echoes_and_rejections(host: str, sample: SampleTenants) -> None:
    async with (
        mirroring(host, sample.alice.key, "one") as one,
        mirroring(host, sample.alice.key, "silent", "ahp-session:/nothing", version=V0_9) as silent,
    ):
        uri, chat = await one.create()
        await silent.start(chat, "hello")
        assert await silent.refused(chat, "chat/turnCancelled", turnId="nothing", duration=0)
        await silent.act(uri, "session/titleChanged", title="T")
        types = [each["action"]["type"] for each in silent.seen]
        assert types == ["chat/turnStarted", "chat/turnCancelled", "session/titleChanged"]
        await one.until(lambda: one.state(uri)["title"] == "T")
        own = [each["action"]["type"] for each in one.seen if each.get("origin", {}).get("clientId") == "silent"]
        assert own == ["chat/turnStarted", "session/titleChanged"]
        # The host's own envelopes have no origin.
        assert all("origin" not in each for each in one.seen if each["action"]["type"] == "session/chatUpdated")
