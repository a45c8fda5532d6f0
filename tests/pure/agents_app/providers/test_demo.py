"""The scripted guide: what a newcomer sees without any account."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agents_app import registry
from agents_app.providers import find
from agents_app.runtime.interface import Finish, ModelRequest, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from agents_app.runtime.messages import Message, ToolSchema
from agents_app.tools.arithmetic import calculator
from agents_app.tools.clock import current_time
from agents_app.tools.signature import describe

OWN = [ToolSchema("calculator", *describe(calculator)), ToolSchema("current_time", *describe(current_time))]
THEIRS = ToolSchema(
    "open_door",
    "",
    {"type": "object", "properties": {"door": {"enum": ["left"]}, "turns": {"type": "integer"}}, "required": ["door", "turns"]},
)


async def said(*messages: Message, tools: Sequence[ToolSchema] = (), **settings: Any) -> list[ProviderEvent]:
    provider = find("demo")
    assert provider is not None
    asked = ModelRequest("guide", "", messages, tools, settings={"delay": 0, **settings})
    return [event async for batch in provider.stream(asked) for event in batch]


def text(found: Sequence[ProviderEvent]) -> str:
    return "".join(event.text for event in found if isinstance(event, TextDelta))


def calls(found: Sequence[ProviderEvent]) -> list[tuple[str | None, Any]]:
    out: dict[int, tuple[str | None, str]] = {}
    for event in found:
        if isinstance(event, ToolCallDelta):
            name, arguments = out.get(event.index, (None, ""))
            out[event.index] = (name or event.name, arguments + event.arguments)
    return [(name, json.loads(arguments)) for name, arguments in out.values()]


async def test_it_says_that_no_model_is_behind_it_thinks_aloud_and_speaks_word_by_word() -> None:
    found = await said(Message("user", "Hello"), name="Ada")
    assert "no model" in text(found)
    assert "Ada" in text(found)
    assert any(isinstance(event, ThinkingDelta) for event in found)
    assert max(len(event.text.split()) for event in found if isinstance(event, TextDelta)) == 1
    assert found[-1] == Finish("stop")


async def test_the_same_request_gets_the_same_answer() -> None:
    assert await said(Message("user", "Hi"), tools=OWN) == await said(Message("user", "Hi"), tools=OWN)


async def test_a_sum_goes_to_the_calculator_and_its_result_is_told() -> None:
    asked = Message("user", "What is 17 times (4 + 2)?")
    found = await said(asked, tools=OWN)
    assert calls(found) == [("calculator", {"expression": "17 * (4 + 2)"})]
    assert found[-1] == Finish("tool_calls")
    made = Message(
        "assistant", [{"type": "tool_use", "toolCallId": "c", "name": "calculator", "input": {"expression": "17 * (4 + 2)"}}]
    )
    after = await said(asked, made, Message("tool", "102", tool_call_id="c"), tools=OWN)
    assert "102" in text(after)
    assert after[-1] == Finish("stop")


async def test_a_sum_without_the_calculator_explains_how_to_switch_it_on() -> None:
    found = await said(Message("user", "2+2"))
    assert not calls(found)
    assert '"calculator"' in text(found)


async def test_the_time_asks_for_a_permission_and_a_denial_is_taken_well() -> None:
    asked = Message("user", "What time is it?")
    assert calls(await said(asked, tools=OWN)) == [("current_time", {"timezone": "UTC"})]
    made = Message("assistant", [{"type": "tool_use", "toolCallId": "c", "name": "current_time", "input": {}}])
    after = await said(asked, made, Message("tool", "Tool call denied: no", tool_call_id="c"), tools=OWN)
    assert "did not allow" in text(after)


async def test_tools_calls_the_clients_tool_beside_its_own_with_fitting_arguments() -> None:
    found = await said(Message("user", "show me tools"), tools=[*OWN, THEIRS])
    assert calls(found)[0] == ("open_door", {"door": "left", "turns": 1})
    assert [name for name, _ in calls(found)] == ["open_door", "calculator", "current_time"]


async def test_it_counts_so_that_it_can_be_stopped() -> None:
    assert re.findall(r"\d+", text(await said(Message("user", "count to 5"))).split("\n")[-1]) == list("12345")


async def test_an_image_is_noticed() -> None:
    blocks = [{"type": "image", "url": "https://images.example/a.png"}]
    assert "1 image" in text(await said(Message("user", blocks)))


async def test_the_demo_agent_is_served_with_everything_switched_on() -> None:
    spec = registry.find("demo")
    assert spec is not None
    assert (spec.history, spec.stream) == (("compacted", "full"), ("delta", "message", "none"))
    assert spec.client_tools
    assert spec.images == ("http", "data")
    assert [tool.name for tool in spec.exposed_tools] == ["calculator", "current_time"]
    assert sorted(option.type for option in spec.options) == ["secret", "select", "text"]
