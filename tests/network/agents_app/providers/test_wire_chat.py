"""The provider ``openai-chat`` against a server as strict as OpenAI's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agents_app import providers
from agents_app.runtime.interface import ModelRequest, TextDelta
from agents_app.runtime.messages import Content, Message
from tests.fakes import steps
from tests.fakes.model_server import ModelServer
from tests.network.agents_app.providers.loop_host import LIMITS, Conversation
from tests.network.agents_app.providers.test_vendors import STRANGE

MODEL = "openai-chat:gpt-test"


@pytest.fixture
def strict() -> Iterator[ModelServer]:
    with ModelServer(strict=True) as server:
        yield server


async def look(harbour: str = "") -> Content:
    return f"full in {harbour}"


@pytest.mark.rule("A63")
async def test_steps_with_parallel_calls_after_thinking_are_taken_back(strict: ModelServer) -> None:
    script = strict.script(
        [steps.thinking("Twice."), steps.text("Looking."), steps.call("look", {"harbour": "Brest"}), steps.call("look", {})],
        [steps.call("look", {"harbour": "Riga"}), steps.call("unknown", "[1]"), steps.call("look", "not json")],
        [steps.text("Full.")],
    )
    conversation = Conversation(strict, look=look)
    last = await conversation.turn(script, MODEL)
    await conversation.turn("and now?", MODEL)
    assert [request.refused for request in strict.requests] == [""] * 4
    assert (last.text, conversation.ends) == ("Full.", [("end_turn", "")] * 2)
    assert [message["role"] for message in strict.requests[2].messages] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool", "tool", "tool")
    ]


@pytest.mark.parametrize("kind", STRANGE)
async def test_a_strange_history_is_taken(strict: ModelServer, kind: str) -> None:
    provider = providers.find("openai-chat")
    assert provider is not None
    messages = [*STRANGE[kind], Message("user", "and now?")]
    asked = ModelRequest("m", "Be brief.", messages, base_url=strict.url, limits=LIMITS)
    found = [event async for batch in provider.stream(asked) for event in batch]
    assert strict.requests[0].refused == ""
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == "echo: and now?"


async def test_ids_of_another_vendor_that_are_too_long_are_shortened_alike(strict: ModelServer) -> None:
    provider = providers.find("openai-chat")
    assert provider is not None
    long, dotted = "toolu_" + "x" * 80, "functions.look:0"
    calls = [{"type": "tool_use", "toolCallId": each, "name": "look", "input": {}} for each in (long, dotted)]
    messages = [Message("user", "x"), Message("assistant", calls), Message("tool", "a", long), Message("tool", "b", dotted)]
    asked = ModelRequest("m", "", messages, base_url=strict.url, limits=LIMITS)
    assert [batch async for batch in provider.stream(asked)]
    sent = strict.requests[0]
    assert sent.refused == ""
    assert [message["tool_call_id"] for message in sent.messages[2:]] == [call["id"] for call in sent.messages[1]["tool_calls"]]
    assert sent.messages[3]["tool_call_id"] == dotted
