"""AHP 0.9 and 1.0: which model a turn uses, and whose tool, where several could be meant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.ahp_mirror import V0_9, Mirror, chat_uri, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.client import Client as Application
from tests.e2e.server import Server
from tests.e2e.test_ahp_turns import SIGNAL
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

OTHER = {"id": "gpt-other"}
OPTIONS = {"model": "gpt-other"}


def message_of(text: str, **members: Any) -> dict[str, Any]:
    return {"text": text, "origin": {"kind": "user"}, **members}


@pytest.mark.rule("V142", "V411", "V415")
async def test_a_message_names_the_model_of_its_turn_alone(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "chooser") as client,
        mirroring(url, key, "looker", version=V0_9) as looker,
        watching(server, key, "old") as old,
    ):
        uri, chat = await client.create("mate")
        for channel in (uri, chat):
            await looker.subscribe(channel)
        await old.subscribe(uri)
        used = []

        async def says(**members: Any) -> dict[str, Any]:
            text = model.script([steps.text("aye")])
            turn = await client.turn_ended(chat, await client.start(chat, text, message=message_of(text, **members)))
            await looker.turn_ended(chat, turn["id"])
            used.append(model.requests_of(text)[0].body["model"])
            return dict(turn["message"])

        assert (await says(model=OTHER))["model"] == OTHER
        assert "model" not in await says()
        assert used == ["gpt-other", "gpt-test"]
        before = (await old.check(uri))["summary"]["model"]
        assert before == {"id": "gpt-test"}
        # The session's model is that of AHP 0.1 and of applications, as before.
        change = {"type": "session/modelChanged", "session": uri, "model": OTHER}
        await old.echo(await old.dispatch(change), 60)
        assert "model" not in await says()
        assert (await says(model={"id": "gpt-test"}))["model"] == {"id": "gpt-test"}
        assert used[2:] == ["gpt-other", "gpt-test"]
        assert (await old.check(uri))["summary"]["model"] == OTHER
        assert [each["action"]["type"] for each in old.seen].count("session/modelChanged") == 1
        # Turns of others name the model that they use.
        words = model.script([steps.text("aye")])
        turn = {"type": "session/turnStarted", "session": uri, "turnId": "old", "userMessage": {"text": words}}
        await old.dispatch(turn)
        assert (await client.turn_ended(chat, "old"))["message"] == message_of(words, model=OTHER)
        await looker.turn_ended(chat, "old")
        assert model.requests_of(words)[0].body["model"] == "gpt-other"
        for each in (client, looker):
            await each.until(lambda each=each: each.state(uri)["chats"][0]["status"] & 31 == 1)  # type: ignore[misc]
            await each.check(uri)
            await each.check(chat)
        assert (await old.check(uri))["turns"][0]["userMessage"].keys() == {"text"}


@pytest.mark.rule("V142", "V154")
async def test_an_applications_turn_uses_its_sessions_model(server: Server, model: ModelServer, alice: Application) -> None:
    public_id = alice.create({"name": "mate"})
    uri = f"ahp-session:/{public_id}"
    async with mirroring(url_of(server), server.keys.alice, "beside") as client:
        await client.subscribe(uri)
        await client.subscribe(chat_uri(uri))
        text = model.script([steps.text("aye")])
        turn = await client.start(chat_uri(uri), text, message=message_of(text, model=OTHER))
        await client.turn_ended(chat_uri(uri), turn)
        assert alice.session(public_id)["agent"].get("options", {}).get("model") in (None, "gpt-test")
        chosen: dict[str, Any] = {"agent": {"name": "mate", "options": OPTIONS}}
        nothing: dict[str, Any] = {}
        for agent, expected in (nothing, "gpt-test"), (chosen, "gpt-other"), (nothing, "gpt-other"):
            words = model.script([steps.text("aye")])
            outcome = await asyncio.to_thread(alice.turn, public_id, words, **agent)
            assert outcome.text == "aye"
            shown = (await client.turn_ended(chat_uri(uri), outcome.turn_id))["message"]
            assert shown == message_of(words, model={"id": expected})
            assert model.requests_of(words)[0].body["model"] == expected
        await client.check(chat_uri(uri))


@pytest.mark.rule("V142", "V210", "V211", "V411")
async def test_a_queued_message_keeps_its_model_until_its_turn(server: Server, model: ModelServer) -> None:
    async with mirroring(url_of(server), server.keys.alice, "queues") as client:
        uri, chat = await client.create("mate")
        slow = model.script([steps.text("one"), steps.gate("later"), steps.text("two")])
        first, second = model.script([steps.text("a")]), model.script([steps.text("b")])
        await client.start(chat, slow)
        named = message_of(first, model=OTHER)
        await client.act(chat, "chat/pendingMessageSet", kind="queued", id="q1", message=named)
        await client.act(chat, "chat/pendingMessageSet", kind="queued", id="q2", message=message_of(second))
        assert (await client.check(chat))["queuedMessages"][0]["message"] == named
        model.open_gate("later")
        await client.until(lambda: len(client.state(chat)["turns"]) == 3, 60)
        shown = [each["message"] for each in client.state(chat)["turns"][1:]]
        assert shown == [named, message_of(second, model={"id": "gpt-test"})]
        assert [model.requests_of(each)[0].body["model"] for each in (first, second)] == ["gpt-other", "gpt-test"]
        await client.until(lambda: client.state(uri)["chats"][0]["status"] & 31 == 1)
        await client.check(chat)


async def hoist(clients: tuple[Mirror, ...], uri: str) -> None:
    for client in clients:
        await client.act(uri, "session/activeClientSet", activeClient={"clientId": client.client_id, "tools": [SIGNAL]})


async def complete(client: Mirror, chat: str, entry: dict[str, Any]) -> None:
    result = {"success": True, "pastTenseMessage": "Done"}
    call = entry["toolCall"]["toolCallId"]
    await client.act(chat, "chat/toolCallComplete", turnId=entry["turnId"], toolCallId=call, result=result)


@pytest.mark.rule("V185")
async def test_of_equal_tools_that_of_the_turns_starter_counts(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice

    def prompt() -> str:
        return model.script([steps.call("signal", {"flag": "Q"})], [steps.text("up")])

    async with (
        mirroring(url, key, "first") as first,
        mirroring(url, key, "second", version=V0_9) as second,
        mirroring(url, key, "third") as third,
    ):
        uri, chat = await first.create()
        for client in (second, third):
            await client.subscribe(uri)
            await client.subscribe(chat)
        await hoist((first, second), uri)
        # The third has no tool, so that of the first counts.
        for starter, owner in ((first, first), (second, second), (third, first)):
            turn = await starter.start(chat, prompt())
            entry = await owner.needed(uri, "toolClientExecution")
            assert (entry["clientId"], entry["toolCall"]["contributor"]["clientId"]) == (owner.client_id, owner.client_id)
            await complete(owner, chat, entry)
            await starter.turn_ended(chat, turn)
            await owner.until(lambda owner=owner: "inputNeeded" not in owner.state(uri))  # type: ignore[misc]
        # A queued message belongs to the client that sent it, whoever is there when its turn starts.
        await first.start(chat, prompt())
        entry = await first.needed(uri, "toolClientExecution")
        await second.act(chat, "chat/pendingMessageSet", kind="queued", id="q", message=message_of(prompt()))
        await complete(first, chat, entry)

        def queued() -> Any:
            return next((each for each in second.state(uri).get("inputNeeded", []) if each["turnId"] != entry["turnId"]), None)

        following = await second.until(queued, 60)
        assert following["clientId"] == "second"
        await complete(second, chat, following)
        await second.turn_ended(chat, following["turnId"])


@pytest.mark.rule("V185")
async def test_a_tool_of_the_server_or_an_application_comes_before_that_of_any_client(server: Server, alice: Application) -> None:
    application_tool = {"name": "signal", "description": "of the application", "parameters": {"type": "object"}}
    public_id = alice.create({"name": "pilot", "tools": [{"name": "tide_table"}]}, tools=[application_tool])
    uri = f"ahp-session:/{public_id}"
    async with mirroring(url_of(server), server.keys.alice, "hoister") as client:
        await client.subscribe(uri)
        for name in ("signal", "tide_table"):
            member = {"clientId": client.client_id, "tools": [{**SIGNAL, "name": name}]}
            assert name in await client.refused(uri, "session/activeClientSet", activeClient=member)
        assert client.state(uri)["activeClients"] == []
