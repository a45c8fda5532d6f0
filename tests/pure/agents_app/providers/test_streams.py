"""What vendors stream beyond text, thoughts and calls, read from their own words without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents_app.providers import anthropic_request, google_request, responses_request
from agents_app.providers.answer_reader import AnswerReader
from agents_app.providers.anthropic_stream import AnthropicStream
from agents_app.providers.google_stream import GoogleStream
from agents_app.providers.responses_stream import ResponsesStream
from agents_app.providers.server_errors import ServerError
from agents_app.runtime.interface import ModelRequest, ProviderEvent
from agents_app.runtime.messages import Message
from tests.network.agents_app.providers.vendors import LOOK, Said, said


def read(reading: AnswerReader, *documents: dict[str, Any]) -> Said:
    found: list[ProviderEvent] = []
    for document in documents:
        found += reading.read([[json.dumps(document).encode()]])
    found += reading.end() or []
    return said(found)


def asked(model: str, *messages: Message, **settings: Any) -> ModelRequest:
    return ModelRequest(model, "", list(messages) or [Message("user", "hi")], [LOOK], settings, full_model=f"x:{model}")


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}


def test_tools_that_ran_at_anthropic_are_left_out() -> None:
    found = read(
        AnthropicStream(),
        start(0, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        delta(0, type="input_json_delta", partial_json='{"query":"x"}'),
        start(1, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "web_search_result"}]),
        start(2, type="text", text=""),
        delta(2, type="text_delta", text="found"),
        delta(2, type="citations_delta", citation={"cited_text": "x"}),
        STOP,
    )
    assert (found.text, found.calls, found.reason) == ("found", [], "stop")


def test_thoughts_of_two_blocks_are_two_paragraphs_and_go_back_apart() -> None:
    found = read(
        AnthropicStream(),
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="one"),
        delta(0, type="signature_delta", signature="s1"),
        start(1, type="thinking", thinking="two", signature="s2"),
        start(2, type="tool_use", id="t", name="look", input={"n": 1.0}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert found.thinking == "one\n\ntwo"
    assert found.calls == [("t", "look", '{"n":1.0}')]
    again = asked("c", Message("user", "hi"), found.message("x:c"), Message("tool", "full", tool_call_id="t"))
    sent = json.loads(anthropic_request.body(again))["messages"][1]["content"]
    assert [(block.get("thinking"), block.get("signature")) for block in sent[:2]] == [("one", "s1"), ("two", "s2")]


def test_a_message_that_was_given_up_in_part_keeps_its_thoughts_first() -> None:
    found = read(
        AnthropicStream(),
        start(0, type="text", text="so"),
        start(1, type="thinking", thinking="hm", signature="s"),
        start(2, type="tool_use", id="t", name="look", input={}),
        STOP,
    )
    found.calls.clear()
    sent = json.loads(anthropic_request.body(asked("c", Message("user", "hi"), found.message("x:c"), Message("user", "on"))))
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["thinking", "text"]


CALL = Message("assistant", [{"type": "tool_use", "toolCallId": "t", "name": "look", "input": {}}])


def test_claude_does_not_think_on_calls_of_another_model() -> None:
    budget = {"type": "enabled", "budget_tokens": 2000}
    history = [Message("user", "hi"), CALL, Message("tool", "full", tool_call_id="t")]
    assert "thinking" not in json.loads(anthropic_request.body(asked("c", *history, thinking=budget)))
    answered = [*history, Message("assistant", "ok"), Message("user", "on")]
    assert json.loads(anthropic_request.body(asked("c", *answered, thinking=budget)))["thinking"] == budget


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        ("claude-sonnet-4-5", "high", {"thinking": {"type": "enabled", "budget_tokens": 16384}, "max_tokens": 24576}),
        ("claude-opus-4-20250514", "low", {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 16384}),
        (
            "claude-opus-4-7",
            "high",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "max_tokens": 16384},
        ),
        ("claude-3-haiku-20240307", "none", {"thinking": {"type": "disabled"}, "max_tokens": 4096}),
    ],
)
def test_how_hard_claude_thinks(model: str, effort: str, expected: dict[str, Any]) -> None:
    body = json.loads(anthropic_request.body(asked(model, reasoning_effort=effort)))
    assert {name: body[name] for name in ("thinking", "output_config", "max_tokens") if name in body} == expected


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("gemini-2.5-flash", {"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        ("gemini-2.5-pro", {"reasoning_effort": "none"}, {"includeThoughts": True, "thinkingBudget": 128}),
        ("gemini-3-pro", {"reasoning_effort": "minimal"}, {"includeThoughts": True, "thinkingLevel": "low"}),
        ("gemini-3-flash", {"reasoning_effort": "none"}, {"includeThoughts": True, "thinkingLevel": "minimal"}),
        ("gemini-2.5-pro", {"thinking_config": {"thinking_budget": 99}}, {"includeThoughts": True, "thinkingBudget": 99}),
        ("gemini-2.0-flash", {}, None),
    ],
)
def test_how_hard_gemini_thinks(model: str, settings: dict[str, Any], expected: dict[str, Any] | None) -> None:
    config = json.loads(google_request.body(asked(model, **settings))).get("generationConfig", {})
    assert config.get("thinkingConfig") == expected


def item(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


DONE = {"type": "response.completed", "response": {"status": "completed", "output": []}}


def test_what_openais_own_tools_did_goes_back_between_its_thoughts() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed", "status": None}
    found = read(
        ResponsesStream(),
        item(0, **thought),
        item(1, **search),
        item(2, type="message", id="msg_1", phase="final_answer", content=[{"type": "output_text", "text": "found"}]),
        DONE,
    )
    assert (found.text, found.calls) == ("found", [])
    sent = json.loads(responses_request.body(asked("gpt-5", Message("user", "hi"), found.message("x:gpt-5"))))["input"]
    assert sent[1:] == [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        search,
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "id": "msg_1",
            "phase": "final_answer",
            "content": [{"type": "output_text", "text": "found", "annotations": []}],
        },
    ]


def test_without_sealed_reasoning_no_item_is_named_again() -> None:
    found = read(
        ResponsesStream(),
        item(0, type="reasoning", id="rs_1", summary=[{"type": "summary_text", "text": "hm"}]),
        item(1, type="function_call", id="fc_1", call_id="call_1", name="look", arguments='{"a": 1}'),
        DONE,
    )
    assert (found.thinking, found.calls, found.opaque) == ("hm", [("call_1", "look", '{"a": 1}')], [])


def test_a_server_that_tells_each_thing_when_it_is_done_is_understood() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": ""}
    found = read(
        ResponsesStream(),
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m"}},
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "ok"},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": '{"a": 1}'},
        item(1, **{**call, "arguments": '{"a": 1}'}),
        DONE,
    )
    assert (found.text, found.calls) == ("ok", [("c", "look", '{"a": 1}')])


def test_a_server_that_tells_all_at_the_end_is_understood() -> None:
    output = [
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        },
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": "{}"},
    ]
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 3}}
    found = read(
        ResponsesStream(),
        {"type": "response.created", "response": {"status": "in_progress", "output": []}},
        {"type": "response.completed", "response": {"status": "completed", "output": output, "usage": usage}},
    )
    assert (found.thinking, found.text, found.calls, found.reason) == ("a\n\nb", "ok", [("c", "look", "{}")], "tool_calls")
    assert found.usage is not None
    assert (found.usage.input_tokens, found.usage.cache_read_tokens) == (9, 3)


REASONS = {
    "gpt-5.2": True,
    "o4-mini": True,
    "gpt-oss:20b": True,
    "gpt-4.1": False,
    "gpt-4o": False,
    "openai/gpt-5-chat-latest": False,
}


@pytest.mark.parametrize(("model", "asks"), REASONS.items())
def test_reasoning_is_asked_of_models_that_reason(model: str, asks: bool) -> None:
    assert ("include" in json.loads(responses_request.body(asked(model)))) is asks


def part(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}]}


def test_tools_that_ran_at_google_are_left_out_and_exact_numbers_stay() -> None:
    found = read(
        GoogleStream(),
        part({"executableCode": {"language": "PYTHON", "code": "1"}}),
        part({"codeExecutionResult": {"outcome": "OUTCOME_OK"}}),
        part({"inlineData": {"mimeType": "image/png", "data": "x"}}),
        part({"text": "ok"}, {"functionCall": {"name": "look", "args": {"n": 12345678901234567890123}}}, finishReason="STOP"),
    )
    assert (found.text, found.reason) == ("ok", "tool_calls")
    assert found.calls == [("made_0", "look", '{"n":12345678901234567890123}')]


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "OTHER"])
def test_an_answer_that_google_spoilt_is_none(reason: str) -> None:
    with pytest.raises(ServerError) as caught:
        read(GoogleStream(), part(finishReason=reason))
    assert caught.value.passing


def test_signatures_of_gemini_go_back_on_their_parts_and_a_missing_one_is_stood_in_for() -> None:
    found = read(
        GoogleStream(),
        part({"text": "Loo"}),
        part({"text": "king."}),
        part({"text": "", "thoughtSignature": "dGV4dA=="}),
        part({"functionCall": {"name": "look", "args": {}, "id": "g1"}, "thoughtSignature": "Y2FsbA=="}),
        part({"functionCall": {"name": "look", "args": {"a": 1}, "id": "g2"}}, finishReason="STOP"),
    )
    history = [
        Message("user", "hi"),
        found.message("x:gemini-3-pro"),
        *(Message("tool", "full", tool_call_id=call) for call in ("g1", "g2")),
    ]
    _, said_, answers = json.loads(google_request.body(asked("gemini-3-pro", *history)))["contents"]
    assert said_["parts"] == [
        {"text": "Looking."},
        {"text": "", "thoughtSignature": "dGV4dA=="},
        {"functionCall": {"name": "look", "args": {}, "id": "g1"}, "thoughtSignature": "Y2FsbA=="},
        {"functionCall": {"name": "look", "args": {"a": 1}, "id": "g2"}},
    ]
    assert [part["functionResponse"]["id"] for part in answers["parts"]] == ["g1", "g2"]
    _, said_, answers = json.loads(google_request.body(asked("gemini-3-flash", *history)))["contents"]
    assert [part.get("thoughtSignature") for part in said_["parts"]] == [None, google_request.NO_SIGNATURE, None]
    assert "id" not in answers["parts"][0]["functionResponse"]
