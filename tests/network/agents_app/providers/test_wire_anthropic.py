"""The provider ``anthropic`` on the wire, alone and under the agent loop, with what only this vendor says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents_app.runtime.interface import Finish, ThinkingDelta
from agents_app.runtime.messages import Message
from tests.fakes import steps
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.scripted_server import attempts
from tests.fakes.seals import seal
from tests.network.agents_app.providers.loop_host import Conversation
from tests.network.agents_app.providers.vendors import VENDORS, events, fault_of, request, said

VENDOR = VENDORS[0]
MODEL = "anthropic:claude-sonnet-4-5"
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 2048}}


@pytest.fixture
def claude() -> Iterator[AnthropicServer]:
    with AnthropicServer() as server:
        yield server


async def look(harbour: str = "") -> str:
    return f"full in {harbour}"


def sent(server: AnthropicServer, number: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = server.requests[number].body["messages"]
    return messages


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": seal("thinking", text)}


# --- under the loop ---


@pytest.mark.rule("A57", "A63")
async def test_three_steps_with_thinking_that_is_signed_sealed_and_interleaved(claude: AnthropicServer) -> None:
    script = claude.script(
        [
            steps.thinking("I look ", "twice."),
            steps.redacted(),
            steps.text("Looking."),
            steps.call("look", {"harbour": "Brest"}, pieces=4),
            steps.call("look", {"harbour": "Kiel"}),
        ],
        [steps.thinking("One more."), steps.text("Wait."), steps.thinking("Or not?"), steps.call("look", {"harbour": "Riga"})],
        [steps.thinking("Done."), steps.text("All full.")],
    )
    conversation = Conversation(claude, look=look)
    last = await conversation.turn(script, MODEL, settings=THINKS)
    assert [request.refused for request in claude.requests] == ["", "", ""]
    assert conversation.ends == [("end_turn", "")]
    assert (last.thinking, last.text) == ("Done.", "All full.")
    first = sent(claude, 1)[1]
    assert kinds(first) == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert first["content"][0] == thought("I look twice.")
    assert first["content"][1] == {"type": "redacted_thinking", "data": seal("redacted")}
    assert [block["content"] for block in sent(claude, 1)[2]["content"]] == [
        [{"type": "text", "text": "full in Brest"}],
        [{"type": "text", "text": "full in Kiel"}],
    ]
    second = sent(claude, 2)[3]
    assert kinds(second) == ["thinking", "text", "thinking", "tool_use"]
    assert (second["content"][0], second["content"][2]) == (thought("One more."), thought("Or not?"))
    # The second thought came after the first word of text: it is in the parts and not in the history.
    assert conversation.steps[1].thinking == "One more."
    assert [text for _, kind, text in conversation.steps[1].parts if kind == "thinking"] == ["One more.", "Or not?"]


async def test_a_step_without_thinking_goes_back_without(claude: AnthropicServer) -> None:
    script = claude.script(
        [steps.thinking("Twice."), steps.call("look", {"harbour": "Brest"})],
        [steps.call("look", {"harbour": "Kiel"})],
        [steps.text("Full.")],
    )
    conversation = Conversation(claude, look=look)
    await conversation.turn(script, MODEL, settings=THINKS)
    assert conversation.ends == [("end_turn", "")]
    assert [kinds(message) for message in sent(claude, 2)[1::2]] == [["thinking", "tool_use"], ["tool_use"]]
    # It thinks on: the turn began with a thought.
    assert [request.body["thinking"] for request in claude.requests] == [THINKS["thinking"]] * 3


async def test_thinking_that_is_not_shown_goes_back_with_its_signature(claude: AnthropicServer) -> None:
    script = claude.script([steps.thinking(), steps.call("look", {"harbour": "Brest"})], [steps.text("Full.")])
    conversation = Conversation(claude, look=look)
    await conversation.turn(script, MODEL, settings={"thinking": {"type": "adaptive", "display": "omitted"}})
    assert conversation.ends == [("end_turn", "")]
    assert sent(claude, 1)[1]["content"][0] == thought("")
    assert not any(kind == "thinking" for _, kind, _ in conversation.steps[0].parts)


async def test_what_was_thought_stays_with_its_model_and_comes_back_to_it(claude: AnthropicServer) -> None:
    script = claude.script([steps.thinking("Secretly."), steps.call("look", {"harbour": "Brest"})], [steps.text("Full.")])
    conversation = Conversation(claude, look=look)
    await conversation.turn(script, MODEL, settings=THINKS)
    await conversation.turn("and you?", "anthropic:claude-opus-4-1", settings=THINKS)
    await conversation.turn("and you again?", MODEL, settings=THINKS)
    assert [request.refused for request in claude.requests] == [""] * 4
    assert "Secretly" not in str(claude.requests[2].body)
    assert sent(claude, 3)[1]["content"][0] == thought("Secretly.")


async def test_a_second_turn_brings_the_first_one_along(claude: AnthropicServer) -> None:
    conversation = Conversation(claude, look=look)
    for number in range(3):
        script = claude.script(
            [steps.thinking(f"{number}"), steps.call("look", {"harbour": "Brest"})],
            [steps.thinking("so"), steps.text("Full.")],
        )
        await conversation.turn(script, MODEL, settings=THINKS)
    assert [request.refused for request in claude.requests] == [""] * 6
    assert conversation.ends == [("end_turn", "")] * 3
    assert len(sent(claude, 5)) == 11


@pytest.mark.rule("A85")
@pytest.mark.parametrize("end", [steps.error_object("busy", "overloaded_error"), steps.drop(), steps.close()])
async def test_a_message_broken_off_in_a_call_keeps_its_words_alone_and_the_next_turn_works(
    claude: AnthropicServer, end: steps.Step
) -> None:
    script = claude.script([steps.thinking("Hm."), steps.text("So"), steps.call("look"), end])
    conversation = Conversation(claude, look=look)
    message = await conversation.turn(script, MODEL, settings=THINKS)
    assert conversation.ends == [("error", "provider_failed")]
    assert (message.text, message.thinking, message.calls, message.broken) == ("So", "Hm.", [], True)
    again = await conversation.turn(claude.script([steps.text("Better.")]), MODEL, settings=THINKS)
    assert again.text == "Better."
    assert claude.requests[-1].refused == ""


@pytest.mark.rule("A86")
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (steps.finish("max_tokens"), "max_tokens"),
        (steps.finish("model_context_window_exceeded"), "max_tokens"),
        (steps.refusal(), "refusal"),
    ],
)
async def test_a_cut_message_drops_its_calls_and_the_next_turn_works(
    claude: AnthropicServer, end: steps.Step, reason: str
) -> None:
    script = claude.script([steps.thinking("Hm."), steps.text("So"), steps.call("look"), end])
    conversation = Conversation(claude, look=look)
    message = await conversation.turn(script, MODEL, settings=THINKS)
    assert conversation.ends == [(reason, "")]
    assert (message.text, message.calls) == ("So", [])
    await conversation.turn("and now?", MODEL, settings=THINKS)
    assert claude.requests[-1].refused == ""
    assert conversation.ends[-1] == ("end_turn", "")


@pytest.mark.rule("A86")
async def test_a_conversation_beyond_the_window_ends_as_max_tokens(claude: AnthropicServer) -> None:
    conversation = Conversation(claude)
    for words in (
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease input length or `max_tokens`",
    ):
        await conversation.turn(claude.script([steps.status(400, message=words)]), MODEL)
    await conversation.turn(claude.script([steps.status(413, message="Request exceeds the maximum size")]), MODEL)
    assert conversation.ends == [("max_tokens", "")] * 3


@pytest.mark.rule("A86")
async def test_a_filter_of_the_vendors_is_a_refusal(claude: AnthropicServer) -> None:
    script = claude.script([steps.status(400, message="Output blocked by content filtering policy")])
    conversation = Conversation(claude)
    await conversation.turn(script, MODEL)
    assert conversation.ends == [("refusal", "")]
    script = claude.script([steps.text("So"), steps.error_object("Output blocked by content filtering policy", "api_error")])
    await conversation.turn(script, MODEL)
    assert conversation.ends[-1] == ("refusal", "")


# --- alone ---


async def test_what_the_vendor_demands_is_sent(claude: AnthropicServer) -> None:
    await events(
        VENDOR, request(VENDOR, claude, Message("user", "x"), headers={"anthropic-beta": "interleaved-thinking-2025-05-14"})
    )
    headers = claude.requests[0].headers
    assert headers["x-api-key"] == "sk-canary-key"
    assert "authorization" not in headers
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
    body = claude.requests[0].body
    assert (body["stream"], body["system"], body["thinking"]) == (True, "Be brief.", {"type": "enabled", "budget_tokens": 2048})
    assert body["max_tokens"] > 2048


async def test_pings_and_kinds_nobody_knows_do_not_disturb(claude: AnthropicServer) -> None:
    unknown = (
        b'event: something_new\ndata: {"type":"something_new","x":1}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":7,"content_block":{"type":"server_tool_use",'
        b'"id":"srvtoolu_1","name":"web_search","input":{}}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta",'
        b'"partial_json":"{}"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":7}\n\n'
    )
    script = claude.script([steps.ping(), steps.raw(unknown), steps.text("a"), steps.ping(), steps.text("b")])
    found = said(await events(VENDOR, request(VENDOR, claude, Message("user", script))))
    assert (found.text, found.calls, found.reason) == ("ab", [], "stop")


async def test_a_call_without_arguments_is_an_empty_object(claude: AnthropicServer) -> None:
    script = claude.script([steps.thinking("x"), steps.call("look", "")], [steps.text("ok")])
    conversation = Conversation(claude, look=look)
    await conversation.turn(script, MODEL, settings=THINKS)
    assert sent(claude, 1)[1]["content"][1]["input"] == {}
    assert conversation.ends == [("end_turn", "")]


@pytest.mark.rule("A84")
@pytest.mark.parametrize("first", [steps.status(529), steps.status(500), steps.error_object("busy", "overloaded_error")])
async def test_an_overload_before_the_first_word_passes(claude: AnthropicServer, first: steps.Step) -> None:
    script = claude.script(attempts([first], [steps.text("ok")]))
    found = await events(VENDOR, request(VENDOR, claude, Message("user", script)))
    assert found[-1] == Finish("stop")
    assert len(claude.requests) == 2


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (steps.status(401, message="invalid x-api-key"), "configuration"),
        (steps.status(403), "configuration"),
        (steps.status(404, message="model: claude-x"), "configuration"),
        (steps.status(400, message="messages: at least one message is required"), "refused_request"),
        (steps.status(429, retry_after="3600"), "unavailable"),
        (steps.status(529), "unavailable"),
    ],
)
async def test_refusals_are_sorted(claude: AnthropicServer, step: steps.Step, fault: str) -> None:
    found = await fault_of(VENDOR, request(VENDOR, claude, Message("user", claude.script([step]))))
    assert found.fault == fault


async def test_thoughts_in_several_blocks_are_paragraphs(claude: AnthropicServer) -> None:
    script = claude.script([steps.thinking("one"), steps.thinking("two"), steps.text("ok")])
    found = await events(VENDOR, request(VENDOR, claude, Message("user", script)))
    assert "".join(event.text for event in found if isinstance(event, ThinkingDelta)) == "one\n\ntwo"
