"""AHP 0.9 and 1.0: conversations that are attached to messages, and how other protocols show them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from sessions_app.core.sessions import transcripts
from tests.e2e.ahp_mirror import V0_9, Mirror, chat_uri, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.client import Client as Application
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

BAD = "there is no such chat"


def message_of(text: str, *chats: str, **members: Any) -> dict[str, Any]:
    attached = [{"type": "chat", "label": f"chat {number}", "resource": uri, **members} for number, uri in enumerate(chats, 1)]
    return {"text": text, "origin": {"kind": "user"}, "attachments": attached}


_texts = itertools.count(1)


async def talk(client: Mirror, model: ModelServer, chat: str, answer: str) -> tuple[str, str]:
    """A turn in which the model says this; returns its id and what the user wrote."""
    text = model.script([steps.text(answer)])
    turn = await client.start(chat, text)
    await client.turn_ended(chat, turn)
    return turn, text


def expecting(model: ModelServer, *further: str, answer: str = "ok") -> str:
    """A user's text that the model answers if it gets these further texts with it."""
    text = f"text {next(_texts)}"
    model.script([steps.text(answer)], name=text + "".join(further))
    return text


async def answered(client: Mirror, chat: str, text: str, *chats: str) -> str:
    """Start a turn with these chats attached; the model got what was expected if it answers."""
    turn = await client.start(chat, text, message=message_of(text, *chats))
    ended = await client.turn_ended(chat, turn)
    assert ended["state"] == "complete", ended
    return turn


@pytest.mark.rule("V150", "V141", "V93", "V56")
async def test_the_model_gets_the_transcript_and_other_protocols_show_the_message(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "reader") as client,
        mirroring(url, key, "looker", version=V0_9) as looker,
        watching(server, key, "old") as old,
    ):
        _, source_chat = await client.create()
        notes = {"type": "simple", "label": "notes", "modelRepresentation": " only for that chat's model"}
        first = expecting(model, notes["modelRepresentation"], answer="Low tide at six.")
        begun = await client.start(source_chat, first, message={**message_of(first), "attachments": [notes]})
        assert (await client.turn_ended(source_chat, begun))["state"] == "complete"
        uri, chat = await client.create()
        await looker.subscribe(uri)
        await looker.subscribe(chat)
        await old.subscribe(uri)
        transcript = f"Conversation chat 1:\nUser: {first} [Attachment notes]\nAssistant: Low tide at six."
        text = expecting(model, transcript, answer="I see.")
        turn = await answered(client, chat, text, source_chat)
        shown = (await looker.turn_ended(chat, turn))["message"]
        assert shown == message_of(text, source_chat)
        for each in (client, looker):
            await each.until(lambda each=each: each.state(uri)["chats"][0]["status"] & 31 == 1)  # type: ignore[misc]
            await each.check(chat)
        # AHP 0.1 has no such attachment, so it shows the name.
        await old.until(lambda: len(old.state(uri)["turns"]) == 1, 60)
        before = old.state(uri)["turns"][0]["userMessage"]
        assert before == {"text": text, "attachments": [{"type": "simple", "label": "chat 1"}]}
        assert (await old.check(uri))["turns"][0]["userMessage"] == before
        # What this conversation had attached is not expanded again, and one conversation may refer to itself.
        again = expecting(model, f"Conversation chat 1:\nUser: {text} [Attachment chat 1]\nAssistant: I see.")
        await answered(client, chat, again, chat)


@pytest.mark.rule("V150")
async def test_a_history_over_aap_has_the_transcript(server: Server, model: ModelServer, alice: Application) -> None:
    public_id, other = alice.create(), alice.create({"name": "pilot", "tools": [{"name": "tide_table", "trust": True}]})
    asked = model.script([steps.call("tide_table", {"harbour": "Bree"})], [steps.text("Six metres.")])
    result = (await asyncio.to_thread(alice.turn, other, asked)).results.popitem()[1]
    called = f'[Call: tide_table({{"harbour": "Bree"}})]\n[Result: {result}]'
    transcript = f"Conversation chat 1:\nUser: {asked}\n{called}\nAssistant: Six metres."
    text = expecting(model, transcript)
    uri = f"ahp-session:/{public_id}"
    async with mirroring(url_of(server), server.keys.alice, "reader") as client:
        await client.subscribe(uri)
        await client.subscribe(chat_uri(uri))
        # By any spelling of the chat.
        await answered(client, chat_uri(uri), text, f"ahp-chat:/{other}")
    sent = await asyncio.to_thread(alice.history, public_id)
    assert sent[0]["content"] == [{"type": "text", "text": text}, {"type": "text", "text": transcript}]


@pytest.mark.rule("V150", "V92", "V94")
async def test_what_cannot_be_attached_is_rejected_alike(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "all") as all_,
        mirroring(url, server.keys.echo_only, "limited") as limited,
        mirroring(url, server.keys.bob, "bob") as bob,
    ):
        hidden, hidden_chat = await all_.create("pilot")
        await talk(all_, model, hidden_chat, "secret")
        foreign, foreign_chat = await bob.create()
        await talk(bob, model, foreign_chat, "secret")
        uri, chat = await limited.create()

        async def reason(*chats: str, **members: Any) -> str:
            started = {"turnId": "refused", "startedAt": "2026-01-01T10:00:00Z", "message": message_of("hi", *chats, **members)}
            by_turn = await limited.refused(chat, "chat/turnStarted", **started)
            pending = {"kind": "queued", "id": "q", "message": started["message"]}
            assert await limited.refused(chat, "chat/pendingMessageSet", **pending) == by_turn
            return by_turn

        # Another agent's, another tenant's, nobody's, and what is no chat: one answer.
        nobody = chat_uri("ahp-session:/nobody")
        for resource in (hidden_chat, chat_uri(hidden), foreign_chat, foreign, nobody, uri, "ahp-root://", "x:/y"):
            assert await reason(resource) == f"message.attachments.0.resource: {BAD}", resource
        assert await reason(chat) == "message.attachments.0.resource: it has no completed turn"
        slow = model.script([steps.text("one"), steps.gate("held"), steps.text("two")])
        _, other_chat = await limited.create()
        ended, _ = await talk(limited, model, other_chat, "done")
        await limited.start(other_chat, slow)
        active = limited.state(other_chat)["activeTurn"]["id"]
        for turn in (active, "unknown", "", "\0"):
            assert "endTurn" in await reason(other_chat, endTurn=turn)
        assert "the limit is 4" in await reason(*[other_chat] * 2, hidden_chat, foreign_chat, nobody, chat)
        model.open_gate("held")
        await limited.until(lambda: "activeTurn" not in limited.state(other_chat), 60)
        # Cut turns are not retained.
        cut = limited.state(other_chat)["turns"][-1]["id"]
        await limited.act(other_chat, "chat/truncated", turnId=ended)
        assert "endTurn" in await reason(other_chat, endTurn=cut)
        assert limited.state(chat)["turns"] == []
        with_chat = {"initialMessage": message_of("hi", hidden_chat)}
        assert await limited.code_of("createChat", channel=uri, chat=chat, **with_chat) == -32602


@pytest.mark.rule("V150", "V211")
async def test_a_conversation_is_pinned_when_the_message_is_accepted(server: Server, model: ModelServer) -> None:
    async with mirroring(url_of(server), server.keys.alice, "pins") as client:
        source, source_chat = await client.create()
        first, one = await talk(client, model, source_chat, "The first answer.")
        _, two = await talk(client, model, source_chat, "The second answer.")
        _, chat = await client.create()
        slow = model.script([steps.text("one"), steps.gate("pinned"), steps.text("two")])
        await client.start(chat, slow)
        upto = f"Conversation chat 1:\nUser: {one}\nAssistant: The first answer."
        newest = f"{upto}\n\nUser: {two}\nAssistant: The second answer."
        pinned: list[tuple[str, dict[str, Any]]] = [(newest, {}), (upto, {"endTurn": first})]
        for number, (transcript, members) in enumerate(pinned):
            message = message_of(expecting(model, transcript), source_chat, **members)
            await client.act(chat, "chat/pendingMessageSet", kind="queued", id=f"q{number}", message=message)
        # What comes later is not part of it, and not even its end changes it.
        await talk(client, model, source_chat, "The third answer.")
        await client.request("disposeSession", {"channel": source})
        model.open_gate("pinned")
        await client.until(lambda: len(client.state(chat)["turns"]) == 3, 60)
        assert [each["state"] for each in client.state(chat)["turns"]] == ["complete"] * 3
        await client.check(chat)


@pytest.mark.rule("V150")
async def test_a_long_conversation_is_cut_at_its_beginning(server: Server, model: ModelServer) -> None:
    async with mirroring(url_of(server), server.keys.alice, "long") as client:
        _, source_chat = await client.create()
        _, chat = await client.create()
        half, told = transcripts.LONGEST // 2, ""
        _, old = await talk(client, model, source_chat, "old")
        for letter in "xy":
            _, text = await talk(client, model, source_chat, letter * (half - 100))
            told += f"\n\nUser: {text}\nAssistant: {letter * (half - 100)}"
        begun = f"Conversation chat 1:\nUser: {old}\nAssistant: old"
        await answered(client, chat, expecting(model, begun + told), source_chat)
        # Another turn is too much: the first ones give way. One that is too long alone keeps its end.
        _, text = await talk(client, model, source_chat, "new" * 30)
        newest = f"User: {text}\nAssistant: {'new' * 30}"
        left_out = "Conversation chat 1:\n[Earlier turns are left out]"
        await answered(client, chat, expecting(model, f"{left_out}{told}\n\n{newest}"), source_chat)
        await talk(client, model, source_chat, "z" * (transcripts.LONGEST + 100))
        await answered(client, chat, expecting(model, f"{left_out}\n\n{'z' * transcripts.LONGEST}"), source_chat)
