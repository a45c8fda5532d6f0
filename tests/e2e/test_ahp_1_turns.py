"""AHP 0.9 and 1.0: turns, confirmations, questions, tools of clients, coming back, other protocols beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessions_app.ahp.client.client import Disconnected
from sessions_app.ahp.client.version import ClientVersion
from tests.e2e.ahp_mirror import ROOT, STARTED, V0_9, V1_0, Mirror, chat_uri, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.client import Client as Application
from tests.e2e.server import Server
from tests.e2e.test_ahp_steering import QUESTIONS
from tests.e2e.test_ahp_turns import SIGNAL
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

both = pytest.mark.parametrize("version", [V0_9, V1_0], ids=["0.9", "1.0"])


def calls_of(turn: dict[str, Any]) -> list[dict[str, Any]]:
    return [part["toolCall"] for part in turn["responseParts"] if part["kind"] == "toolCall"]


def text_of(turn: dict[str, Any]) -> str:
    return "".join(part["content"] for part in turn["responseParts"] if part["kind"] == "markdown")


async def check_all(*clients: Mirror, channels: tuple[str, ...]) -> None:
    for client in clients:
        for channel in channels:
            await client.check(channel)


@pytest.mark.rule("V93", "V109", "V110", "V140", "V143", "V144", "V149", "V55", "V56", "V52")
@both
async def test_a_turn_streams_and_ends_at_its_clients_time(server: Server, model: ModelServer, version: ClientVersion) -> None:
    prompt = model.script([steps.thinking("hm"), steps.text(*"hello"), steps.usage(3, 5)])
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "talker", version=version) as talker,
        mirroring(url, key, "second", version=version) as second,
    ):
        uri, chat = await talker.create()
        await second.subscribe(uri)
        turn = await talker.start(chat, prompt)
        ended = await talker.turn_ended(chat, turn)
        assert (text_of(ended), ended["state"], ended["startedAt"]) == ("hello", "complete", STARTED)
        assert ended["duration"] >= 0
        assert "error" not in ended
        await talker.until(lambda: talker.state(uri)["chats"][0]["status"] & 31 == 1)
        session, shown = await talker.check(uri), await talker.check(chat)
        assert shown["modifiedAt"] == session["chats"][0]["modifiedAt"] > STARTED
        assert session["chats"][0]["title"] == session["title"] == shown["title"] != ""
        types = talker.types(chat)
        assert types[0] == "chat/turnStarted"
        assert {"chat/responsePart", "chat/delta", "chat/reasoning", "chat/usage"} <= set(types)
        assert types[-1] == "chat/turnComplete"
        assert talker.types(uri)[-1] == "session/chatUpdated"
        started = next(each for each in talker.seen if each["action"]["type"] == "chat/turnStarted")
        assert started["origin"]["clientId"] == "talker"
        await second.until(lambda: second.state(uri)["chats"][0]["status"] & 31 == 1)
        assert second.types(chat) == []
        await second.check(uri)


@pytest.mark.rule("V104", "V162", "V163", "V200", "V201", "V203", "V207", "V208")
@both
async def test_a_call_is_confirmed_by_a_client_that_follows_only_the_session(
    server: Server, model: ModelServer, version: ClientVersion
) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "Bree"}, pieces=3)], [steps.text("done")])
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "asker", version=version) as asker,
        mirroring(url, key, "third", version=version) as third,
    ):
        uri, chat = await asker.create("pilot")
        await third.subscribe(uri)
        turn = await asker.start(chat, prompt)
        entry = await third.needed(uri, "toolConfirmation")
        assert (entry["chat"], entry["turnId"]) == (chat, turn)
        assert entry["toolCall"]["status"] == "pending-confirmation"
        await asker.until(lambda: asker.state(uri).get("inputNeeded") and asker.state(uri)["chats"][0]["status"] & 31 == 24)
        await check_all(asker, channels=(uri, chat))
        assert calls_of(asker.state(chat)["activeTurn"])[0] == entry["toolCall"]
        call = entry["toolCall"]["toolCallId"]
        seq = await third.dispatch(
            {"type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": True, "confirmed": "user-action"},
            entry["chat"],
        )
        echo = await third.echo(seq)
        assert (echo["channel"], echo["action"]["type"]) == (chat, "chat/toolCallConfirmed")
        ended = await asker.turn_ended(chat, turn)
        assert (calls_of(ended)[0]["status"], text_of(ended)) == ("completed", "done")
        await third.until(lambda: "inputNeeded" not in third.state(uri))
        assert not [each for each in third.seen if each.get("origin", {}).get("clientSeq") == seq and "rejectionReason" in each]
        order = [each for each in asker.types(uri, chat) if each != "chat/usage"]
        ready = order.index("chat/toolCallReady")
        assert order[ready : ready + 3] == ["chat/toolCallReady", "session/inputNeededSet", "session/chatUpdated"]
        await asker.until(lambda: asker.state(uri)["chats"][0]["status"] & 31 == 1)
        await check_all(asker, channels=(uri, chat))
        await check_all(third, channels=(uri,))
        confirm = {"turnId": turn, "toolCallId": call, "approved": True, "confirmed": "user-action"}
        assert await third.refused(chat, "chat/toolCallConfirmed", **confirm)


@pytest.mark.rule("V202", "V190", "V191", "V192")
@both
async def test_a_question_stays_in_the_turn_answered_or_not(server: Server, model: ModelServer, version: ClientVersion) -> None:
    prompt = model.script([steps.call("ask_user", QUESTIONS)], [steps.text("aye")])
    async with mirroring(url_of(server), server.keys.alice, "sailor", version=version) as client:
        uri, chat = await client.create("mate")
        turn = await client.start(chat, prompt)
        entry = await client.needed(uri, "chatInput")
        request = entry["request"]["id"]
        port = {"state": "draft", "value": {"kind": "text", "value": "Bree"}}
        await client.act(chat, "chat/inputAnswerChanged", requestId=request, questionId="port", answer=port)
        await check_all(client, channels=(uri, chat))
        answers = {
            "port": {**port, "state": "submitted"},
            "knots": {"state": "submitted", "value": {"kind": "number", "value": 6}},
        }
        await client.act(chat, "chat/inputCompleted", requestId=request, response="accept", answers=answers)
        ended = await client.turn_ended(chat, turn)
        asked = next(part for part in ended["responseParts"] if part["kind"] == "inputRequest")
        assert (asked["response"], asked["request"]["answers"]["port"]) == ("accept", answers["port"])
        await client.until(lambda: "inputNeeded" not in client.state(uri))
        await check_all(client, channels=(uri, chat))
        again = await client.start(chat, model.script([steps.call("ask_user", QUESTIONS)], [steps.text("never")]))
        await client.needed(uri, "chatInput")
        await client.act(chat, "chat/turnCancelled", turnId=again, duration=10)
        await client.until(lambda: "inputNeeded" not in client.state(uri))
        ended = await client.turn_ended(chat, again)
        asked = next(part for part in ended["responseParts"] if part["kind"] == "inputRequest")
        assert "response" not in asked
        await check_all(client, channels=(uri, chat))
        lost = {"requestId": asked["request"]["id"], "response": "cancel"}
        assert await client.refused(chat, "chat/inputCompleted", **lost)


@pytest.mark.rule("V184", "V205", "V161", "V182")
@both
async def test_a_tool_of_a_client_is_run_by_it_and_fails_when_it_goes(
    server: Server, model: ModelServer, version: ClientVersion
) -> None:
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("hoisted")])
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "owner", version=version) as owner,
        mirroring(url, key, "other", version=version) as other,
    ):
        uri, chat = await owner.create(activeClient={"clientId": "owner", "tools": [SIGNAL]})
        await other.subscribe(uri)
        await other.subscribe(chat)
        turn = await other.start(chat, prompt)
        entry = await owner.needed(uri, "toolClientExecution")
        assert (entry["clientId"], entry["toolCall"]["contributor"]) == ("owner", {"kind": "client", "clientId": "owner"})
        await check_all(owner, other, channels=(uri, chat))
        assert other.state(chat)["status"] & 31 == 8
        result = {"success": True, "pastTenseMessage": "Hoisted", "content": [{"type": "text", "text": "Q is up"}]}
        done = {"turnId": turn, "toolCallId": entry["toolCall"]["toolCallId"], "result": result}
        assert await other.refused(chat, "chat/toolCallComplete", **done)
        await owner.act(chat, "chat/toolCallComplete", **done)
        assert text_of(await other.turn_ended(chat, turn)) == "hoisted"
        await other.until(lambda: "inputNeeded" not in other.state(uri))
        await check_all(owner, other, channels=(uri, chat))
        second = await other.start(chat, model.script([steps.call("signal", {"flag": "R"})], [steps.text("alone")]))
        await other.needed(uri, "toolClientExecution")
        await owner.unsubscribe(uri)
        ended = await other.turn_ended(chat, second)
        assert (calls_of(ended)[0]["success"], text_of(ended)) == (False, "alone")
        await other.until(lambda: other.state(uri)["activeClients"] == [])
        left = other.types(uri, chat)
        assert left[::-1].index("chat/toolCallComplete") > left[::-1].index("session/activeClientRemoved")
        await check_all(other, channels=(uri, chat))


@pytest.mark.rule("V145", "V152", "V211", "V108", "V142")
@both
async def test_failures_queues_models_and_cuts(server: Server, model: ModelServer, version: ClientVersion) -> None:
    async with mirroring(url_of(server), server.keys.alice, "mixed", version=version) as client:
        uri, chat = await client.create("mate")
        failed = await client.start(chat, model.script(*[[steps.status(400)]] * 5))
        ended = await client.turn_ended(chat, failed)
        assert (ended["state"], ended["responseParts"][-1]["kind"]) == ("error", "error")
        await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 2)
        await check_all(client, channels=(uri, chat))
        assert await client.refused(chat, "chat/turnResume", turnId=failed)
        await client.act(uri, "session/isReadChanged", isRead=True)
        slow = model.script([steps.text("one"), steps.gate("go"), steps.text("two")])
        message = {"text": slow, "origin": {"kind": "user"}, "model": {"id": "gpt-other"}}
        turn = await client.start(chat, slow, message=message)
        await client.until(lambda: not client.state(uri)["status"] & 32)
        queued = {"text": model.script([steps.text("next")]), "origin": {"kind": "user"}}
        await client.act(chat, "chat/pendingMessageSet", kind="queued", id="q", message=queued)
        await check_all(client, channels=(uri, chat))
        model.open_gate("go")
        assert text_of(await client.turn_ended(chat, turn)) == "onetwo"
        assert model.requests_of(slow)[0].body["model"] == "gpt-other"
        await client.until(lambda: len(client.state(chat)["turns"]) == 3)
        types = client.types(chat)
        taken = len(types) - 1 - types[::-1].index("chat/pendingMessageRemoved")
        assert types[taken + 1] == "chat/turnStarted"
        await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 1)
        await check_all(client, channels=(uri, chat))
        await client.act(chat, "chat/truncated", turnId=failed)
        assert [each["id"] for each in client.state(chat)["turns"]] == [failed]
        await check_all(client, channels=(uri, chat))


@pytest.mark.rule("V20", "V21", "V300", "V301", "V304")
@both
async def test_a_client_that_is_cut_off_in_a_turn_folds_what_it_missed(
    server: Server, model: ModelServer, version: ClientVersion
) -> None:
    url, key = url_of(server), server.keys.alice
    async with mirroring(url, key, "cut", version=version) as client:
        uri, chat = await client.create("pilot", config={"approval": "auto"})
        for after in (1, 4, 8):
            prompt = model.script([steps.text(*"abcd"), steps.call("tide_table", {"harbour": "Bree"})], [steps.text(*"efgh")])
            before = len(client.seen)
            turn = await client.start(chat, prompt)
            await client.until(lambda before=before, after=after: len(client.seen) >= before + after)  # type: ignore[misc]
            client.cut()
            with pytest.raises(Disconnected):
                await client.until(lambda: False)
            assert await client.reconnect() == "replay"
            assert text_of(await client.turn_ended(chat, turn)) == "abcdefgh"
            await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 1)
            await check_all(client, channels=(ROOT, uri, chat))


@pytest.mark.rule("V1", "V43", "V54", "V98", "V154", "V305", "V400", "V402", "V415", "V416")
async def test_three_versions_of_ahp_and_an_application_use_one_session(
    server: Server, model: ModelServer, alice: Application
) -> None:
    url, key = url_of(server), server.keys.alice
    public_id = alice.create({"name": "pilot", "tools": [{"name": "tide_table"}]})
    uri, old_uri = f"ahp-session:/{public_id}", f"pilot:/{public_id}"
    chat = chat_uri(uri)
    async with (
        mirroring(url, key, "one") as one,
        mirroring(url, key, "nine", version=V0_9) as nine,
        watching(server, key, "old") as old,
    ):
        for client in (one, nine):
            await client.subscribe(uri)
            await client.subscribe(chat)
        await old.subscribe(old_uri)
        prompt = model.script([steps.text("see"), steps.call("tide_table", {"harbour": "Bree"})], [steps.text("done")])
        turn = await nine.start(chat, prompt)
        entry = await one.needed(uri, "toolConfirmation")
        # Two clients answer at once: the first counts, and the other is rejected.
        confirm = {"turnId": turn, "toolCallId": entry["toolCall"]["toolCallId"], "approved": True, "confirmed": "user-action"}
        by_old = {"type": "session/toolCallConfirmed", "session": old_uri, **confirm}
        by_one = {"type": "chat/toolCallConfirmed", **confirm}
        first, second = await asyncio.gather(old.dispatch(by_old), one.dispatch(by_one, chat))
        echoes = await asyncio.gather(old.echo(first, 60), one.echo(second, 60))
        assert ["rejectionReason" in each for each in echoes].count(True) == 1
        await asyncio.gather(one.turn_ended(chat, turn), nine.turn_ended(chat, turn))
        words = model.script([steps.thinking("so"), steps.text("from", " the", " application")])
        outcome = await asyncio.to_thread(alice.turn, public_id, words)
        assert outcome.text == "from the application"
        last = await one.until(lambda: one.state(chat)["turns"][1:], 60)
        assert last[0]["message"] == {"text": words, "origin": {"kind": "user"}, "model": {"id": "openai-chat:gpt-test"}}
        await nine.until(lambda: nine.state(chat)["turns"][1:], 60)
        await old.until(lambda: old.state(old_uri)["turns"][1:], 60)
        for client in (one, nine):
            await client.until(lambda client=client: client.state(uri)["chats"][0]["status"] & 31 == 1)  # type: ignore[misc]
        await check_all(one, nine, channels=(ROOT, uri, chat))
        await old.check(old_uri)
        numbers = [
            [each["serverSeq"] for each in client.seen if each["action"]["type"].endswith(("/delta", "/turnStarted"))]
            for client in (one, nine, old)
        ]
        assert numbers[0] == numbers[1] == numbers[2] != []
        added = {"chat/isReadChanged", "chat/isArchivedChanged"}
        assert not added & set(nine.types(chat))


@pytest.mark.rule("V180", "V184", "V205")
async def test_each_of_two_clients_runs_its_own_tools(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    other_tool = {**SIGNAL, "name": "lower"}
    prompt = model.script([steps.call("signal", {"flag": "Q"}), steps.call("lower", {"flag": "Q"})], [steps.text("both")])
    async with (
        mirroring(url, key, "hoister", version=V0_9) as hoister,
        mirroring(url, key, "lowerer") as lowerer,
    ):
        uri, chat = await hoister.create()
        await lowerer.subscribe(uri)
        await lowerer.subscribe(chat)
        for client, tools in ((hoister, [SIGNAL]), (lowerer, [other_tool])):
            await client.act(uri, "session/activeClientSet", activeClient={"clientId": client.client_id, "tools": tools})
        turn = await lowerer.start(chat, prompt)
        await lowerer.until(lambda: len(lowerer.state(uri).get("inputNeeded", [])) == 2, 60)
        owners = {each["toolCall"]["toolName"]: each["clientId"] for each in lowerer.state(uri)["inputNeeded"]}
        assert owners == {"signal": "hoister", "lower": "lowerer"}
        for entry in list(lowerer.state(uri)["inputNeeded"]):
            result = {"success": True, "pastTenseMessage": "Done"}
            done = {"turnId": turn, "toolCallId": entry["toolCall"]["toolCallId"], "result": result}
            owner, stranger = (hoister, lowerer) if entry["clientId"] == "hoister" else (lowerer, hoister)
            assert await stranger.refused(chat, "chat/toolCallComplete", **done)
            await owner.act(chat, "chat/toolCallComplete", **done)
        assert text_of(await hoister.turn_ended(chat, turn)) == "both"
        await lowerer.turn_ended(chat, turn)
        for client in (hoister, lowerer):
            await client.until(lambda client=client: client.state(uri)["chats"][0]["status"] & 31 == 1)  # type: ignore[misc]
        await check_all(hoister, lowerer, channels=(uri, chat))
