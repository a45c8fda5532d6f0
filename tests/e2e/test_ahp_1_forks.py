"""AHP 0.9 and 1.0: the fork that a client of 0.1 makes."""

from __future__ import annotations

import pytest

from tests.e2e.ahp_mirror import V0_9, chat_uri, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.server import Server
from tests.e2e.test_ahp_steering import QUESTIONS
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


@pytest.mark.rule("V102", "V192", "V416")
async def test_a_forks_chat_begins_with_the_copied_turns(server: Server, model: ModelServer) -> None:
    url, key = url_of(server), server.keys.alice
    async with (
        mirroring(url, key, "one") as one,
        mirroring(url, key, "nine", version=V0_9) as nine,
        watching(server, key, "old") as old,
    ):
        uri, chat = await one.create("mate")
        answered = await one.start(chat, model.script([steps.call("ask_user", QUESTIONS)], [steps.text("aye")]))
        request = (await one.needed(uri, "chatInput"))["request"]["id"]
        await one.act(chat, "chat/inputCompleted", requestId=request, response="decline")
        await one.turn_ended(chat, answered)
        text = model.script([steps.call("ask_user", QUESTIONS)], [steps.text("never")])
        message = {"text": text, "origin": {"kind": "user"}, "model": {"id": "gpt-other"}}
        left = await one.start(chat, text, message=message, startedAt="2025-05-05T05:05:05.055Z")
        await one.until(lambda: "inputNeeded" in one.state(uri), 60)
        await one.act(chat, "chat/turnCancelled", turnId=left, duration=1234)
        later = model.script([steps.text("later")])
        await one.turn_ended(chat, await one.start(chat, later))
        turns = one.state(chat)["turns"]
        await old.request(
            "createSession", {"session": "mate:/fork", "provider": "mate", "fork": {"session": uri, "turnId": left}}
        )
        for client in (one, nine):
            session = await client.subscribe("mate:/fork")
            state = await client.subscribe(session["defaultChat"])
            assert state["turns"] == turns[:2]
            assert [part["kind"] for part in state["turns"][1]["responseParts"]].count("inputRequest") == 1
            assert (state["turns"][1]["startedAt"], state["turns"][1]["duration"]) == ("2025-05-05T05:05:05.055Z", 1234)
            assert (state["modifiedAt"], state["status"]) == ("2025-05-05T05:05:06.289Z", 1)
            assert "origin" not in state
            assert "inputNeeded" not in session
        # The copy goes on by itself.
        copy = one.state("mate:/fork")["defaultChat"]
        assert copy != chat_uri(uri)
        await one.turn_ended(copy, await one.start(copy, model.script([steps.text("apart")])))
        assert len(one.state(chat)["turns"]) == 3
        await one.check(copy)
