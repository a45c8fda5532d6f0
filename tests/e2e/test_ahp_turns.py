"""AHP 0.1: the lifecycle of a turn, as its client and others see it."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.ahp_steps import (
    call_action,
    call_of,
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
from tests.e2e.ahp_watcher import watching
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.embedded_too


@pytest.mark.rule("R112", "R114", "R173")
async def test_a_new_session_is_ready_and_empty(server: Server) -> None:
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "pilot")
        state = client.state(uri)
        assert state["lifecycle"] == "ready"
        assert state["turns"] == []
        assert "activeTurn" not in state
        assert (state["summary"]["resource"], state["summary"]["provider"]) == (uri, "pilot")
        assert state["summary"]["status"] == 1
        assert {tool["name"] for tool in state["serverTools"]} >= {"tide_table", "order_rope"}
        assert "whisper" not in {tool["name"] for tool in state["serverTools"]}
        await client.check(uri)


@pytest.mark.rule("R66", "R68", "R82", "R140", "R141", "R143", "R144", "R145", "R150")
async def test_a_turn_streams_to_everybody_and_is_echoed_to_its_client(server: Server, model: ModelServer) -> None:
    gate = "half way"
    prompt = model.script([steps.thinking("hm", "m"), steps.text("one ", "two "), steps.gate(gate), steps.text("three")])
    async with watching(server, server.keys.alice, "first") as first, watching(server, server.keys.alice, "second") as second:
        uri = await create_session(first)
        await second.subscribe(uri)
        turn = await start_turn(first, uri, prompt)
        assert first.mirrors[uri].ahead == []
        for client in (first, second):
            await client.until(lambda client=client: "two" in text_of(client.state(uri).get("activeTurn", {"responseParts": []})))  # type: ignore[misc]
            assert client.state(uri)["summary"]["status"] == 8
            await client.check(uri)
        model.open_gate(gate)
        for client in (first, second):
            ended = await wait_for_end(client, uri, turn)
            assert ended["state"] == "complete"
            assert text_of(ended) == "one two three"
            assert [part["kind"] for part in ended["responseParts"]] == ["reasoning", "markdown"]
            assert ended["responseParts"][0]["content"] == "hmm"
            assert ended["userMessage"] == {"text": prompt}
            assert ended["usage"]["inputTokens"] > 0
            assert client.state(uri)["summary"]["status"] == 1
            await client.check(uri)
        assert [each for each in first.seen if "origin" in each] == [each for each in second.seen if "origin" in each]


@pytest.mark.rule("R90", "R148")
async def test_a_second_turn_and_a_used_turn_id_are_rejected(server: Server, model: ModelServer) -> None:
    gate = "still there"
    prompt = model.script([steps.text("x"), steps.gate(gate), steps.text("y")])
    async with watching(server, server.keys.alice, "first") as first, watching(server, server.keys.alice, "second") as second:
        uri = await create_session(first)
        await second.subscribe(uri)
        turn = await start_turn(first, uri, prompt)
        assert "active" in await rejection_reason(second, start_action(uri, "more"))
        assert not any("rejectionReason" in each for each in first.seen)
        model.open_gate(gate)
        await wait_for_end(first, uri, turn)
        assert await rejection_reason(first, start_action(uri, "again", turn))
        assert await rejection_reason(first, start_action(uri, "none", ""))
        assert await rejection_reason(first, {"type": "session/turnStarted", "session": uri, "turnId": "x"})
        await first.check(uri)


@pytest.mark.rule("R81", "R83", "R85", "R86", "R234")
async def test_forbidden_actions_are_rejected_and_actions_for_unknown_sessions_are_ignored(server: Server) -> None:
    async with watching(server, server.keys.alice, "bold") as client:
        uri = await create_session(client)
        assert await rejection_reason(
            client, {"type": "session/delta", "session": uri, "turnId": "t", "partId": "p", "content": "x"}
        )
        assert await rejection_reason(client, {"type": "session/dance", "session": uri})
        assert await rejection_reason(client, {"type": "root/agentsChanged", "agents": []})
        assert await rejection_reason(client, {"type": "root/configChanged", "config": {}})
        assert await rejection_reason(client, {"type": "session/titleChanged", "session": uri, "title": 5})
        nowhere = await client.dispatch({"type": "session/titleChanged", "session": new_uri(), "title": "x"})
        await client.dispatch({"type": "terminal/input", "terminal": "term:/1", "data": "x"})
        await client.dispatch({"type": "session/titleChanged", "title": "x"})
        assert await client.echo(await client.dispatch({"type": "session/titleChanged", "session": uri, "title": "Named"}))
        assert client._echo_of(nowhere) is None
        assert client.state(uri)["summary"]["title"] == "Named"
        await client.check(uri)


@pytest.mark.rule("R146", "R90")
async def test_a_cancel_stops_the_turn_and_keeps_what_was_said(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("some"), steps.hang()])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client)
        turn = await start_turn(client, uri, prompt)
        await client.until(lambda: "some" in text_of(client.state(uri)["activeTurn"]))
        cancel = {"type": "session/turnCancelled", "session": uri, "turnId": turn}
        assert await rejection_reason(client, {**cancel, "turnId": "another"})
        echo = await client.echo(await client.dispatch(cancel))
        assert echo["action"] == cancel
        ended = await wait_for_end(client, uri, turn)
        assert (ended["state"], text_of(ended)) == ("cancelled", "some")
        assert await rejection_reason(client, cancel)
        after = await run_turn(client, uri, model.script([steps.text("next")]))
        assert text_of(after) == "next"
        await client.check(uri)


@pytest.mark.rule("R147", "R150")
async def test_a_failed_model_ends_the_turn_with_an_error_and_the_session_goes_on(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("half"), steps.drop()])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client)
        ended = await run_turn(client, uri, prompt)
        assert (ended["state"], ended["error"]["errorType"]) == ("error", "provider_failed")
        assert text_of(ended) == "half"
        assert client.state(uri)["summary"]["status"] == 2
        await client.check(uri)
        await run_turn(client, uri, model.script([steps.text("well")]))
        assert client.state(uri)["summary"]["status"] == 1
        await client.check(uri)


@pytest.mark.rule("R147")
async def test_a_client_learns_that_its_own_provider_key_is_refused(server: Server, model: ModelServer) -> None:
    refusal = model.script([steps.status(401, message="Incorrect API key: sk-typo", code="invalid_api_key")])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "pilot", config={"model_key": "sk-typo"})
        ended = await run_turn(client, uri, refusal)
        message = "The model's provider refused this session's own key."
        assert ended["error"] == {"errorType": "provider_key_refused", "message": message}
        await client.check(uri)
        theirs = await create_session(client, "pilot")
        assert (await run_turn(client, theirs, refusal))["error"]["errorType"] == "provider_failed"


# --- tool calls ---


@pytest.mark.rule("R160", "R161", "R162", "R163", "R164", "R167", "R150")
async def test_a_tool_asks_runs_when_approved_and_its_result_is_shown(server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [steps.text("let me see"), steps.call("tide_table", {"harbour": "Bree"}, pieces=3)], [steps.text("done")]
    )
    async with watching(server, server.keys.alice, "asker") as asker, watching(server, server.keys.alice, "other") as other:
        uri = await create_session(asker, "pilot")
        await other.subscribe(uri)
        turn = await start_turn(asker, uri, prompt)
        call = await wait_for_call(other, uri, "tide_table", "pending-confirmation")
        assert other.state(uri)["summary"]["status"] == 24
        assert call["toolInput"] == '{"harbour": "Bree"}'
        assert call["options"]
        await other.check(uri)
        confirm = call_action("toolCallConfirmed", uri, turn, call["toolCallId"], approved=True, confirmed="user-action")
        await other.echo(await other.dispatch(confirm))
        assert await rejection_reason(asker, confirm)
        for client in (asker, other):
            ended = await wait_for_end(client, uri, turn)
            done = next(part["toolCall"] for part in ended["responseParts"] if part["kind"] == "toolCall")
            assert (done["status"], done["success"], done["confirmed"]) == ("completed", True, "user-action")
            assert done["content"] == [{"type": "text", "text": "high 06:12, low 12:31 in Bree"}]
            assert text_of(ended) == "let me seedone"
            await client.check(uri)


@pytest.mark.rule("R164", "R165", "R166", "R170", "R174")
async def test_calls_are_edited_denied_and_approved_for_good(server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.call("tide_table", {"harbour": "Bree"}),
            steps.call("order_rope", {"metres": 2}),
        ],
        [steps.call("tide_table", {"harbour": "Dunwich"})],
        [steps.text("done")],
    )
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "pilot")
        turn = await start_turn(client, uri, prompt)
        tide = await wait_for_call(client, uri, "tide_table", "pending-confirmation")
        rope = await wait_for_call(client, uri, "order_rope", "pending-confirmation")
        wrong = call_action(
            "toolCallConfirmed", uri, turn, tide["toolCallId"], approved=True, confirmed="user-action", selectedOptionId="no such"
        )
        assert await rejection_reason(client, wrong)
        denial = call_action(
            "toolCallConfirmed",
            uri,
            turn,
            rope["toolCallId"],
            approved=False,
            reason="denied",
            reasonMessage={"markdown": "*too* dear"},
            userSuggestion={"text": "ask the chandler"},
        )
        echo = await client.echo(await client.dispatch(denial))
        assert echo["action"] == denial
        await client.check(uri)
        for_good = next(each["id"] for each in tide["options"] if each["kind"] == "approve" and "session" in each["id"])
        edited = call_action(
            "toolCallConfirmed",
            uri,
            turn,
            tide["toolCallId"],
            approved=True,
            confirmed="user-action",
            editedToolInput='{"harbour": "Harwich"}',
            selectedOptionId=for_good,
        )
        await client.echo(await client.dispatch(edited))
        ended = await wait_for_end(client, uri, turn)
        calls = [part["toolCall"] for part in ended["responseParts"] if part["kind"] == "toolCall"]
        assert calls[0]["content"][0]["text"].endswith("in Harwich")
        assert calls[0]["toolInput"] == '{"harbour": "Harwich"}'
        assert calls[0]["selectedOption"]["id"] == for_good
        assert (calls[1]["status"], calls[1]["reason"], calls[1]["reasonMessage"]) == (
            "cancelled",
            "denied",
            {"markdown": "*too* dear"},
        )
        assert (calls[2]["status"], calls[2]["confirmed"]) == ("completed", "setting")
        await client.check(uri)


@pytest.mark.rule("R70", "R82", "R165")
async def test_a_denial_with_an_empty_reason_is_shown_as_sent(server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [steps.call("order_rope", {"metres": 2}), steps.call("order_rope", {"metres": 3})], [steps.text("done")]
    )
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "pilot")
        turn = await start_turn(client, uri, prompt)
        await client.until(lambda: client.state(uri)["summary"]["status"] == 24)
        await wait_for_call(client, uri, "order_rope", "pending-confirmation")
        second = call_of(client, uri, "order_rope")
        assert second is not None
        empty = call_action(
            "toolCallConfirmed",
            uri,
            turn,
            second["toolCallId"],
            approved=False,
            reason="skipped",
            reasonMessage="",
            userSuggestion={"text": "", "attachments": []},
        )
        assert (await client.echo(await client.dispatch(empty)))["action"] == empty
        await client.check(uri)


@pytest.mark.rule("R171")
async def test_a_tool_that_fails_says_so_and_the_turn_goes_on(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("fail", {"reason": "rust"})], [steps.text("oh")])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "pilot", config={"approval": "auto"})
        ended = await run_turn(client, uri, prompt)
        call = ended["responseParts"][0]["toolCall"]
        assert (call["status"], call["success"], call["confirmed"]) == ("completed", False, "setting")
        assert call["error"]["message"]
        assert text_of(ended) == "oh"
        await client.check(uri)


# --- client tools ---

SIGNAL = {
    "name": "signal",
    "description": "Hoists a flag",
    "inputSchema": {"type": "object", "properties": {"flag": {"type": "string"}}},
}


@pytest.mark.rule("R115", "R180", "R183", "R184", "R185", "R90")
async def test_the_active_client_runs_its_own_tools_and_nobody_else_may(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("hoisted")])
    async with watching(server, server.keys.alice, "owner") as owner, watching(server, server.keys.alice, "other") as other:
        uri = await create_session(owner, activeClient={"clientId": "owner", "displayName": "Bridge", "tools": [SIGNAL]})
        await other.subscribe(uri)
        assert other.state(uri)["activeClient"]["clientId"] == "owner"
        claim = {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "other", "tools": []}}
        assert await rejection_reason(other, claim)
        turn = await start_turn(other, uri, prompt)
        call = await wait_for_call(owner, uri, "signal", "running")
        assert (call["toolClientId"], call["confirmed"], call["toolInput"]) == ("owner", "not-needed", '{"flag": "Q"}')
        await owner.check(uri)
        result = {"success": True, "pastTenseMessage": "Hoisted Q", "content": [{"type": "text", "text": "Q is up"}]}
        done = call_action("toolCallComplete", uri, turn, call["toolCallId"], result=result)
        assert await rejection_reason(other, done)
        progress = call_action(
            "toolCallContentChanged", uri, turn, call["toolCallId"], content=[{"type": "text", "text": "hoisting"}]
        )
        await owner.echo(await owner.dispatch(progress))
        await other.check(uri)
        await owner.echo(await owner.dispatch(done))
        ended = await wait_for_end(other, uri, turn)
        assert ended["responseParts"][0]["toolCall"]["pastTenseMessage"] == "Hoisted Q"
        assert text_of(ended) == "hoisted"
        assert await rejection_reason(owner, done)
        for client in (owner, other):
            await client.check(uri)
        assert model.requests_of(prompt)[-1].messages[-1]["content"] == "Q is up"


@pytest.mark.rule("R167", "R150", "R424", "R425")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_clients_result_can_wait_until_another_client_releases_it(
    server: Server, model: ModelServer, approved: bool
) -> None:
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("hoisted")])
    async with watching(server, server.keys.alice, "owner") as owner, watching(server, server.keys.alice, "other") as other:
        uri = await create_session(owner, activeClient={"clientId": "owner", "tools": [SIGNAL]})
        await other.subscribe(uri)
        turn = await start_turn(other, uri, prompt)
        call = (await wait_for_call(owner, uri, "signal", "running"))["toolCallId"]
        result = {"success": True, "pastTenseMessage": "Hoisted Q", "content": [{"type": "text", "text": "Q is up"}]}
        done = call_action("toolCallComplete", uri, turn, call, result=result, requiresResultConfirmation=True)
        await owner.echo(await owner.dispatch(done))
        waiting = await wait_for_call(other, uri, "signal", "pending-result-confirmation")
        assert waiting["content"] == [{"type": "text", "text": "Q is up"}]
        assert other.state(uri)["summary"]["status"] & 31 == 24
        await other.check(uri)
        assert len(model.requests_of(prompt)) == 1
        await other.echo(await other.dispatch(call_action("toolCallResultConfirmed", uri, turn, call, approved=approved)))
        ended = await wait_for_end(other, uri, turn)
        shown = ended["responseParts"][0]["toolCall"]
        assert (shown["status"], shown.get("reason")) == (("completed", None) if approved else ("cancelled", "result-denied"))
        told = model.requests_of(prompt)[-1].messages[-1]["content"]
        assert told == ("Q is up" if approved else "Tool call denied: the user did not release its result")
        for client in (owner, other):
            await client.check(uri)


@pytest.mark.rule("R181", "R180")
async def test_the_active_client_changes_its_tools_and_leaves(server: Server) -> None:
    async with watching(server, server.keys.alice, "owner") as owner:
        uri = await create_session(owner)
        tools = {"type": "session/activeClientToolsChanged", "session": uri, "tools": [SIGNAL]}
        assert await rejection_reason(owner, tools)
        claim = {"type": "session/activeClientChanged", "session": uri, "activeClient": {"clientId": "owner", "tools": []}}
        await owner.echo(await owner.dispatch(claim))
        await owner.echo(await owner.dispatch(tools))
        assert [tool["name"] for tool in owner.state(uri)["activeClient"]["tools"]] == ["signal"]
        await owner.check(uri)
        await owner.echo(await owner.dispatch({"type": "session/activeClientChanged", "session": uri, "activeClient": None}))
        assert "activeClient" not in owner.state(uri)
        await owner.check(uri)


# --- flags, names, settings ---


@pytest.mark.rule("R151", "R153", "R262", "R431")
async def test_flags_and_titles_are_seen_in_states_lists_and_notifications(server: Server, model: ModelServer) -> None:
    async with watching(server, server.keys.alice, "tidy") as client:
        uri = await create_session(client)
        await run_turn(client, uri, model.script([steps.text("hello")]))
        await client.until(lambda: client.state(uri)["summary"]["title"])
        for action in (
            {"type": "session/isReadChanged", "session": uri, "isRead": True},
            {"type": "session/isArchivedChanged", "session": uri, "isArchived": True},
            {"type": "session/titleChanged", "session": uri, "title": "Log book"},
        ):
            await client.echo(await client.dispatch(action))
        state = await client.check(uri)
        assert (state["summary"]["status"], state["summary"]["title"]) == (1 | 32 | 64, "Log book")

        def told() -> bool:
            changes = [each["changes"] for each in client.heard if each.get("session") == uri and "changes" in each]
            merged = {name: value for each in changes for name, value in each.items()}
            return (merged.get("status"), merged.get("title")) == (97, "Log book")

        await client.until(told)
        items = (await client.request("listSessions", {}))["items"]
        listed = next(item for item in items if item["resource"] == uri)
        assert {**listed, "modifiedAt": 0} == {**state["summary"], "modifiedAt": 0}


@pytest.mark.rule("R230", "R231", "R233", "R235", "R388")
async def test_settings_come_from_the_agents_options_and_secrets_stay_hidden(server: Server) -> None:
    async with watching(server, server.keys.alice, "setter") as client:
        resolved = await client.request("resolveSessionConfig", {"provider": "pilot", "config": {"units": "imperial", "x": 1}})
        assert resolved["values"]["units"] == "imperial"
        assert resolved["values"]["tone"] == "brief"
        again = await client.request("resolveSessionConfig", {"provider": "pilot", "config": resolved["values"]})
        assert again == resolved
        uri = await create_session(client, "pilot", config={"units": "imperial", "model_key": "sk-of-a-client"})
        assert client.state(uri)["config"]["values"]["model_key"] == "***"
        change = {"type": "session/configChanged", "session": uri, "config": {"tone": "florid", "model_key": "sk-another"}}
        echo = await client.echo(await client.dispatch(change))
        assert echo["action"]["config"] == {"tone": "florid", "model_key": "***"}
        await client.check(uri)
        for wrong in ({"units": "cubits"}, {"nothing": "x"}, {"tone": 5}):
            seq = await client.dispatch({"type": "session/configChanged", "session": uri, "config": wrong})
            assert (await client.echo(seq))["rejectionReason"]
        whole = {"type": "session/configChanged", "session": uri, "config": {"tone": "dry"}, "replace": True}
        await client.echo(await client.dispatch(whole))
        state = await client.check(uri)
        assert state["config"]["values"] == {"tone": "dry"}
        assert all("sk-" not in str(each) for each in client.seen)


@pytest.mark.rule("R21", "R84")
async def test_frames_of_a_connection_take_effect_in_the_order_sent(server: Server) -> None:
    async with watching(server, server.keys.alice, "quick") as client:
        uri = await create_session(client)
        seqs = [
            await client.dispatch({"type": "session/titleChanged", "session": uri, "title": f"title {number}"})
            for number in range(30)
        ]
        assert client.mirrors[uri].shown["summary"]["title"] == "title 29"
        await client.echo(seqs[-1])
        own = [each["origin"]["clientSeq"] for each in client.seen if "origin" in each]
        assert own == seqs
        assert client.state(uri)["summary"]["title"] == "title 29"
        client.mirrors.pop(uri)
        disposed = client.ask("disposeSession", {"session": uri})
        anew = client.ask("createSession", {"session": uri, "provider": "echo"})
        fresh = client.ask("subscribe", {"resource": uri})
        await asyncio.gather(disposed, anew)
        assert (await fresh)["snapshot"]["state"]["summary"]["title"] == ""
