"""AAP version 3: server and client tools, permissions, denials, partial and invalid answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.client import Client, Outcome, client_tool, deny, grant, pointers, tool, user
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer

TRUSTED = {"name": "tide_table", "trust": True}
ASKING = {"name": "order_rope"}


def rope(metres: float, call_id: str) -> steps.Step:
    return steps.call("order_rope", {"metres": metres}, id=call_id)


def pilot(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"name": "pilot", "tools": list(tools)}


# --- the five steps ---


@pytest.mark.rule("A63", "A67", "A18")
def test_a_trusted_tool_runs_at_once_and_the_model_goes_on_with_its_result(
    alice: Client, server: Server, model: ModelServer
) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "trusted"}, id="t1")], [steps.text("At 06:12.")])
    outcome = alice.turn(alice.create(pilot(TRUSTED)), prompt, stream="delta")
    assert [event.name for event in outcome.events] == ["turn_start", "tool_call", "tool_result", "text_delta", "turn_stop"]
    assert outcome.stop == "end_turn"
    assert server.tools.executions("tide_table", harbour="trusted") == 1
    second = model.requests_of(prompt)[1].messages
    assert second[-1] == {"role": "tool", "tool_call_id": "t1", "content": "high 06:12, low 12:31 in trusted"}


@pytest.mark.rule("A63")
def test_trusted_calls_run_in_parallel_and_results_arrive_as_they_finish(
    alice: Client, server: Server, model: ModelServer
) -> None:
    prompt = model.script(
        [steps.call("block", {"gate": "slow one"}, id="p1"), steps.call("tide_table", {"harbour": "quick"}, id="p2")],
        [steps.text("both")],
    )
    session = alice.create(pilot(TRUSTED, {"name": "block", "trust": True}))
    with alice.stream(session, prompt) as stream:
        assert stream.until("tool_result").data["toolCallId"] == "p2"
        server.tools.wait("slow one")
        server.tools.open_gate("slow one")
        assert stream.until("tool_result").data == {"toolCallId": "p1", "content": "through slow one"}
        stream.rest()


@pytest.mark.rule("A63", "A65", "A66", "A18", "A39")
def test_an_untrusted_tool_waits_for_a_permission_and_then_runs_once(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.text("May I?"), rope(500, "u1")], [steps.text("Ordered.")])
    session = alice.create(pilot(ASKING))
    asked = alice.turn(session, prompt, stream="delta")
    assert asked.stop == "tool_use"
    assert asked.calls[0] == {"type": "tool_use", "toolCallId": "u1", "name": "order_rope", "input": {"metres": 500}}
    assert server.tools.executions("order_rope", metres=500) == 0
    assert len(model.requests_of(prompt)) == 1
    answered = alice.turn(session, grant("u1"), stream="delta")
    assert [event.name for event in answered.events] == ["turn_start", "tool_result", "text_delta", "turn_stop"]
    assert answered.text == "Ordered."
    assert server.tools.executions("order_rope", metres=500) == 1


@pytest.mark.rule("A64", "A65", "A66", "A61")
@pytest.mark.parametrize(
    ("reason", "wording"),
    [(None, "Tool call denied"), ("", "Tool call denied"), ("we have plenty 🪢", "Tool call denied: we have plenty 🪢")],
)
def test_a_denied_tool_never_runs_and_the_model_is_told(
    alice: Client, server: Server, model: ModelServer, reason: str | None, wording: str
) -> None:
    prompt = model.script([rope(77, "d1")], [steps.text("Then not.")])
    session = alice.create(pilot(ASKING))
    alice.turn(session, prompt)
    answered = alice.turn(session, deny("d1", reason))
    assert answered.messages == [tool("d1", wording), {"role": "assistant", "content": "Then not."}]
    assert server.tools.executions("order_rope", metres=77) == 0
    assert model.requests_of(prompt)[1].messages[-1] == {"role": "tool", "tool_call_id": "d1", "content": wording}
    assert alice.history(session)[2] == tool("d1", wording)


@pytest.mark.rule("A63", "A65", "A37")
def test_a_client_tool_is_run_by_the_client_and_its_result_is_not_sent_back(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", {"day": "Tuesday"}, id="k1")], [steps.text("Serviced.")])
    session = alice.create(tools=[client_tool("mine", day={"type": "string"})])
    asked = alice.turn(session, prompt, stream="message")
    assert asked.stop == "tool_use"
    blocks = [{"type": "text", "text": "engine"}, {"type": "image", "url": "https://example.org/engine.png"}]
    answered = alice.turn(session, tool("k1", blocks), stream="message")
    assert [event.name for event in answered.events] == ["turn_start", "text", "turn_stop"]
    assert alice.history(session)[2] == tool("k1", blocks)
    sent = model.requests_of(prompt)[0].body["tools"][0]["function"]
    assert (sent["name"], sent["description"]) == ("mine", "runs mine")
    assert sent["parameters"] == {"type": "object", "properties": {"day": {"type": "string"}}}


@pytest.mark.rule("A70", "A57", "A63", "A65")
def test_mixed_parallel_calls(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.text("On it."),
            steps.call("read_log", {"day": "Tuesday"}, id="x1"),
            steps.call("crew_list", {}, id="x2"),
            steps.call("tide_table", {"harbour": "Bodø"}, id="x3"),
            rope(40, "x4"),
        ],
        [steps.text("All set, ", "leave at 06:12.")],
    )
    session = alice.create(pilot(TRUSTED, ASKING), tools=[client_tool("read_log"), client_tool("crew_list")])
    asked = alice.turn(session, prompt, stream="delta")
    assert [(event.name, event.data.get("toolCallId")) for event in asked.events] == [
        ("turn_start", None),
        ("text_delta", None),
        ("tool_call", "x1"),
        ("tool_call", "x2"),
        ("tool_call", "x3"),
        ("tool_call", "x4"),
        ("tool_result", "x3"),
        ("turn_stop", None),
    ]
    answers = [tool("x1", "engine serviced"), tool("x2", "Aino, Bram"), grant("x4")]
    answered = alice.turn(session, *answers, stream="delta")
    # Deltas that arrived together may be one event.
    assert [event.name for event in answered.events][:3] == ["turn_start", "tool_result", "text_delta"]
    assert answered.results == {"x4": "40 m of grey rope ordered"}
    assert answered.text == "All set, leave at 06:12."
    history = alice.history(session)
    assert [message.get("toolCallId", message["role"]) for message in history] == [
        "user",
        "assistant",
        "x3",
        "x1",
        "x2",
        "x4",
        "assistant",
    ]
    assert [block["type"] for block in history[1]["content"]] == ["text"] + ["tool_use"] * 4
    ids = [message["tool_call_id"] for message in model.requests_of(prompt)[1].messages if message["role"] == "tool"]
    assert sorted(ids) == ["x1", "x2", "x3", "x4"]


@pytest.mark.rule("A68", "A63")
def test_unexposed_tools_run_without_permission_and_are_shown(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("whisper", {"words": "hush"}, id="w1")], [steps.text("ok")])
    session = alice.create("pilot")
    outcome = alice.turn(session, prompt, stream="delta")
    assert [event.name for event in outcome.events] == ["turn_start", "tool_call", "tool_result", "text_delta", "turn_stop"]
    assert alice.history(session)[2] == tool("w1", "psst: hush")
    assert pointers(alice.refused(session, "hi", agent={"tools": [{"name": "whisper"}]}))[0].startswith("/agent/tools/0")


@pytest.mark.rule("A67")
def test_trust_given_later_does_not_resolve_pending_calls(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script(
        [rope(11, "l1"), steps.call("mine", {}, id="l2")], [rope(12, "l3")], [steps.text("second one ran unasked")]
    )
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")])
    alice.turn(session, prompt)
    trusting = alice.turn(session, tool("l2", "x"), agent={"tools": [{"name": "order_rope", "trust": True}]})
    assert trusting.stop == "tool_use"
    assert server.tools.executions("order_rope", metres=11) == 0
    done = alice.turn(session, grant("l1"))
    assert (done.stop, done.text) == ("end_turn", "second one ran unasked")
    assert server.tools.executions("order_rope", metres=12) == 1


@pytest.mark.rule("A67")
def test_withdrawn_trust_applies_from_that_turn_on(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script([rope(13, "w1")], [steps.text("ok")])
    session = alice.create(pilot({"name": "order_rope", "trust": True}))
    assert alice.turn(session, prompt).stop == "end_turn"
    assert alice.turn(session, prompt, agent={"tools": [{"name": "order_rope", "trust": False}]}).stop == "tool_use"
    assert server.tools.executions("order_rope", metres=13) == 1


@pytest.mark.rule("A71", "A39")
def test_a_client_without_state_continues_from_the_history(server: Server, alice: Client, model: ModelServer) -> None:
    prompt = model.script([rope(21, "r1"), steps.call("mine", {}, id="r2")], [steps.text("ok")])
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")])
    alice.turn(session, prompt)
    another = server.client(server.keys.alice)
    asked = another.history(session)[-1]
    pending = [block["toolCallId"] for block in asked["content"] if block["type"] == "tool_use"]
    assert pending == ["r1", "r2"]
    assert another.turn(session, deny("r1"), tool("r2", "x")).stop == "end_turn"


# --- failures ---


@pytest.mark.rule("A72")
def test_the_result_of_a_failed_tool_has_no_internals(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("fail", {"reason": "the crane is stuck"}, id="f1")], [steps.text("I see.")])
    outcome = alice.turn(alice.create(pilot({"name": "fail", "trust": True})), prompt)
    assert (outcome.stop, outcome.text) == ("end_turn", "I see.")
    content = outcome.results["f1"]
    assert content.startswith("Tool execution failed: ")
    assert "Traceback" not in content
    assert "tools.py" not in content
    assert len(content) < 500


@pytest.mark.rule("A72")
def test_a_tool_that_takes_too_long_fails_and_the_model_goes_on(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script([steps.call("block", {"gate": "never in time"}, id="o1")], [steps.text("Too slow.")])
    outcome = alice.turn(alice.create({"name": "hasty", "tools": [{"name": "block", "trust": True}]}), prompt)
    server.tools.open_gate("never in time")
    assert (outcome.stop, outcome.text) == ("end_turn", "Too slow.")
    assert outcome.results["o1"].startswith("Tool execution failed: ")


@pytest.mark.rule("A72", "A73")
@pytest.mark.parametrize("arguments", ["[1]", "{broken", '"text"', '{"harbour": 7}', "{}", "null"])
def test_bad_arguments_are_answered_by_the_server_and_the_model_goes_on(
    alice: Client, model: ModelServer, arguments: str
) -> None:
    prompt = model.script([steps.call("tide_table", arguments, id="b1")], [steps.text("Sorry.")])
    outcome = alice.turn(alice.create(pilot(TRUSTED)), prompt)
    assert (outcome.stop, outcome.text) == ("end_turn", "Sorry.")
    assert outcome.results["b1"].startswith("Tool execution failed: ")
    assert isinstance(outcome.calls[0]["input"], dict)


@pytest.mark.rule("A73", "A25", "A66")
@pytest.mark.parametrize("name", ["never_heard_of", "tide_table", "name with spaces"])
def test_a_call_that_nobody_can_serve_is_answered_and_a_disabled_tool_never_runs(
    alice: Client, server: Server, model: ModelServer, name: str
) -> None:
    prompt = model.script([steps.call(name, {"harbour": "disabled"}, id="n1")], [steps.text("Oh.")])
    outcome = alice.turn(alice.create(pilot(ASKING)), prompt)
    assert (outcome.stop, outcome.text) == ("end_turn", "Oh.")
    assert outcome.results == {"n1": f"Tool not found: {name}"}
    assert server.tools.executions("tide_table", harbour="disabled") == 0


@pytest.mark.rule("A73")
def test_bad_arguments_for_a_client_tool_never_reach_the_client_as_pending(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.call("mine", "[1,2]", id="z1")], [steps.text("Right.")])
    outcome = alice.turn(alice.create(tools=[client_tool("mine")]), prompt)
    assert (outcome.stop, outcome.text) == ("end_turn", "Right.")
    assert outcome.results["z1"].startswith("Tool execution failed: ")


@pytest.mark.rule("A74")
def test_a_repeated_call_id_of_the_provider_is_replaced(alice: Client, model: ModelServer) -> None:
    prompt = model.script(
        [
            steps.call("tide_table", {"harbour": "1"}, id="same"),
            steps.call("tide_table", {"harbour": "2"}, id="same"),
            steps.call("tide_table", {"harbour": "3"}, id=""),
        ],
        [steps.call("tide_table", {"harbour": "4"}, id="same")],
        [steps.text("ok")],
    )
    session = alice.create(pilot(TRUSTED))
    outcomes = [alice.turn(session, prompt), alice.turn(session, prompt, stream="delta")]
    ids = [call["toolCallId"] for outcome in outcomes for call in outcome.calls]
    assert len(ids) == 8
    assert len(set(ids)) == 8
    assert all(ids)
    harbours = {call["toolCallId"]: call["input"]["harbour"] for outcome in outcomes for call in outcome.calls}
    for outcome in outcomes:
        for call_id, content in outcome.results.items():
            assert content.endswith(f" in {harbours[call_id]}")


@pytest.mark.rule("A75", "A63")
def test_the_builtin_calculator_answers_with_text(alice: Client, model: ModelServer) -> None:
    parameters = next(one for one in alice.agent("pilot")["tools"] if one["name"] == "calculator")["parameters"]
    (argument,) = parameters["required"]
    prompt = model.script([steps.call("calculator", {argument: "6 * 7"}, id="c42")], [steps.text("42")])
    outcome = alice.turn(alice.create(pilot({"name": "calculator", "trust": True})), prompt)
    assert outcome.results == {"c42": "42"}


# --- names ---


@pytest.mark.rule("A82")
def test_names_in_force_are_unique(alice: Client, model: ModelServer) -> None:
    def answer(body: dict[str, Any]) -> int:
        return alice.post("/sessions", body).status_code

    twice = [client_tool("mine"), client_tool("mine")]
    assert answer({"agent": {"name": "echo"}, "tools": twice}) == 422
    assert answer({"agent": pilot(TRUSTED), "tools": [client_tool("tide_table")]}) == 422
    assert answer({"agent": pilot(), "tools": [client_tool("whisper")]}) == 422
    assert answer({"agent": pilot(TRUSTED, TRUSTED)}) == 422
    session = alice.create(pilot(), tools=[client_tool("calculator")])
    alice.refused(session, "hi", agent={"tools": [{"name": "calculator"}]})
    alice.refused(session, "hi", tools=[client_tool("calculator"), client_tool("calculator")])
    prompt = model.script([steps.call("calculator", {"mine": True}, id="q1")], [steps.text("ok")])
    assert alice.turn(session, prompt).stop == "tool_use"
    swapped = alice.turn(session, "hi", agent={"tools": [{"name": "calculator"}]}, tools=[])
    assert swapped.stop == "end_turn"


@pytest.mark.rule("A81", "A23")
def test_client_tools_where_the_agent_takes_none_are_422(alice: Client) -> None:
    response = alice.post("/sessions", {"agent": {"name": "bare"}, "tools": [client_tool("mine")]})
    assert response.status_code == 422
    assert pointers(response.json())[0] == "/tools"
    session = alice.create("bare", tools=[])
    assert pointers(alice.refused(session, "hi", stream="delta", tools=[client_tool("mine")]))[0] == "/tools"
    assert alice.turn(session, "hi", stream="delta", tools=[]).stop == "end_turn"


# --- partial, odd and late answers ---


def two_pending(alice: Client, model: ModelServer, name: str) -> tuple[str, Outcome, str]:
    prompt = model.script(
        [steps.call("mine", {"n": 1}, id=f"{name}1"), rope(31, f"{name}2"), steps.call("mine", {"n": 2}, id=f"{name}3")],
        [steps.text("complete")],
    )
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")])
    return session, alice.turn(session, prompt), prompt


@pytest.mark.rule("A77", "A65")
def test_partial_answers_are_kept_and_the_model_is_asked_when_the_rest_came(
    alice: Client, server: Server, model: ModelServer
) -> None:
    session, _, prompt = two_pending(alice, model, "part")
    partial = alice.turn(session, tool("part1", "calm"))
    assert (partial.stop, partial.messages) == ("tool_use", [])
    partial = alice.turn(session, grant("part2"), stream="delta")
    assert [event.name for event in partial.events] == ["turn_start", "tool_result", "turn_stop"]
    assert partial.stop == "tool_use"
    assert len(model.requests_of(prompt)) == 1
    last = alice.turn(session, tool("part3", "stormy"))
    assert (last.stop, last.messages) == ("end_turn", [{"role": "assistant", "content": "complete"}])
    assert [message.get("toolCallId") for message in alice.history(session)[2:5]] == ["part1", "part2", "part3"]


@pytest.mark.rule("A76", "A62", "A38")
def test_a_user_message_closes_what_is_pending_first(alice: Client, server: Server, model: ModelServer) -> None:
    session, _, _ = two_pending(alice, model, "int")
    alice.turn(session, tool("int1", "calm"))
    prompt = model.script([steps.text("Monday was calm.")])
    outcome = alice.turn(session, prompt, stream="delta")
    closing = "Tool call denied: the user sent a new message instead"
    results = [event.data for event in outcome.events if event.name == "tool_result"]
    assert results == [{"toolCallId": "int2", "content": closing}]
    assert [event.name for event in outcome.events][:3] == ["turn_start", "tool_result", "text_delta"]
    assert alice.history(session)[2:] == [
        tool("int1", "calm"),
        tool("int2", closing),
        tool("int3", closing),
        user(prompt),
        {"role": "assistant", "content": "Monday was calm."},
    ]
    sent = model.requests_of(prompt)[0].messages
    assert [message.get("tool_call_id") for message in sent[-4:-1]] == ["int1", "int2", "int3"]
    alice.refused(session, tool("int3", "late"))


@pytest.mark.rule("A76")
def test_the_closing_note_of_a_server_call_is_in_the_json_answer_too(alice: Client, model: ModelServer) -> None:
    prompt = model.script([rope(32, "j1"), steps.call("mine", {}, id="j2")])
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")])
    alice.turn(session, prompt)
    outcome = alice.turn(session, "never mind")
    assert outcome.messages == [
        tool("j1", "Tool call denied: the user sent a new message instead"),
        {"role": "assistant", "content": "echo: never mind"},
    ]


@pytest.mark.rule("A79", "A7", "A6")
def test_unknown_repeated_and_wrong_ids_are_422_and_nothing_is_stored(alice: Client, server: Server, model: ModelServer) -> None:
    session, _, _ = two_pending(alice, model, "odd")
    elsewhere, _, _ = two_pending(alice, model, "els")
    before = alice.history(session)
    assert pointers(alice.refused(session, tool("never", "x"))) == ["/messages/0/toolCallId"]
    assert pointers(alice.refused(session, tool("els1", "x"))) == ["/messages/0/toolCallId"]
    assert pointers(alice.refused(session, tool("odd1", "x"), tool("odd1", "y"))) == ["/messages/1/toolCallId"]
    assert pointers(alice.refused(session, grant("odd2"), deny("odd2"))) == ["/messages/1/toolCallId"]
    assert pointers(alice.refused(session, grant("odd2"), tool("never", "x"))) == ["/messages/1/toolCallId"]
    assert pointers(alice.refused(session, grant("odd1")))[0].startswith("/messages/0")
    assert alice.history(session) == before
    alice.turn(session, tool("odd1", "x"))
    alice.refused(session, tool("odd1", "x"))
    assert alice.turn(elsewhere, tool("els1", "x")).stop == "tool_use"


@pytest.mark.rule("A79")
def test_a_client_may_answer_for_a_server_tool_and_deny_its_own(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script([rope(33, "s1"), steps.call("mine", {}, id="s2")], [steps.text("fine")])
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")])
    alice.turn(session, prompt)
    outcome = alice.turn(session, tool("s1", "unknown tool"), deny("s2", "not today"))
    assert outcome.stop == "end_turn"
    assert server.tools.executions("order_rope", metres=33) == 0
    history = alice.history(session)
    assert history[2:4] == [tool("s1", "unknown tool"), tool("s2", "Tool call denied: not today")]


@pytest.mark.rule("A79", "A13")
@pytest.mark.parametrize(
    "permission",
    [
        {"role": "tool_permission", "toolCallId": "bad1"},
        {"role": "tool_permission", "toolCallId": "bad1", "granted": "yes"},
        {"role": "tool_permission", "toolCallId": "bad1", "granted": None},
        {"role": "tool_permission", "granted": True},
        {"role": "tool_permission", "toolCallId": "bad1", "granted": False, "reason": 5},
    ],
)
def test_a_permission_of_the_wrong_shape_is_422(alice: Client, model: ModelServer, permission: dict[str, Any]) -> None:
    prompt = model.script([rope(34, "bad1")])
    session = alice.create(pilot(ASKING))
    alice.turn(session, prompt)
    alice.refused(session, permission)
    assert [message["role"] for message in alice.history(session)] == ["user", "assistant"]


# --- seeds ---


def assistant_calls(*calls: tuple[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "toolCallId": call_id, "name": name, "input": {"metres": 35}} for call_id, name in calls
        ],
    }


@pytest.mark.rule("A90")
def test_results_in_a_seed_must_answer_a_call_once(alice: Client) -> None:
    for seed in (
        [user("x"), tool("c", "y")],
        [user("x"), assistant_calls(("c", "look")), tool("d", "y")],
        [user("x"), assistant_calls(("c", "look")), tool("c", "y"), tool("c", "z")],
        [user("x"), tool("c", "y"), assistant_calls(("c", "look"))],
    ):
        response = alice.post("/sessions", {"agent": {"name": "echo"}, "messages": seed})
        assert response.status_code == 422, seed
        assert pointers(response.json())[0].startswith("/messages/")


@pytest.mark.rule("A90", "A66")
def test_calls_left_open_at_the_end_of_a_seed_are_pending(alice: Client, server: Server, model: ModelServer) -> None:
    prompt = model.script([], [steps.text("all answered")])
    seed = [
        user(prompt),
        assistant_calls(("e1", "mine"), ("e2", "order_rope"), ("e3", "elsewhere"), ("e4", "whisper"), ("e5", "tide_table")),
    ]
    session = alice.create(pilot(ASKING), tools=[client_tool("mine")], messages=seed)
    assert alice.history(session) == seed
    outcome = alice.turn(session, tool("e1", "a"), grant("e2"), tool("e3", "c"), grant("e4"), grant("e5"))
    assert outcome.stop == "end_turn"
    assert outcome.text == "all answered"
    results = {message["toolCallId"]: message["content"] for message in alice.history(session) if message["role"] == "tool"}
    assert results["e1"] == "a"
    assert "rope ordered" in results["e2"]
    assert results["e3"] == "c"
    assert results["e4"] == "Tool not found: whisper"
    assert results["e5"] == "Tool not found: tide_table"
    assert server.tools.executions("order_rope", metres=35) >= 1


@pytest.mark.rule("A90")
def test_an_open_call_in_the_middle_of_a_seed_is_closed_only_for_the_model(alice: Client, model: ModelServer) -> None:
    prompt = model.script([steps.text("ok")])
    seed = [user("x"), assistant_calls(("i1", "mine"), ("i2", "mine")), tool("i2", "y"), user("z"), assistant_calls(("i3", "m"))]
    session = alice.create(messages=[*seed, tool("i3", "w"), {"role": "assistant", "content": "done"}])
    assert alice.history(session)[:5] == seed
    alice.turn(session, prompt)
    sent = {m["tool_call_id"]: m["content"] for m in model.requests_of(prompt)[0].messages if m["role"] == "tool"}
    assert sent == {"i1": "Tool call denied: no result", "i2": "y", "i3": "w"}
    alice.refused(session, tool("i1", "late"))
    assert alice.history(session)[:5] == seed
