"""AHP 0.1: pending messages, forms, truncating, forking, changes of model, reviewed results."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.ahp.transport.jsonrpc import RPCError
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
from tests.e2e.ahp_watcher import Watcher, watching
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


def _pending(uri: str, kind: str, id_: str, text: str) -> dict[str, Any]:
    return {"type": "session/pendingMessageSet", "session": uri, "kind": kind, "id": id_, "userMessage": {"text": text}}


def _removal(uri: str, kind: str, id_: str) -> dict[str, Any]:
    return {"type": "session/pendingMessageRemoved", "session": uri, "kind": kind, "id": id_}


async def _say(client: Watcher, action: dict[str, Any]) -> None:
    echo = await client.echo(await client.dispatch(action))
    assert "rejectionReason" not in echo, echo


async def _turn_said(client: Watcher, uri: str, text: str) -> dict[str, Any]:
    """The turn that a message became, once it is over."""

    def found() -> dict[str, Any] | None:
        return next((turn for turn in client.state(uri)["turns"] if turn["userMessage"]["text"] == text), None)

    turn: dict[str, Any] = await client.until(found, 60)
    return turn


@pytest.mark.rule("R210", "R212", "R213", "R214", "R215", "R90")
async def test_queued_messages_run_one_after_the_other_in_the_order_they_were_put(server: Server, model: ModelServer) -> None:
    first = model.script([steps.gate("queue"), steps.text("one")])
    others = [model.script([steps.text(f"answer {index}")]) for index in range(3)]
    async with watching(server, server.keys.alice, "queuer") as client:
        uri = await create_session(client)
        turn = await start_turn(client, uri, first)
        for index, text in enumerate(others):
            await _say(client, _pending(uri, "queued", f"m{index}", text))
        await _say(client, {"type": "session/queuedMessagesReordered", "session": uri, "order": ["m2", "nobody", "m0"]})
        assert [each["id"] for each in client.state(uri)["queuedMessages"]] == ["m2", "m0", "m1"]
        await _say(client, _removal(uri, "queued", "m0"))
        assert await rejection_reason(client, _removal(uri, "queued", "m0"))
        await client.check(uri)
        model.open_gate("queue")
        await wait_for_end(client, uri, turn)
        await _turn_said(client, uri, others[1])
        texts = [turn["userMessage"]["text"] for turn in client.state(uri)["turns"]]
        assert texts == [first, others[2], others[1]]
        started_by = [
            each["action"].get("queuedMessageId") for each in client.seen if each["action"]["type"] == "session/turnStarted"
        ]
        assert started_by == [None, "m2", "m1"]
        await client.check(uri)
        idle = model.script([steps.text("at once")])
        await _say(client, _pending(uri, "queued", "m9", idle))
        assert text_of(await _turn_said(client, uri, idle)) == "at once"
        await client.check(uri)


@pytest.mark.rule("R212")
async def test_after_a_cancel_the_queue_rests_until_somebody_acts(server: Server, model: ModelServer) -> None:
    waiting = model.script([steps.text("at last")])
    async with watching(server, server.keys.alice, "queuer") as client:
        uri = await create_session(client)
        turn = await start_turn(client, uri, model.script([steps.text("x"), steps.hang()]))
        await _say(client, _pending(uri, "queued", "m", waiting))
        await _say(client, {"type": "session/turnCancelled", "session": uri, "turnId": turn})
        await client.check(uri)
        assert [each["id"] for each in client.state(uri)["queuedMessages"]] == ["m"]
        await _say(client, {"type": "session/queuedMessagesReordered", "session": uri, "order": []})
        assert text_of(await _turn_said(client, uri, waiting)) == "at last"
        await client.check(uri)


@pytest.mark.rule("R211")
async def test_a_steering_message_reaches_the_running_turn_between_two_model_calls(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.gate("steer"), steps.call("order_rope", {"metres": 1})])
    port, starboard = model.script([steps.text("to port")]), model.script([steps.text("to starboard")])
    async with watching(server, server.keys.alice, "helm") as client:
        uri = await create_session(client, "pilot", config={"approval": "auto"})
        turn = await start_turn(client, uri, prompt)
        await _say(client, _pending(uri, "steering", "s1", port))
        await _say(client, _pending(uri, "steering", "s2", starboard))
        assert client.state(uri)["steeringMessage"]["id"] == "s2"
        await client.check(uri)
        model.open_gate("steer")
        assert text_of(await wait_for_end(client, uri, turn)) == "to starboard"
        assert "steeringMessage" not in client.state(uri)
        await client.check(uri)
        sent = [message["content"] for message in model.requests_of(starboard)[-1].messages]
        assert prompt in sent
        assert port not in sent


# --- forms ---

QUESTIONS = {
    "message": "Before we sail",
    "questions": [
        {"id": "port", "kind": "text", "message": "Where to?", "required": True},
        {"id": "knots", "kind": "integer", "message": "How fast?", "min": 1, "max": 12},
        {"id": "sails", "kind": "multi-select", "message": "Which sails?", "options": [{"id": "jib", "label": "Jib"}]},
    ],
}


@pytest.mark.rule("R200", "R201", "R203", "R204", "R205", "R90", "R150")
async def test_an_agent_asks_in_a_form_and_goes_on_with_the_answers(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("ask_user", QUESTIONS)], [steps.text("aye")])
    async with watching(server, server.keys.alice, "first") as first, watching(server, server.keys.alice, "second") as second:
        uri = await create_session(first, "mate")
        await second.subscribe(uri)
        turn = await start_turn(first, uri, prompt)
        await first.until(lambda: first.state(uri).get("inputRequests"), 60)
        request = first.state(uri)["inputRequests"][0]
        assert [question["id"] for question in request["questions"]] == ["port", "knots", "sails"]
        assert first.state(uri)["summary"]["status"] == 24
        await first.check(uri)

        def answer(question: str, value: Any, state: str = "draft") -> dict[str, Any]:
            about = {"type": "session/inputAnswerChanged", "session": uri, "requestId": request["id"], "questionId": question}
            return about if value is None else {**about, "answer": {"state": state, "value": value}}

        await _say(first, answer("port", {"kind": "text", "value": "Bree"}))
        await _say(second, answer("knots", {"kind": "number", "value": 6}, "submitted"))
        await second.check(uri)
        assert await rejection_reason(second, answer("port", {"kind": "number", "value": 6}, "submitted"))
        assert await rejection_reason(second, answer("nothing", {"kind": "text", "value": "x"}))
        complete = {"type": "session/inputCompleted", "session": uri, "requestId": request["id"], "response": "accept"}
        assert await rejection_reason(second, complete)
        assert await rejection_reason(second, {**complete, "requestId": "another"})
        port = {"port": {"state": "submitted", "value": {"kind": "text", "value": "Bree"}}}
        await _say(second, {**complete, "answers": port})
        ended = await wait_for_end(first, uri, turn)
        assert text_of(ended) == "aye"
        assert "inputRequests" not in first.state(uri)
        assert await rejection_reason(first, complete)
        await first.check(uri)
        assert "Bree" in str(model.requests_of(prompt)[-1].messages[-1]["content"])


@pytest.mark.rule("R206", "R220")
async def test_a_form_is_void_when_its_turn_ends(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("ask_user", QUESTIONS)], [steps.text("never")])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "mate")
        turn = await start_turn(client, uri, prompt)
        await client.until(lambda: client.state(uri).get("inputRequests"), 60)
        request = client.state(uri)["inputRequests"][0]["id"]
        await _say(client, {"type": "session/turnCancelled", "session": uri, "turnId": turn})
        await client.check(uri)
        completed = {"type": "session/inputCompleted", "session": uri, "requestId": request, "response": "cancel"}
        assert await rejection_reason(client, completed)


@pytest.mark.rule("R167")
async def test_a_result_that_is_reviewed_is_released_or_withheld(server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [steps.call("order_rope", {"metres": 1}), steps.call("order_rope", {"metres": 2})], [steps.text("done")]
    )
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "mate", config={"approval": "auto"})
        turn = await start_turn(client, uri, prompt)

        def waiting() -> list[dict[str, Any]]:
            parts = client.state(uri).get("activeTurn", {"responseParts": []})["responseParts"]
            calls = [part["toolCall"] for part in parts if part["kind"] == "toolCall"]
            return [call for call in calls if call["status"] == "pending-result-confirmation"]

        await client.until(lambda: len(waiting()) == 2, 60)
        first, second = waiting()
        await client.check(uri)
        await _say(client, call_action("toolCallResultConfirmed", uri, turn, first["toolCallId"], approved=True))
        await _say(client, call_action("toolCallResultConfirmed", uri, turn, second["toolCallId"], approved=False))
        ended = await wait_for_end(client, uri, turn)
        calls = [part["toolCall"] for part in ended["responseParts"] if part["kind"] == "toolCall"]
        assert calls[0]["status"] == "completed"
        assert (calls[1]["status"], calls[1]["reason"]) == ("cancelled", "result-denied")
        await client.check(uri)


# --- models, going back, forking ---


@pytest.mark.rule("R222", "R90", "R388")
async def test_another_model_waits_for_the_turns_end_and_counts_from_the_next(server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.gate("model"), steps.text("x")])
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client, "mate")
        assert client.state(uri)["summary"]["model"] == {"id": "gpt-test"}
        assert "model" not in client.state(uri)["config"]["values"]
        change = {"type": "session/modelChanged", "session": uri, "model": {"id": "gpt-other"}}
        assert await rejection_reason(client, {**change, "model": {"id": "gpt-none"}})
        turn = await start_turn(client, uri, prompt)
        seq = await client.dispatch(change)
        await client.check(uri)
        assert client.state(uri)["summary"]["model"] == {"id": "gpt-test"}
        model.open_gate("model")
        await wait_for_end(client, uri, turn)
        await client.echo(seq)
        assert client.state(uri)["summary"]["model"] == {"id": "gpt-other"}
        after = model.script([steps.text("y")])
        await run_turn(client, uri, after)
        assert model.requests_of(after)[-1].body["model"] == "gpt-other"
        await client.check(uri)
        chosen = await create_session(client, "mate", model={"id": "gpt-other"})
        assert client.state(chosen)["summary"]["model"] == {"id": "gpt-other"}
        with pytest.raises(RPCError) as unknown:
            await create_session(client, "mate", model={"id": "gpt-none"})
        assert unknown.value.code == -32602


@pytest.mark.rule("R220", "R119", "R73")
async def test_a_session_goes_back_to_an_earlier_turn(server: Server, model: ModelServer) -> None:
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client)
        prompts = [model.script([steps.text(f"answer {index}")]) for index in range(3)]
        turns = [await run_turn(client, uri, prompt) for prompt in prompts]
        page = await client.request("fetchTurns", {"session": uri, "limit": 2})
        assert [turn["id"] for turn in page["turns"]] == [turns[1]["id"], turns[2]["id"]]
        assert page["hasMore"] is True
        page = await client.request("fetchTurns", {"session": uri, "before": turns[1]["id"]})
        assert (page["turns"], page["hasMore"]) == ([turns[0]], False)
        for wrong in ({"before": "nobody"}, {"limit": 0}, {"limit": -1}, {"limit": 1.5}):
            with pytest.raises(RPCError) as bad:
                await client.request("fetchTurns", {"session": uri, **wrong})
            assert bad.value.code == -32602
        await _say(client, {"type": "session/truncated", "session": uri, "turnId": "nobody"})
        assert len(client.state(uri)["turns"]) == 3
        running = await start_turn(client, uri, model.script([steps.text("half"), steps.hang()]))
        await client.until(lambda: text_of(client.state(uri)["activeTurn"]) == "half")
        await _say(client, {"type": "session/truncated", "session": uri, "turnId": turns[0]["id"]})
        assert [turn["id"] for turn in client.state(uri)["turns"]] == [turns[0]["id"]]
        assert "activeTurn" not in client.state(uri)
        await client.check(uri)
        assert await rejection_reason(client, start_action(uri, "again", running))
        after = model.script([steps.text("anew")])
        await run_turn(client, uri, after)
        sent = [message["content"] for message in model.requests_of(after)[-1].messages]
        assert prompts[0] in sent
        assert prompts[1] not in sent
        await _say(client, {"type": "session/truncated", "session": uri})
        assert client.state(uri)["turns"] == []
        await client.check(uri)


@pytest.mark.rule("R221")
async def test_a_fork_has_copies_of_the_turns_and_goes_its_own_way(server: Server, model: ModelServer) -> None:
    async with watching(server, server.keys.alice) as client:
        source = await create_session(client, "pilot", config={"tone": "dry"})
        prompts = [model.script([steps.text(f"answer {index}")]) for index in range(2)]
        turns = [await run_turn(client, source, prompt) for prompt in prompts]
        fork = new_uri("pilot")
        answers = (
            client.ask("createSession", {"session": fork, "fork": {"session": source, "turnId": turns[0]["id"]}}),
            client.ask("subscribe", {"resource": fork}),
        )
        for answer in answers:
            await answer
        copied = client.state(fork)["turns"]
        assert [(text_of(turn), turn["userMessage"]) for turn in copied] == [("answer 0", {"text": prompts[0]})]
        assert client.state(fork)["config"]["values"]["tone"] == "dry"
        after = model.script([steps.text("elsewhere")])
        await run_turn(client, fork, after)
        assert prompts[0] in [message["content"] for message in model.requests_of(after)[-1].messages]
        assert len(client.state(source)["turns"]) == 2
        for session in (source, fork):
            await client.check(session)
        for wrong, code in (
            ({"session": "pilot:/nothing", "turnId": "t"}, -32001),
            ({"session": source, "turnId": "nobody"}, -32602),
        ):
            with pytest.raises(RPCError) as bad:
                await client.request("createSession", {"session": new_uri("pilot"), "fork": wrong})
            assert bad.value.code == code
        running = await start_turn(client, source, model.script([steps.text("x"), steps.hang()]))
        with pytest.raises(RPCError) as busy:
            await client.request("createSession", {"session": new_uri("pilot"), "fork": {"session": source, "turnId": running}})
        assert busy.value.code == -32004
        await _say(client, {"type": "session/turnCancelled", "session": source, "turnId": running})


@pytest.mark.rule("R187")
async def test_a_client_that_does_not_know_its_own_tool_is_refused_and_the_turn_goes_on(
    server: Server, model: ModelServer
) -> None:
    prompt = model.script([steps.call("signal", {"flag": "Q"})], [steps.text("well")])
    tool = {"name": "signal", "description": "Hoists a flag"}
    async with watching(server, server.keys.alice, "owner") as owner:
        uri = await create_session(owner, activeClient={"clientId": "owner", "tools": [tool]})
        turn = await start_turn(owner, uri, prompt)
        call = await wait_for_call(owner, uri, "signal", "running")
        denial = call_action("toolCallConfirmed", uri, turn, call["toolCallId"], approved=False, reason="denied")
        assert await rejection_reason(owner, denial)
        ended = await wait_for_end(owner, uri, turn)
        failed = ended["responseParts"][0]["toolCall"]
        assert (failed["status"], failed["success"]) == ("completed", False)
        assert text_of(ended) == "well"
        await owner.check(uri)


# --- what helps to write ---


@pytest.mark.rule("R232", "R351", "R360", "R32")
async def test_completions_and_tokens_have_nothing_to_offer_and_say_so_rightly(server: Server) -> None:
    async with watching(server, server.keys.alice) as client:
        uri = await create_session(client)
        asked = {"kind": "userMessage", "session": uri, "text": "a𝄞b", "offset": 4}
        assert await client.request("completions", asked) == {"items": []}
        units = {"provider": "pilot", "property": "units"}
        assert await client.request("sessionConfigCompletions", units) == {"items": []}
        for method, params, code in (
            ("completions", {**asked, "offset": 5}, -32602),
            ("completions", {**asked, "offset": -1}, -32602),
            ("completions", {**asked, "kind": "other"}, -32602),
            ("completions", {**asked, "session": "echo:/nothing"}, -32001),
            ("sessionConfigCompletions", {**units, "property": "nothing"}, -32602),
            ("sessionConfigCompletions", {**units, "provider": "nobody"}, -32002),
            ("resolveSessionConfig", {"provider": "nobody"}, -32002),
            ("authenticate", {"resource": "https://example.org", "token": "x"}, -32602),
        ):
            with pytest.raises(RPCError) as wrong:
                await client.request(method, params)
            assert wrong.value.code == code, method
