"""Pending tool calls and how the chat answers them."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from agenthost.chat.calls import Decision, Denied, ScriptResponder, answer_calls
from agenthost.chat.screen import Screen
from agenthost.client.calls import Call, pending
from agenthost.client.tools import ClientTool, from_function


def use(call_id: str, name: str = "t") -> dict[str, Any]:
    return {"type": "tool_use", "toolCallId": call_id, "name": name, "input": {"a": 1}}


def test_calls_at_the_end_of_a_history_are_pending() -> None:
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "y"}, use("c1"), use("c2"), use("c3")]},
        {"role": "tool", "toolCallId": "c2", "content": "z"},
    ]
    assert list(pending(history)) == ["c1", "c3"]
    assert pending([*history, {"role": "assistant", "content": "done"}]) == {}
    assert pending([*history, {"role": "user", "content": "never mind"}]) == {}
    assert pending([]) == {}


class Scripted:
    """Returns prepared answers and records the calls."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions)
        self.asked: list[str] = []

    def permission(self, call: Call, *, others: int) -> Decision:
        self.asked.append(f"{call.id} {others}")
        return self.decisions.pop(0)

    def result(self, call: Call) -> str | Denied:
        self.asked.append(f"result {call.id}")
        return Denied("no idea") if call.id == "c9" else "by hand"

    def questions(self, call: Call) -> str | Denied:
        self.asked.append(f"questions {call.id}")
        return "{}"


def ask(responder: Any, *calls: Call, tools: dict[str, ClientTool] | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    screen = Screen(io.StringIO(), io.StringIO(), colour=False)
    with asyncio.Runner() as runner:
        given = answer_calls(
            calls,
            responder=responder,
            client_tools=tools or {},
            server_tools={"s", "s2", "ask_user"},
            screen=screen,
            runner=runner,
        )
    return given.messages, given.trusted


def permission(call_id: str, *, granted: bool, **more: str) -> dict[str, Any]:
    return {"role": "tool_permission", "toolCallId": call_id, "granted": granted, **more}


def test_each_kind_of_call_gets_its_answer() -> None:
    def mine(a: int) -> int:
        return a + 1

    responder = Scripted(Decision(granted=False, reason="no"))
    messages, _ = ask(
        responder,
        Call("c1", "mine", {"a": 1}),
        Call("c2", "s", {}),
        Call("c3", "ask_user", {"questions": [{"id": "q"}]}),
        Call("c4", "typed", {}),
        Call("c9", "unheard", {}),
        tools={"mine": from_function(mine), "typed": ClientTool("typed", "", {})},
    )
    assert messages == [
        {"role": "tool", "toolCallId": "c1", "content": "2"},
        permission("c2", granted=False, reason="no"),
        {"role": "tool", "toolCallId": "c3", "content": "{}"},
        {"role": "tool", "toolCallId": "c4", "content": "by hand"},
        permission("c9", granted=False, reason="no idea"),
    ]
    assert responder.asked == ["c2 0", "questions c3", "result c4", "result c9"]


def test_one_decision_can_apply_to_all_waiting_calls() -> None:
    responder = Scripted(Decision(granted=True, for_all=True))
    messages, trusted = ask(responder, Call("c1", "s", {}), Call("c2", "s2", {}), Call("c3", "s", {}))
    assert [message["granted"] for message in messages] == [True, True, True]
    assert responder.asked == ["c1 2"]
    assert trusted == []


def test_a_tool_that_was_just_trusted_needs_no_further_permission() -> None:
    responder = Scripted(Decision(granted=True, trusts=True), Decision(granted=False))
    messages, trusted = ask(responder, Call("c1", "s", {}), Call("c2", "s2", {}), Call("c3", "s", {}))
    assert [message["granted"] for message in messages] == [True, False, True]
    assert responder.asked == ["c1 2", "c2 1"]
    assert trusted == ["s"]


def test_in_a_script_calls_are_denied_unless_allowed() -> None:
    responder = ScriptResponder(["s"], Screen(io.StringIO(), io.StringIO(), colour=False))
    messages, _ = ask(responder, Call("c1", "s", {}), Call("c2", "s2", {}), Call("c3", "other", {}))
    assert [message["granted"] for message in messages] == [True, False, False]
    everything = ScriptResponder(["all"], Screen(io.StringIO(), io.StringIO(), colour=False))
    assert ask(everything, Call("c2", "s2", {}))[0] == [permission("c2", granted=True)]
