"""AHP: processes that are killed or restarted, and clients that disconnect. Starts its own servers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sessions_app.ahp.client.client import Client, Disconnected
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e import server as servers
from tests.e2e.ahp_mirror import V0_9, V1_0, Mirror, mirroring
from tests.e2e.ahp_steps import (
    call_action,
    create_session,
    rejection_reason,
    run_turn,
    start_turn,
    text_of,
    wait_for_call,
    wait_for_end,
)
from tests.e2e.ahp_watcher import Watcher, url_of, watching, without_clock
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.paths import ROOT as CHECKOUT


def _running(shape: str, directory: Path, model: ModelServer, **environment: str) -> AbstractContextManager[Server]:
    webs = 2 if shape == "production" else 1
    return servers.running(shape, directory, model.url, webs=webs, environment=environment)


@pytest.fixture(scope="module", params=servers.shapes())
def _mortal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _model_server: ModelServer
) -> Iterator[Server]:
    with _running(request.param, tmp_path_factory.mktemp("mortal"), _model_server) as one:
        yield one


@pytest.fixture
def mortal(_mortal: Server, model: ModelServer) -> Server:
    """A server that a test may kill."""
    _mortal.restore()
    return _mortal


@pytest.fixture(params=servers.shapes())
def changing(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    """A server whose agents a test may change."""
    with _running(request.param, tmp_path, model) as one:
        yield one


@pytest.fixture(params=servers.shapes())
def impatient(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    """A server that gives clients a short grace."""
    with _running(request.param, tmp_path, model, AGENTHOST_AHP_GRACE_SECONDS="0.5") as one:
        yield one


@pytest.fixture(params=servers.shapes())
def pinging(request: pytest.FixtureRequest, tmp_path: Path, model: ModelServer) -> Iterator[Server]:
    """A server with short timeouts, but long enough for clients on a busy machine."""
    with _running(request.param, tmp_path, model, AGENTHOST_AHP_PING_SECONDS="8") as one:
        yield one


async def back_at(client: Client, server: Server, index: int) -> str:
    """Reconnected, wherever that is now."""
    client.url = url_of(server, index)
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.reconnect()
            except (OSError, Disconnected):
                await asyncio.sleep(0.05)


def _text(client: Client, uri: str) -> str:
    return text_of(client.state(uri).get("activeTurn", {"responseParts": []}))


@pytest.mark.rule("R384", "R280", "R281", "R67")
async def test_a_web_killed_in_the_middle_of_an_answer_loses_nothing(mortal: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text(*"abcdef"), steps.gate("killed"), steps.text(*"ghi")])
    elsewhere = len(mortal.webs) - 1
    async with watching(mortal, mortal.keys.alice, "one") as one:
        uri = await create_session(one)
        turn = await start_turn(one, uri, prompt)
        await one.until(lambda: _text(one, uri) == "abcdef")
        mortal.webs[0].kill()
        await one.ended()
        if mortal.shape == "embedded":
            await asyncio.to_thread(mortal.start_web, 0)
            await asyncio.to_thread(mortal.wait_ready)
        assert await back_at(one, mortal, elsewhere) == "replay"
        model.open_gate("killed")
        ended = await wait_for_end(one, uri, turn)
        if mortal.shape == "production":
            assert (ended["state"], text_of(ended)) == ("complete", "abcdefghi")
        else:
            # The worker was killed too, and text that was already sent cannot be generated again.
            assert (ended["state"], text_of(ended)) == ("error", "abcdef")
        await one.check(uri)
        await one.check(ROOT)


@pytest.mark.rule("R384", "R383", "R65")
async def test_clients_at_two_servers_and_runs_at_two_workers_see_the_same(mortal: Server, model: ModelServer) -> None:
    if mortal.shape == "production":
        await asyncio.to_thread(mortal.start_worker)
    async with (
        watching(mortal, mortal.keys.alice, "here") as here,
        watching(mortal, mortal.keys.alice, "there", index=len(mortal.webs) - 1) as there,
    ):
        uris = [await create_session(here) for _ in range(4)]
        for uri in uris:
            await there.subscribe(uri)
        prompts = [model.script([steps.text(*(f"{index}.{word} " for word in range(30)))]) for index in range(4)]
        turns = [
            await start_turn(client, uri, prompt)
            for client, uri, prompt in zip((here, there, here, there), uris, prompts, strict=True)
        ]
        for uri, turn in zip(uris, turns, strict=True):
            for client in (here, there):
                await wait_for_end(client, uri, turn)
                await client.check(uri)
            assert without_clock(here.state(uri)) == without_clock(there.state(uri))


@pytest.mark.rule("R384")
async def test_a_web_that_is_stopped_closes_with_1012_and_the_client_goes_on(mortal: Server, model: ModelServer) -> None:
    async with watching(mortal, mortal.keys.alice, "one") as one:
        uri = await create_session(one)
        await run_turn(one, uri, model.script([steps.text("before")]))
        mortal.webs[0].terminate()
        assert await one.ended() == 1012
        await asyncio.to_thread(mortal.webs[0].stop)
        if mortal.shape == "embedded":
            await asyncio.to_thread(mortal.start_web, 0)
            await asyncio.to_thread(mortal.wait_ready)
        assert await back_at(one, mortal, len(mortal.webs) - 1) == "replay"
        assert text_of(await run_turn(one, uri, model.script([steps.text("after")]))) == "after"
        await one.check(uri)


@pytest.mark.rule("R71", "R281", "R283")
async def test_other_agents_after_a_restart_reach_clients_that_come_back(changing: Server, model: ModelServer) -> None:
    file = changing.directory / "agents.toml"
    extra = '\n[[agents]]\nname = "extra"\nmodel = "demo:scripted"\n'
    async with (
        watching(changing, changing.keys.alice, "root") as root,
        watching(changing, changing.keys.alice, "session") as session,
    ):
        same, changed = await create_session(session), await create_session(session, "pilot")
        assert "units" in session.state(changed)["config"]["schema"]["properties"]
        await asyncio.to_thread(changing.stop)
        text = file.read_text()
        file.write_text(text.replace('options = ["metric", "imperial"]', 'options = ["metric", "imperial", "nautical"]') + extra)
        await asyncio.to_thread(changing.start)
        # Wherever they end up: another server has found out by now, or finds out when they come.
        assert await back_at(root, changing, len(changing.webs) - 1) == "replay"
        await root.until(lambda: "extra" in [each["provider"] for each in root.state(ROOT)["agents"]])
        await root.check(ROOT)
        assert await back_at(session, changing, 0) == "snapshot"
        units = session.state(changed)["config"]["schema"]["properties"]["units"]
        assert units["enum"] == ["metric", "imperial", "nautical"]
        for uri in (same, changed, ROOT):
            await session.check(uri)


@pytest.mark.rule("R163", "R149")
async def test_open_questions_survive_a_restart_of_all_processes(mortal: Server, model: ModelServer) -> None:
    ask = {"questions": [{"id": "port", "kind": "text", "message": "Where to?"}]}
    asking = model.script([steps.call("ask_user", ask)], [steps.text("sailed")])
    roping = model.script([steps.call("order_rope", {"metres": 4})], [steps.text("roped")])
    async with watching(mortal, mortal.keys.alice, "one") as one:
        form, call = await create_session(one, "mate"), await create_session(one, "pilot")
        turns = [await start_turn(one, form, asking), await start_turn(one, call, roping)]
        await one.until(lambda: one.state(form).get("inputRequests"), 60)
        rope = await wait_for_call(one, call, "order_rope", "pending-confirmation")
        # From the host, because the request is sent before the rest of its step.
        before = {uri: without_clock(await one.check(uri)) for uri in (form, call)}
        await asyncio.to_thread(mortal.kill)
        await asyncio.to_thread(mortal.start)
        await back_at(one, mortal, 0)
        assert {uri: without_clock(one.state(uri)) for uri in (form, call)} == before
        for uri in (form, call):
            await one.check(uri)
        request = one.state(form)["inputRequests"][0]["id"]
        answers = {"port": {"state": "submitted", "value": {"kind": "text", "value": "Bree"}}}
        completed = {"type": "session/inputCompleted", "session": form, "requestId": request, "response": "accept"}
        await one.dispatch({**completed, "answers": answers})
        await one.dispatch(
            call_action("toolCallConfirmed", call, turns[1], rope["toolCallId"], approved=True, confirmed="user-action")
        )
        assert text_of(await wait_for_end(one, form, turns[0])) == "sailed"
        assert text_of(await wait_for_end(one, call, turns[1])) == "roped"


@pytest.mark.rule("V1", "V21", "V24", "V54", "V56", "V300", "V303", "R384")
@pytest.mark.parametrize("of_each", [3, pytest.param(13, marks=pytest.mark.slow)])
async def test_clients_of_three_versions_fold_the_same_through_kills_of_all_processes(
    mortal: Server, model: ModelServer, of_each: int
) -> None:
    """In the middle of a text, and while a call waits for a person."""
    url, key = url_of(mortal), mortal.keys.alice
    streaming = model.script([steps.text(*"abcdef"), steps.gate("killed"), steps.text(*"ghi")])
    asking = model.script([steps.call("order_rope", {"metres": 4})], [steps.text("roped")])
    async with AsyncExitStack() as stack:
        talker = await stack.enter_async_context(mirroring(url, key, "talker"))
        uri, chat = await talker.create("pilot")
        newer: list[Mirror] = [talker]
        older: list[Watcher] = []
        for number in range(of_each):
            for version in (V0_9, V1_0):
                name = f"{number}-{version.offers[0]}"
                newer.append(await stack.enter_async_context(mirroring(url, key, name, version=version)))
                await asyncio.gather(newer[-1].subscribe(uri), newer[-1].subscribe(chat))
            older.append(await stack.enter_async_context(watching(mortal, key, f"{number}-old")))
            await older[-1].subscribe(uri)
        everybody: list[Client] = [*newer, *older]

        async def survive() -> None:
            await asyncio.to_thread(mortal.kill)
            await asyncio.gather(*(client.ended() for client in everybody))
            await asyncio.to_thread(mortal.start)
            came_back = await asyncio.gather(*(back_at(client, mortal, len(mortal.webs) - 1) for client in everybody))
            assert set(came_back) == {"replay"}

        async def settle(turn: str, state: str, activity: int) -> None:
            for mirror in newer:
                assert (await mirror.turn_ended(chat, turn))["state"] == state
                await mirror.until(lambda one=mirror: one.state(uri)["chats"][0]["status"] & 31 == activity)  # type: ignore[misc]
            for watcher in older:
                assert (await wait_for_end(watcher, uri, turn))["state"] == state

        turn = await talker.start(chat, streaming)
        for mirror in newer:
            await mirror.until(lambda one=mirror: text_of(one.state(chat).get("activeTurn", {"responseParts": []})) == "abcdef")  # type: ignore[misc]
        await survive()
        model.open_gate("killed")
        # Text that was already sent cannot be generated again.
        await settle(turn, "error", 2)
        turn = await talker.start(chat, asking)
        entries = await asyncio.gather(*(mirror.needed(uri, "toolConfirmation") for mirror in newer))
        await survive()
        confirm = {"turnId": turn, "toolCallId": entries[0]["toolCall"]["toolCallId"]}
        await newer[-1].act(chat, "chat/toolCallConfirmed", **confirm, approved=True, confirmed="user-action")
        await settle(turn, "complete", 1)
        for mirror in newer:
            assert "inputNeeded" not in mirror.state(uri)
            await mirror.check(uri)
            await mirror.check(chat)
        for watcher in older:
            await watcher.check(uri)


@pytest.mark.rule("R188", "R189", "R48")
async def test_an_active_client_that_goes_leaves_and_may_come_back_for_its_calls(mortal: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("hoisted")])
    tool = {"name": "signal", "description": "Hoists a flag"}
    entry = {"clientId": "owner", "tools": [tool]}
    async with watching(mortal, mortal.keys.alice, "stays") as stays, watching(mortal, mortal.keys.alice, "owner") as owner:
        uri = await create_session(owner, activeClient=entry)
        await stays.subscribe(uri)
        turn = await start_turn(stays, uri, prompt)
        call = await wait_for_call(owner, uri, "signal", "running")
        owner.cut()
        await stays.until(lambda: "activeClient" not in stays.state(uri), 60)
        claim = {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "stays", "tools": []}}
        assert await rejection_reason(stays, claim), "within the grace nobody else may"
        await stays.check(uri)
        assert await owner.reconnect() == "replay"
        await owner.echo(await owner.dispatch({**claim, "activeClient": entry}))
        result = {"success": True, "pastTenseMessage": "Hoisted", "content": [{"type": "text", "text": "up"}]}
        await owner.dispatch(call_action("toolCallComplete", uri, turn, call["toolCallId"], result=result))
        assert text_of(await wait_for_end(stays, uri, turn)) == "hoisted"
        await stays.check(uri)


@pytest.mark.rule("R190")
async def test_after_its_grace_a_clients_calls_fail_and_the_turn_goes_on(impatient: Server, model: ModelServer) -> None:
    own = impatient
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("never mind")])
    entry = {"clientId": "owner", "tools": [{"name": "signal", "description": "Hoists a flag"}]}
    async with watching(own, own.keys.alice, "stays") as stays, watching(own, own.keys.alice, "owner") as owner:
        uri = await create_session(owner, activeClient=entry)
        await stays.subscribe(uri)
        turn = await start_turn(stays, uri, prompt)
        await wait_for_call(owner, uri, "signal", "running")
        owner.cut()
        ended = await stays.until(lambda: stays.state(uri)["turns"], 90)
        call = ended[0]["responseParts"][0]["toolCall"]
        assert (ended[0]["id"], call["status"], call["success"]) == (turn, "completed", False)
        assert text_of(ended[0]) == "never mind"
        await stays.check(uri)


@pytest.mark.rule("R5")
async def test_a_client_that_answers_no_pings_is_dropped(pinging: Server) -> None:
    own = pinging
    async with watching(own, own.keys.alice, "alive") as alive:
        reader, writer = await asyncio.open_connection("127.0.0.1", own.ports[0])
        head = [
            "GET /ahp HTTP/1.1",
            "Host: x",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
            f"Authorization: Bearer {own.keys.alice}",
        ]
        writer.write("\r\n".join([*head, "", ""]).encode())
        async with asyncio.timeout(120):
            assert b"101" in await reader.readuntil(b"\r\n\r\n")
            await reader.read()  # Until the server ends it.
        writer.close()
        await alive.request("ping")
        assert "websocket_ping_timeout: no pong for 8.0 s, connection dropped" in own.log_text()


# --- the transcript in a terminal ---


def _tail(server: Server, uri: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "manage.py", "ahp_tail", url_of(server), uri, *options]
    environment = {**os.environ, **server.environment, "AGENTHOST_KEY": server.keys.alice, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, env=environment, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    read: list[str] = []
    for line in process.stdout:
        read.append(line)
        if words in line:
            return "".join(read)
    raise AssertionError(f"{words!r} was not printed: {''.join(read)}")


@pytest.mark.slow
async def test_a_session_is_printed_live_in_a_terminal(mortal: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("tide is \x1b[2J"), steps.call("tide_table", {"harbour": "Bree"})], [steps.text("high")])
    async with watching(mortal, mortal.keys.alice, "one") as one:
        uri = await create_session(one, "pilot", config={"approval": "auto"})
        await run_turn(one, uri, model.script([steps.text("earlier")]))
        with _tail(mortal, uri) as tail:
            printed = await asyncio.to_thread(_until, tail, "-- complete")
            assert "earlier" in printed
            await run_turn(one, uri, prompt)
            printed = await asyncio.to_thread(_until, tail, "-- complete")
            assert "high 06:12" in printed
            assert "\x1b" not in printed
            await one.request("disposeSession", {"session": uri})
            await asyncio.to_thread(_until, tail, "deleted")
            assert await asyncio.to_thread(tail.wait, 30) == 0
        missing: Any = await asyncio.to_thread(_tail(mortal, uri).communicate)
        assert "no such session" in missing[0].lower()
