"""The provider ``openai-responses`` on the wire, alone and under the agent loop, with what only this vendor says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents_app.runtime.interface import Finish
from agents_app.runtime.messages import Message
from tests.fakes import steps
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.scripted_server import attempts
from tests.fakes.seals import seal
from tests.network.agents_app.providers.loop_host import Conversation
from tests.network.agents_app.providers.vendors import VENDORS, events, fault_of, request, said

VENDOR = VENDORS[1]
MODEL = "openai-responses:gpt-5.2"


@pytest.fixture
def gpt() -> Iterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


async def look(harbour: str = "") -> str:
    return f"full in {harbour}"


def sent(server: ResponsesServer, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.requests[number].body["input"]
    return items


def kinds(items: list[dict[str, Any]]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


# --- under the loop ---


@pytest.mark.rule("A57", "A63")
async def test_three_steps_give_each_reasoning_item_back_before_what_follows_it(gpt: ResponsesServer) -> None:
    script = gpt.script(
        [
            steps.thinking("I look ", signed=False),
            steps.thinking("twice."),
            steps.text("Looking."),
            steps.call("look", {"harbour": "Brest"}, pieces=4),
            steps.call("look", {"harbour": "Kiel"}),
        ],
        [steps.thinking("One more."), steps.call("look", {"harbour": "Riga"}), steps.thinking("Sure."), steps.text("Wait.")],
        [steps.text("All full.")],
    )
    conversation = Conversation(gpt, look=look)
    last = await conversation.turn(script, MODEL)
    assert [request.refused for request in gpt.requests] == ["", "", ""]
    assert conversation.ends == [("end_turn", "")]
    assert (last.thinking, last.text) == ("", "All full.")
    assert conversation.steps[0].thinking == "I look \n\ntwice."
    items = sent(gpt, 2)
    assert kinds(items) == [
        *("user", "reasoning", "message", "function_call", "function_call"),
        *("function_call_output", "function_call_output"),
        *("reasoning", "function_call", "reasoning", "message", "function_call_output"),
    ]
    assert items[1]["encrypted_content"] == seal("reasoning", items[1]["id"])
    assert [part["text"] for part in items[1]["summary"]] == ["I look ", "twice."]
    assert [item["output"] for item in items if item.get("type") == "function_call_output"] == [
        *("full in Brest", "full in Kiel", "full in Riga")
    ]


async def test_reasoning_without_a_word_of_it_goes_back_too(gpt: ResponsesServer) -> None:
    script = gpt.script([steps.thinking(), steps.call("look", {"harbour": "Brest"})], [steps.text("Full.")])
    conversation = Conversation(gpt, look=look)
    await conversation.turn(script, MODEL)
    assert conversation.ends == [("end_turn", "")]
    assert kinds(sent(gpt, 1)) == ["user", "reasoning", "function_call", "function_call_output"]
    assert (conversation.steps[0].thinking, sent(gpt, 1)[1]["summary"]) == ("", [])


async def test_what_was_thought_stays_with_its_model_and_comes_back_to_it(gpt: ResponsesServer) -> None:
    script = gpt.script([steps.thinking("Secretly."), steps.call("look", {"harbour": "Brest"})], [steps.text("Full.")])
    conversation = Conversation(gpt, look=look)
    await conversation.turn(script, MODEL)
    await conversation.turn("and you?", "openai-responses:gpt-4.1")
    await conversation.turn("and you again?", MODEL)
    assert [request.refused for request in gpt.requests] == [""] * 4
    assert "Secretly" not in json.dumps(sent(gpt, 2))
    assert not any("id" in item for item in sent(gpt, 2))
    assert kinds(sent(gpt, 3))[:3] == ["user", "reasoning", "function_call"]


@pytest.mark.rule("A85")
@pytest.mark.parametrize("end", [steps.error_object(), steps.failed("x"), steps.drop(), steps.close()])
async def test_a_message_broken_off_in_a_call_keeps_its_words_alone_and_the_next_turn_works(
    gpt: ResponsesServer, end: steps.Step
) -> None:
    script = gpt.script([steps.thinking("Hm."), steps.text("So"), steps.call("look"), end])
    conversation = Conversation(gpt, look=look)
    message = await conversation.turn(script, MODEL)
    assert conversation.ends == [("error", "provider_failed")]
    assert (message.text, message.thinking, message.calls, message.broken) == ("So", "Hm.", [], True)
    assert (await conversation.turn(gpt.script([steps.text("Better.")]), MODEL)).text == "Better."
    assert gpt.requests[-1].refused == ""


@pytest.mark.rule("A86")
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (steps.finish("max_output_tokens"), "max_tokens"),
        (steps.finish("content_filter"), "refusal"),
        (steps.refusal(" I won't."), "refusal"),
        (steps.failed("too long", "context_length_exceeded"), "max_tokens"),
        (steps.failed("flagged", "invalid_prompt"), "refusal"),
    ],
)
async def test_a_cut_message_drops_its_calls_and_the_next_turn_works(gpt: ResponsesServer, end: steps.Step, reason: str) -> None:
    script = gpt.script([steps.thinking("Hm."), steps.text("So"), steps.call("look"), end])
    conversation = Conversation(gpt, look=look)
    message = await conversation.turn(script, MODEL)
    assert conversation.ends == [(reason, "")]
    assert message.text.startswith("So")
    assert message.calls == []
    await conversation.turn("and now?", MODEL)
    assert gpt.requests[-1].refused == ""
    assert conversation.ends[-1] == ("end_turn", "")


@pytest.mark.rule("A86")
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (steps.overflow(), "max_tokens"),
        (steps.failed("Your input exceeds the context window", "context_length_exceeded"), "max_tokens"),
        (steps.status(400, message="Invalid prompt: your prompt was flagged", code="invalid_prompt"), "refusal"),
        (steps.failed("flagged", "invalid_prompt"), "refusal"),
        (steps.failed("flagged", "bio_policy"), "refusal"),
    ],
)
async def test_what_is_refused_before_the_first_word_is_no_error(gpt: ResponsesServer, step: steps.Step, reason: str) -> None:
    conversation = Conversation(gpt)
    await conversation.turn(gpt.script([step]), MODEL)
    assert conversation.ends == [(reason, "")]
    assert len(gpt.requests) == 1


# --- alone ---


async def test_what_the_vendor_demands_is_sent_and_nothing_is_to_be_kept(gpt: ResponsesServer) -> None:
    await events(VENDOR, request(VENDOR, gpt, Message("user", "x")))
    asked = gpt.requests[0]
    assert asked.headers["authorization"] == "Bearer sk-canary-key"
    assert (asked.body["store"], asked.body["stream"], asked.body["instructions"]) == (False, True, "Be brief.")
    assert "previous_response_id" not in asked.body


async def test_numbers_and_names_in_arguments_stay_exact(gpt: ResponsesServer) -> None:
    written = '{"n":123456789012345678901,"f":1.0,"ship":"\U0001f6a2"}'
    script = gpt.script([steps.cut_every(1), steps.call("look", written, pieces=9)])
    found = said(await events(VENDOR, request(VENDOR, gpt, Message("user", script))))
    assert found.calls[0][2] == written


async def test_events_and_items_nobody_knows_do_not_disturb(gpt: ResponsesServer) -> None:
    unknown = b'event: response.x\ndata: {"type":"response.x","sequence_number":99}\n\n' + (
        b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":7,"item":'
        b'{"type":"web_search_call","id":"ws_1","status":"in_progress"}}\n\n'
        b'event: response.output_item.done\ndata: {"type":"response.output_item.done","output_index":7,"item":'
        b'{"type":"web_search_call","id":"ws_1","status":"completed"}}\n\n'
    )
    script = gpt.script([steps.ping(), steps.raw(unknown), steps.text("a"), steps.ping(), steps.text("b")])
    found = said(await events(VENDOR, request(VENDOR, gpt, Message("user", script))))
    assert (found.text, found.calls, found.reason) == ("ab", [], "stop")


@pytest.mark.rule("A84")
@pytest.mark.parametrize("first", [steps.status(500), steps.error_object(), steps.failed("x"), steps.drop()])
async def test_a_failure_before_the_first_word_passes(gpt: ResponsesServer, first: steps.Step) -> None:
    script = gpt.script(attempts([first], [steps.text("ok")]))
    found = await events(VENDOR, request(VENDOR, gpt, Message("user", script)))
    assert found[-1] == Finish("stop")
    assert len(gpt.requests) == 2


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (steps.status(401), "configuration"),
        (steps.status(403), "configuration"),
        (steps.status(404), "configuration"),
        (steps.status(400, message="Unsupported parameter: 'temperature'"), "refused_request"),
        (steps.status(429, message="You exceeded your current quota", code="insufficient_quota"), "unavailable"),
    ],
)
async def test_refusals_are_sorted_and_not_tried_again(gpt: ResponsesServer, step: steps.Step, fault: str) -> None:
    found = await fault_of(VENDOR, request(VENDOR, gpt, Message("user", gpt.script([step]))))
    assert found.fault == fault
    assert len(gpt.requests) == 1


@pytest.mark.rule("A86")
async def test_a_last_thought_that_led_to_nothing_spoils_no_later_turn(gpt: ResponsesServer) -> None:
    script = gpt.script([steps.text("So far."), steps.thinking("And then?"), steps.finish("max_output_tokens")])
    conversation = Conversation(gpt)
    await conversation.turn(script, MODEL)
    await conversation.turn("and now?", MODEL)
    assert conversation.ends == [("max_tokens", ""), ("end_turn", "")]
    assert [request.refused for request in gpt.requests] == ["", ""]
