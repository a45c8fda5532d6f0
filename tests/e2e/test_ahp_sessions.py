"""AHP 0.1: attachments, customizations, providers, notifications, and sessions with a seed from AAP."""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions.v0_1.wire.state import ROOT
from tests.e2e.ahp_steps import (
    call_action,
    create_session,
    new_uri,
    rejection_reason,
    run_turn,
    start_action,
    start_turn,
    text_of,
    wait_for_call,
    wait_for_end,
)
from tests.e2e.ahp_watcher import Watcher, url_of, watching
from tests.e2e.client import Client as Application
from tests.e2e.client import user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.fakes.pictures import PIXEL


async def _say(client: Watcher, action: dict[str, Any]) -> None:
    echo = await client.echo(await client.dispatch(action))
    assert "rejectionReason" not in echo, echo


def _answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.mark.rule("R111", "R110", "R30", "R26")
async def test_the_uri_scheme_names_the_default_provider(server: Server) -> None:
    async with watching(server, server.keys.alice) as client, watching(server, server.keys.echo_only, "narrow") as narrow:
        uri = new_uri("pilot")
        await client.request("createSession", {"session": uri, "unknown": {"member": 1}})
        assert (await client.subscribe(uri))["summary"]["provider"] == "pilot"
        for params, code in (
            ({"session": new_uri("nobody")}, -32002),
            ({"session": new_uri(), "provider": "nobody"}, -32002),
            ({"session": new_uri(), "provider": "echo", "model": {"id": "none"}}, -32602),
            ({"session": new_uri("pilot"), "config": {"units": "cubits"}}, -32602),
            ({"session": new_uri("pilot"), "config": {"nothing": "x"}}, -32602),
            ({"session": new_uri(), "activeClient": {"clientId": "another", "tools": []}}, -32602),
        ):
            with pytest.raises(RPCError) as wrong:
                await client.request("createSession", params)
            assert wrong.value.code == code, params
        # A key that may use one agent alone needs no scheme for it.
        only = f"any-{secrets.token_hex(4)}:/x"
        await narrow.request("createSession", {"session": only})
        assert (await narrow.subscribe(only))["summary"]["provider"] == "echo"
        with pytest.raises(RPCError) as hidden:
            await narrow.request("createSession", {"session": new_uri("pilot"), "provider": "pilot"})
        assert hidden.value.code == -32002


@pytest.mark.rule("R110", "R114", "R118", "R221")
async def test_the_folder_that_a_client_works_in_is_shown_wherever_its_session_is(server: Server, model: ModelServer) -> None:
    folder = "file:///harbour/my%20logs"
    async with watching(server, server.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0]) as client:
        uri, plain = await create_session(client, workingDirectory=folder), await create_session(client)
        assert client.state(uri)["summary"]["workingDirectory"] == folder
        assert "workingDirectory" not in client.state(plain)["summary"]
        await client.until(lambda: [each for each in client.heard if each.get("summary", {}).get("workingDirectory") == folder])
        items = {each["resource"]: each for each in (await client.request("listSessions", {}))["items"]}
        assert items[uri] == client.state(uri)["summary"]
        turn = await run_turn(client, uri, model.script([steps.text("one")]))
        fork = {"session": uri, "turnId": turn["id"]}
        same, other = (
            await create_session(client, fork=fork),
            await create_session(client, fork=fork, workingDirectory="file:///tmp"),
        )
        assert [client.state(each)["summary"]["workingDirectory"] for each in (same, other)] == [folder, "file:///tmp"]
        for wrong in ("my logs", "file:/" + "x" * 5000, ""):
            with pytest.raises(RPCError) as refusal:
                await client.request("createSession", {"session": new_uri(), "provider": "echo", "workingDirectory": wrong})
            assert refusal.value.code == -32602


@pytest.mark.rule("R154", "R243", "R36", "R140")
async def test_attachments_reach_the_model_and_stay_as_they_were_sent(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("seen")])
    picture = PIXEL.rpartition(",")[2]
    notes = base64.b64encode(b"one\ntwo\nthree").decode()
    attachments: list[dict[str, Any]] = [
        {"type": "simple", "label": "berth", "modelRepresentation": "Berth 7 is free.", "_meta": {"from": {"a": [1.0, None]}}},
        {"type": "embeddedResource", "label": "chart", "data": picture, "contentType": "image/png"},
        {
            "type": "embeddedResource",
            "label": "notes",
            "data": notes,
            "contentType": "text/plain",
            "selection": {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 3}}},
        },
        {"type": "resource", "label": "log", "uri": "file:///log.txt", "displayKind": "document"},
    ]
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client)
        action = start_action(uri, prompt)
        action["userMessage"]["attachments"] = attachments
        await _say(client, action)
        ended = await wait_for_end(client, uri, action["turnId"])
        assert ended["userMessage"] == {"text": prompt, "attachments": attachments}
        await client.check(uri)
        sent = next(str(request.messages[-1]["content"]) for request in model.requests if prompt in str(request.messages))
        assert "Berth 7 is free." in sent
        assert picture in sent
        assert "two" in sent
        assert "three" not in sent
        broken = start_action(uri, "x")
        broken["userMessage"]["attachments"] = [{**attachments[1], "data": "***"}]
        assert await rejection_reason(client, broken)
        assert await rejection_reason(client, start_action(uri, "   "))


@pytest.mark.rule("R182", "R240", "R241", "R242")
async def test_customizations_of_the_active_client_are_adopted_switched_and_let_go(server: Server) -> None:
    chart = {"uri": "file:///charts", "displayName": "Charts"}
    async with watching(server, server.keys.alice, "owner") as owner:
        uri = await create_session(owner, "pilot")
        claim = {"clientId": "owner", "tools": [{"name": "tide_table"}], "customizations": [chart]}
        change = {"type": "session/activeClientChanged", "session": uri, "activeClient": claim}
        assert await rejection_reason(owner, change), "a tool of the host has this name"
        await _say(owner, {**change, "activeClient": {**claim, "tools": []}})
        await owner.until(lambda: owner.state(uri)["customizations"])
        entry = owner.state(uri)["customizations"][0]
        assert (entry["customization"], entry["clientId"]) == (chart, "owner")
        toggle = {"type": "session/customizationToggled", "session": uri, "uri": chart["uri"], "enabled": False}
        await _say(owner, toggle)
        assert owner.state(uri)["customizations"][0]["enabled"] is False
        assert await rejection_reason(owner, {**toggle, "uri": "file:///other"})
        await owner.check(uri)
        await _say(owner, {**change, "activeClient": None})
        await owner.until(lambda: not owner.state(uri)["customizations"])
        await owner.check(uri)


@pytest.mark.rule("R142", "R172", "R168", "R160")
async def test_parts_stand_in_the_order_of_the_stream_and_results_keep_their_blocks(server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [steps.text("first"), steps.thinking("hm"), steps.text("second"), steps.call("signal", {}, pieces=2)],
        [steps.text("third")],
    )
    content = [
        {"type": "text", "text": "up"},
        {"type": "resource", "uri": "https://example.org/flag.png", "contentType": "image/png"},
        {"type": "embeddedResource", "data": "AAAA", "contentType": "application/x-flag"},
    ]
    async with watching(server, server.keys.alice, "owner") as owner:
        tool = {"name": "signal", "inputSchema": {"type": "object", "additionalProperties": False}}
        uri = await create_session(owner, activeClient={"clientId": "owner", "tools": [tool]})
        turn = await start_turn(owner, uri, prompt)
        call = await wait_for_call(owner, uri, "signal", "running")
        result = {"success": True, "pastTenseMessage": {"markdown": "**up**"}, "content": content, "structuredContent": {"a": 1}}
        await _say(owner, call_action("toolCallContentChanged", uri, turn, call["toolCallId"], content=content[:1]))
        await owner.check(uri)
        await _say(owner, call_action("toolCallComplete", uri, turn, call["toolCallId"], result=result))
        ended = await wait_for_end(owner, uri, turn)
        kinds = [part["kind"] for part in ended["responseParts"]]
        assert kinds == ["markdown", "reasoning", "markdown", "toolCall", "markdown"]
        done = ended["responseParts"][3]["toolCall"]
        assert {name: done[name] for name in result} == result
        await owner.check(uri)


@pytest.mark.rule("R260", "R261", "R287", "R83")
async def test_notifications_are_not_replayed_and_a_rejection_only_to_its_client(server: Server) -> None:
    key = server.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0]
    async with watching(server, key, "one") as one, watching(server, key, "two") as two:
        uri = await create_session(one)
        await two.subscribe(uri)
        await two.until(lambda: two.heard)
        for client in (one, two):
            client.cut()
            with pytest.raises(Exception, match="has ended"):
                await client.until(lambda: False)
            client.heard.clear()
        # Rejected while no client listens on that connection any more.
        lost = Watcher(url_of(server), key, "one")
        await lost.open()
        await lost.initialize()
        await lost.dispatch({"type": "session/ready", "session": uri})
        await lost.request("listSessions", {})
        await lost.close()
        assert [await client.reconnect() for client in (one, two)] == ["replay", "replay"]
        await one.request("listSessions", {})
        assert [each["rejectionReason"] != "" for each in one.seen if "rejectionReason" in each] == [True]
        assert not [each for each in two.seen if "rejectionReason" in each]
        assert one.heard == two.heard == []


@pytest.mark.rule("R41", "R46", "R49", "R350", "R35")
async def test_members_that_this_host_does_not_use_are_left_out(server: Server) -> None:
    client = Watcher(url_of(server), server.keys.alice, "polite")
    await client.open()
    for wrong in (
        {},
        {"protocolVersions": "0.1.0", "clientId": "x"},
        {"protocolVersions": ["0.1.0"], "clientId": 5},
        {"protocolVersions": ["0.1.0"], "clientId": "x", "initialSubscriptions": "root"},
    ):
        with pytest.raises(RPCError) as bad:
            await client.request("initialize", wrong)
        assert bad.value.code == -32602
    params = {"protocolVersions": ["0.1.0"], "clientId": "polite", "locale": "de-CH", "initialSubscriptions": [ROOT]}
    result = await client.request("initialize", params)
    assert set(result) == {"protocolVersion", "serverSeq", "snapshots", "defaultDirectory"}
    root = client.state(ROOT)
    assert "config" not in root
    assert not any("protectedResources" in agent for agent in root["agents"])
    await client.close()


@pytest.mark.rule("R118", "R262", "R263")
async def test_lists_begin_with_what_changed_last_and_end_with_what_is_archived(server: Server, model: ModelServer) -> None:
    key = server.make_keys(f"t{secrets.token_hex(4)}/all/*/")[0]
    async with watching(server, key, "one") as one, watching(server, key, "two") as two:
        uris = [await create_session(one) for _ in range(4)]
        await _say(one, {"type": "session/isArchivedChanged", "session": uris[3], "isArchived": True})
        await run_turn(one, uris[1], model.script([steps.text("x")]))
        items = (await two.request("listSessions", {}))["items"]
        assert [item["resource"] for item in items] == [uris[1], uris[2], uris[0], uris[3]]

        def told_of_turn() -> bool:
            changes = [each["changes"] for each in two.heard if each.get("session") == uris[1] and "changes" in each]
            merged = {name: value for each in changes for name, value in each.items()}
            return bool(merged.get("title")) and "modifiedAt" in merged

        await two.until(told_of_turn)
        known: set[str] = set()
        for each in two.heard:
            if each["type"] == "notify/sessionAdded":
                known.add(each["summary"]["resource"])
            else:
                assert each["session"] in known
                assert not {"resource", "provider", "createdAt"} & set(each.get("changes", {}))


@pytest.mark.rule("R387", "R73", "R119")
async def test_a_seed_of_the_other_protocol_is_turns_here(server: Server, model: ModelServer) -> None:
    app = Application(server.origin(), server.keys.alice)
    seed = [
        user("ahoy"),
        {"role": "assistant", "content": "ahoy yourself"},
        user("and"),
        {"role": "assistant", "content": "yes?"},
    ]
    session = await asyncio.to_thread(lambda: app.create(messages=seed))
    async with watching(server, server.keys.alice) as client:
        uri = f"echo:/{session}"
        await client.subscribe(uri)
        assert [(turn["userMessage"]["text"], text_of(turn)) for turn in client.state(uri)["turns"]] == [
            ("ahoy", "ahoy yourself"),
            ("and", "yes?"),
        ]
        await run_turn(client, uri, model.script([steps.text("later")]))
        await client.check(uri)
        page = await client.request("fetchTurns", {"session": uri, "limit": 2})
        assert [text_of(turn) for turn in page["turns"]] == ["yes?", "later"]
        rest = await client.request("fetchTurns", {"session": uri, "before": page["turns"][0]["id"]})
        assert ([text_of(turn) for turn in rest["turns"]], rest["hasMore"]) == (["ahoy yourself"], False)
    app.close()
