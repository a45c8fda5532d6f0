"""A failed turn that a client of AHP 0.9 or 1.0 resumes, while clients of 0.1 and applications of AAP watch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sessions_app.ahp.client.version import ClientVersion
from tests.e2e import server as servers
from tests.e2e.ahp_mirror import V0_9, V1_0, Mirror, mirroring
from tests.e2e.ahp_watcher import url_of, watching
from tests.e2e.client import Client as Application
from tests.e2e.client_v1 import ClientV1
from tests.e2e.client_v2 import ClientV2
from tests.e2e.server import Server
from tests.e2e.test_ahp_1_turns import both, calls_of, check_all, text_of
from tests.e2e.test_ahp_process_kills import back_at
from tests.e2e.test_process_kills import revive
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.scripted_server import attempts
from tests.fakes.steps import Answer

AUTO: dict[str, Any] = {"config": {"approval": "auto"}}


def failing(model: ModelServer, harbour: str, *after: Answer) -> str:
    """A tool call; then the second step breaks in the middle, and these are the answers to the next requests."""
    broken = [steps.text("Half of "), steps.drop()]
    return model.script([steps.call("tide_table", {"harbour": harbour})], attempts(broken, *after))


async def fail(client: Mirror, chat: str, prompt: str) -> dict[str, Any]:
    turn = await client.turn_ended(chat, await client.start(chat, prompt))
    assert turn["responseParts"][-1]["resumable"] is True
    return turn


@pytest.mark.rule("V145", "V146", "V147", "V108", "V503", "V94")
@both
async def test_a_resumed_turn_goes_on_for_everybody_who_watches(
    server: Server, model: ModelServer, version: ClientVersion
) -> None:
    url, key = url_of(server), server.keys.alice
    applications = [kind(server.origin(), key) for kind in (Application, ClientV2, ClientV1)]
    app = applications[0]
    harbour = f"resumed {version.offers[0]}"
    prompt = failing(model, harbour, [steps.text("the "), steps.gate(harbour), steps.text("answer")])
    async with (
        mirroring(url, key, "owner", version=version) as owner,
        mirroring(url, key, "other", version=V0_9 if version is V1_0 else V1_0) as other,
        watching(server, key, "old") as old,
    ):
        uri, chat = await owner.create("pilot", **AUTO)
        for channel in (uri, chat):
            await other.subscribe(channel)
        failed = await fail(owner, chat, prompt)
        public = next(each["sessionId"] for each in await asyncio.to_thread(app.all_sessions))
        await old.subscribe(uri)
        await owner.act(uri, "session/isReadChanged", isRead=True)

        reading = await follow(app, public)
        await owner.act(chat, "chat/turnResume", turnId=failed["id"])
        # It is active again, with all its parts, and unread.
        await owner.until(lambda: text_of(owner.state(chat).get("activeTurn", failed)) == "Half of the ")
        active = owner.state(chat)["activeTurn"]
        assert active["responseParts"][: len(failed["responseParts"])] == failed["responseParts"]
        await owner.until(lambda: not owner.state(uri)["status"] & 32)
        await check_all(owner, other, channels=(uri, chat))
        assert await other.refused(chat, "chat/turnResume", turnId=failed["id"])
        # AHP 0.1 has no action for it: its client reconnects, and gets the turn as it is now.
        assert await old.ended() == 1012
        await old.open()
        assert await old.reconnect() == "snapshot"
        assert text_of(old.state(uri)["activeTurn"]) == "Half of the "
        model.open_gate(harbour)
        ended = await owner.turn_ended(chat, failed["id"])
        assert (ended["state"], text_of(ended), len(calls_of(ended))) == ("complete", "Half of the answer", 1)
        assert [part["kind"] for part in ended["responseParts"]] == ["toolCall", "markdown", "error", "markdown"]
        await other.turn_ended(chat, failed["id"])
        await old.until(lambda: "activeTurn" not in old.state(uri))
        assert old.state(uri)["turns"][-1]["state"] == "complete"
        assert await reading == ["turn_start", "text_delta", "text_delta", "turn_stop"]
        for each in applications:
            full, compacted = [await asyncio.to_thread(each.history, public, kind) for kind in ("full", "compacted")]
            assert [line["role"] for line in full] == ["user", "assistant", "tool", "assistant", "assistant"]
            assert compacted == [line for line in full if line["content"] != "Half of "]
        # Such a history is a valid beginning of another session, and the session itself goes on.
        seeded = await asyncio.to_thread(partial(app.create, "pilot", messages=full))
        for session in (seeded, public):
            outcome = await asyncio.to_thread(app.turn, session, model.script([steps.text("more")]))
            assert (outcome.stop, outcome.text) == ("end_turn", "more")
        assert await owner.refused(chat, "chat/turnResume", turnId=failed["id"])
        await owner.until(lambda: len(owner.state(chat)["turns"]) == 2)
        await owner.until(lambda: owner.state(uri)["chats"][0]["status"] & 31 == 1)
        await check_all(owner, other, channels=(uri, chat))
        await old.check(uri)
    for each in applications:
        each.close()
    assert server.tools.executions("tide_table", harbour=harbour) == 1


@pytest.fixture(scope="module", params=servers.shapes())
def mortal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    """A server whose worker a test kills."""
    directory = tmp_path_factory.mktemp("resuming")
    with servers.running(request.param, directory, _model_server.url, environment=servers.PATIENT) as one:
        yield one


async def killed_and_back(client: Mirror, mortal: Server) -> None:
    """The worker is killed; with it, in one process, the server."""
    await asyncio.to_thread(mortal.kill_workers)
    await asyncio.to_thread(revive, mortal)
    if mortal.shape == "embedded":
        await client.ended()
        await back_at(client, mortal, 0)


@pytest.mark.rule("V147")
async def test_a_worker_that_is_killed_in_a_resumed_run(mortal: Server, model: ModelServer) -> None:
    harbour = f"killed {mortal.shape}"
    silent, speaking = [steps.gate(f"{harbour} 1"), steps.text("never")], [steps.text("more"), steps.gate(f"{harbour} 2")]
    prompt = failing(model, harbour, silent, speaking, [steps.text(" and all")])
    async with mirroring(url_of(mortal), mortal.keys.alice, "owner") as owner:
        uri, chat = await owner.create("pilot", **AUTO)
        failed = await fail(owner, chat, prompt)
        await owner.act(chat, "chat/turnResume", turnId=failed["id"])
        await asyncio.to_thread(model.wait_gate, f"{harbour} 1")
        # Nothing was said yet: another worker asks the model again.
        await killed_and_back(owner, mortal)
        await owner.until(lambda: text_of(owner.state(chat).get("activeTurn", failed)) == "Half of more", 60)
        await check_all(owner, channels=(uri, chat))
        # Now a client has seen text: the turn ends, and can be resumed once more.
        await killed_and_back(owner, mortal)
        ended = await owner.turn_ended(chat, failed["id"])
        assert ended["responseParts"][-1]["error"]["errorType"] == "interrupted"
        await owner.act(chat, "chat/turnResume", turnId=failed["id"])
        assert text_of(await owner.turn_ended(chat, failed["id"])) == "Half of more and all"
        await owner.until(lambda: owner.state(uri)["chats"][0]["status"] & 31 == 1)
        await check_all(owner, channels=(uri, chat))
    assert mortal.tools.executions("tide_table", harbour=harbour) == 1


async def follow(app: Application, session: str) -> asyncio.Task[list[str]]:
    """The names of the events of the next run, for an application that follows the session; returns when it does."""
    followed, loop = asyncio.Event(), asyncio.get_running_loop()

    def read() -> list[str]:
        with app.join(session, follow=True) as stream:
            loop.call_soon_threadsafe(followed.set)
            stream.until("turn_stop")
            return [event.name for event in stream.seen]

    reading = asyncio.ensure_future(asyncio.to_thread(read))
    await followed.wait()
    return reading
