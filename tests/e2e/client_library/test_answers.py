"""Tools that run in the client, permissions, and calls that nobody answers yet."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from agenthost.client import Answered, Client, ClientTool, Deny, ToolCall, ToolResult, TurnStop, UsageError
from tests.e2e.client_library.conftest import Connect
from tests.e2e.server import Server
from tests.fakes import steps
from tests.fakes.model_server import ModelServer


def look_up_order(number: int, when: str = "now") -> dict[str, Any]:
    """Finds an order.

    Args:
        number: The order's number.
    """
    if number == 13:
        raise LookupError("there is no order 13")
    return {"number": number, "when": when}


async def weigh(item: str) -> str:
    """Weighs an item."""
    await asyncio.sleep(0)
    return f"{item}: 4 kg"


def last_tool_messages(model: ModelServer, prompt: str) -> list[str]:
    messages = model.requests_of(prompt)[-1].messages
    return [str(each["content"]) for each in messages if each["role"] == "tool"]


def test_tools_run_in_the_client_and_the_turn_goes_on(connect: Connect, model: ModelServer) -> None:
    prompt = model.script(
        [steps.text("Looking."), steps.call("look_up_order", {"number": 7}, id="a"), steps.call("weigh", {"item": "it"}, id="b")],
        [steps.text("Found.")],
    )
    turn = connect().create_session("echo", tools=[look_up_order, weigh]).send(prompt)
    answered = [event for event in turn if isinstance(event, Answered)]
    assert [(each.call.name, each.content, each.error) for each in answered] == [
        ("look_up_order", '{"number": 7, "when": "now"}', ""),
        ("weigh", "it: 4 kg", ""),
    ]
    assert (turn.text, turn.stop_reason, turn.open_calls) == ("Looking.\n\nFound.", "end_turn", ())
    assert last_tool_messages(model, prompt) == ['{"number": 7, "when": "now"}', "it: 4 kg"]
    declared = model.requests_of(prompt)[0].body["tools"][0]["function"]
    assert (declared["name"], declared["description"]) == ("look_up_order", "Finds an order.")
    assert declared["parameters"]["properties"]["number"] == {"type": "integer", "description": "The order's number."}
    assert declared["parameters"]["required"] == ["number"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"number": 13}, "Tool execution failed: LookupError: there is no order 13"),
        ({"number": "x"}, "Tool execution failed: number: Input should be a valid integer"),
        ({}, "Tool execution failed: number: Field required"),
    ],
)
def test_an_error_of_a_tool_is_its_result(connect: Connect, model: ModelServer, arguments: dict[str, Any], told: str) -> None:
    prompt = model.script([steps.call("look_up_order", arguments, id="a")], [steps.text("Sorry.")])
    turn = connect().create_session("echo", tools=[look_up_order]).send(prompt)
    (answered,) = [event for event in turn if isinstance(event, Answered)]
    assert answered.error
    assert turn.text == "Sorry."
    assert last_tool_messages(model, prompt)[0].startswith(told)


@pytest.mark.parametrize("decides", ["function", "coroutine"])
def test_a_permission_is_granted_or_denied(connect: Connect, hall: Server, model: ModelServer, decides: str) -> None:
    asked: list[ToolCall] = []

    def decide(call: ToolCall) -> bool | Deny:
        asked.append(call)
        return True if call.input["metres"] < 10 else Deny("we have plenty")

    async def decide_later(call: ToolCall) -> bool | Deny:
        await asyncio.sleep(0)
        return decide(call)

    few, many = len(asked) + 3, 5000
    calls = [steps.call("order_rope", {"metres": few}, id="few"), steps.call("order_rope", {"metres": many}, id="many")]
    prompt = model.script(calls, [steps.text("Done.")])
    permission = decide if decides == "function" else decide_later
    turn = connect().create_session("pilot", enable=["order_rope"], permission=permission).send(prompt)
    happened = list(turn)
    assert [each.id for each in asked] == ["few", "many"]
    assert [each.granted for each in happened if isinstance(each, Answered)] == [True, False]
    assert {each.call_id for each in happened if isinstance(each, ToolResult)} >= {"few"}
    assert turn.text == "Done."
    assert hall.tools.executions("order_rope", metres=many) == 0
    assert "Tool call denied: we have plenty" in last_tool_messages(model, prompt)


def test_a_trusted_tool_does_not_ask(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.call("tide_table", {"harbour": "any"}, id="t")], [steps.text("High.")])
    session = connect().create_session("pilot")
    assert session.send(prompt, trust=["tide_table"]).result().text == "High."
    assert session.info().server_tools == {"tide_table": True}


def test_calls_that_nobody_answers_stay_open_until_they_are_answered(connect: Connect, model: ModelServer) -> None:
    prompt = model.script(
        [steps.call("order_rope", {"metres": 1}, id="s"), steps.call("ask_captain", {"what": "?"}, id="c")], [steps.text("Aye.")]
    )
    captain = ClientTool("ask_captain", "Asks the captain.", {"type": "object"})
    session = connect().create_session("pilot", enable=["order_rope"], tools=[captain])
    turn = session.send(prompt)
    assert list(turn)[-1] == TurnStop("tool_use")
    assert {each.id for each in turn.open_calls} == {"s", "c"}
    # Another process answers them.
    elsewhere = connect().session(session.id)
    assert {each.id for each in elsewhere.open_calls()} == {"s", "c"}
    assert elsewhere.answer({"s": Deny("not today"), "c": "Yes."}).result().text == "Aye."
    assert last_tool_messages(model, prompt) == ["Tool call denied: not today", "Yes."]


def test_a_repeated_request_does_not_run_its_tool_again(connect: Connect, model: ModelServer) -> None:
    ran: list[str] = []

    def moor(boat: str) -> str:
        ran.append(boat)
        return "moored"

    prompt = model.script([steps.call("moor", {"boat": "Ada"}, id="m")], [steps.text("It is.")])
    session = connect().create_session("echo", tools=[moor])
    assert session.send(prompt, idempotency_key="k").result().text == "It is."
    with pytest.raises(Exception, match="Its end is in the history"):
        session.send(prompt, idempotency_key="k").result()
    assert ran == ["Ada"]


def test_a_decision_of_another_type_is_an_error_of_the_program(connect: Connect, model: ModelServer) -> None:
    prompt = model.script([steps.call("order_rope", {"metres": 2}, id="s")], [steps.text("never")])
    session = connect().create_session("pilot", enable=["order_rope"], permission=lambda _call: "yes")
    with pytest.raises(UsageError, match=r"permission\(\) must return True, False or Deny"):
        session.send(prompt).result()


def test_functions_run_in_the_thread_that_uses_the_synchronous_client(hall: Server, model: ModelServer) -> None:
    ran_in: list[threading.Thread] = []

    def where(deep: bool) -> str:
        ran_in.append(threading.current_thread())
        # The client is free for other requests meanwhile.
        return f"{deep} {len(client.agents())}"

    prompt = model.script([steps.call("where", {"deep": True}, id="w")], [steps.text("There.")])

    async def in_a_running_loop() -> str:
        return client.create_session("echo", tools=[where]).send(prompt).result().text

    with Client(hall.origin(), hall.keys.alice) as client:
        assert asyncio.run(in_a_running_loop()) == "There."
    assert ran_in == [threading.main_thread()]
