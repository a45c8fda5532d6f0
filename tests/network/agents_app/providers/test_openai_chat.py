"""The provider ``openai-chat`` against the scripted model server and against odd servers on raw sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agents_app.errors import ProviderError
from agents_app.providers.openai_chat import OpenAIChat
from agents_app.runtime.interface import (
    Finish,
    Limits,
    ModelRequest,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import Message, ToolSchema
from tests.fakes import steps
from tests.fakes.model_server import ModelServer, attempts
from tests.fakes.odd_server import saying, server

LIMITS = Limits(connect=60.0, first_output=90.0, between_outputs=90.0)


def request(url: str, text: str = "hello", **changes: Any) -> ModelRequest:
    made = ModelRequest(
        model="gpt-test",
        instructions="",
        messages=[Message("user", text)],
        api_key="sk-canary-key",
        base_url=url,
        limits=LIMITS,
    )
    return replace(made, **changes)


async def batches(asked: ModelRequest) -> list[list[ProviderEvent]]:
    return [batch async for batch in OpenAIChat().stream(asked)]


async def events(asked: ModelRequest) -> list[ProviderEvent]:
    return [event for batch in await batches(asked) for event in batch]


def text_in(found: Sequence[ProviderEvent]) -> str:
    return "".join(event.text for event in found if isinstance(event, TextDelta))


def calls_in(found: Sequence[ProviderEvent]) -> list[tuple[str | None, str | None, str]]:
    """(id, name, arguments) of each call, pieces joined."""
    calls: dict[int, tuple[str | None, str | None, str]] = {}
    for event in found:
        if isinstance(event, ToolCallDelta):
            known = calls.get(event.index, (None, None, ""))
            calls[event.index] = (known[0] or event.id, known[1] or event.name, known[2] + event.arguments)
    return [calls[index] for index in sorted(calls)]


async def fault_of(asked: ModelRequest) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await events(asked)
    return caught.value


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


async def heard(*pieces: bytes, kind: str = "text/event-stream") -> list[ProviderEvent]:
    async with server(saying(*pieces, kind=kind)) as url:
        return await events(request(url, limits=replace(LIMITS, retries=0)))


# --- what is sent ---


async def test_the_server_gets_model_key_settings_and_tools_as_configured(model: ModelServer) -> None:
    script = model.script([steps.text("ok")])
    asked = request(
        model.url,
        script,
        instructions="Be brief.",
        settings={"temperature": 0.25},
        headers={"X-Team": "blue"},
        tools=[ToolSchema("sum", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}), ToolSchema("bare", "")],
    )
    await events(asked)
    sent = model.wait_request(script)
    assert sent.api_key == "sk-canary-key"
    assert sent.headers["x-team"] == "blue"
    assert sent.headers["accept-encoding"] == "identity"
    assert sent.body == {
        "temperature": 0.25,
        "model": "gpt-test",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": script}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "sum",
                    "description": "Adds.",
                    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
                },
            },
            {
                "type": "function",
                "function": {"name": "bare", "description": "", "parameters": {"type": "object", "properties": {}}},
            },
        ],
    }


async def test_without_a_key_no_authorization_is_sent(model: ModelServer) -> None:
    script = model.script([steps.text("ok")])
    await events(request(model.url, script, api_key=None))
    assert "authorization" not in model.wait_request(script).headers


async def test_a_header_of_the_operator_replaces_our_own_authorization(model: ModelServer) -> None:
    script = model.script([steps.text("ok")])
    await events(request(model.url, script, headers={"authorization": "Basic abc"}))
    assert model.wait_request(script).headers["authorization"] == "Basic abc"


async def test_a_header_value_with_a_line_break_is_refused_and_not_sent() -> None:
    fault = await fault_of(request("http://127.0.0.1:9/v1", headers={"X-Team": "blue\r\nX-Evil: 1"}))
    assert fault.fault == "configuration"
    assert "Evil" not in str(fault)


# --- what comes back ---


async def test_text_thinking_calls_and_usage_arrive_in_order(model: ModelServer) -> None:
    script = model.script(
        [
            steps.thinking("hm", "mm"),
            steps.text("Hel", "lo"),
            steps.call("sum", {"a": 1}, id="c1", pieces=3),
            steps.usage(11, 7, cached=3),
        ]
    )
    found = await events(request(model.url, script))
    assert "".join(event.text for event in found if isinstance(event, ThinkingDelta)) == "hmmm"
    assert text_in(found) == "Hello"
    assert calls_in(found) == [("c1", "sum", '{"a": 1}')]
    assert found[-2:] == [Usage(11, 7, 3), Finish("tool_calls")]


async def test_what_arrived_together_is_one_batch_and_later_text_another(model: ModelServer) -> None:
    pair = chunk({"content": "one "}) + chunk({"content": "two "})
    script = model.script([steps.raw(pair), steps.gate("between"), steps.text("three")])
    model.close_gate("between")
    stream = OpenAIChat().stream(request(model.url, script))
    assert await anext(stream) == [TextDelta("one two ")]
    model.open_gate("between")
    assert [batch async for batch in stream] == [[TextDelta("three")], [Usage(10, 1, 0), Finish("stop")]]


@pytest.mark.rule("A10")
@pytest.mark.parametrize("at", range(1, 24))
async def test_a_character_cut_between_chunks_arrives_whole(model: ModelServer, at: int) -> None:
    text = "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u202e\u05e9\u05dc\u05d5\u05dd\u2028"
    script = model.script(steps.split_text(text, at))
    assert text_in(await events(request(model.url, script))) == text


async def test_crlf_comments_other_fields_and_a_byte_order_mark_do_not_disturb() -> None:
    body = chunk({"content": "a"}).replace(b"\n", b"\r\n")
    found = await heard(
        b"\xef\xbb\xbf: keep-alive\r\n\r\nevent: message\r\nid: 7\r\nretry: 1\r\n" + body[:-3],
        body[-3:-1],
        body[-1:] + b":\n\ndata:" + chunk({"content": "b"})[6:],
        chunk({}, "stop") + b"data: [DONE]\n\n",
    )
    assert text_in(found) == "ab"
    assert found[-1] == Finish("stop")


async def test_events_without_an_empty_line_between_them_are_read() -> None:
    found = await heard(chunk({"content": "a"})[:-1] + chunk({"content": "b"})[:-1] + chunk({}, "stop")[:-1] + b"data: [DONE]")
    assert text_in(found) == "ab"


async def test_no_done_at_the_end_is_fine_after_a_finish_reason() -> None:
    found = await heard(chunk({"content": "a"}), chunk({}, "stop"))
    assert found == [TextDelta("a"), Finish("stop")]


async def test_an_end_without_finish_reason_or_done_is_a_broken_stream(model: ModelServer) -> None:
    script = model.script([steps.text("half of"), steps.close()])
    assert (await fault_of(request(model.url, script))).fault == "broken_stream"


async def test_reasoning_under_its_other_name_is_thinking() -> None:
    found = await heard(chunk({"reasoning": "hm", "content": None}), chunk({"content": "a"}, "stop"), b"data: [DONE]\n\n")
    assert found == [ThinkingDelta("hm"), TextDelta("a"), Finish("stop")]


async def test_content_in_parts_is_text_and_thinking() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "a"}]
    assert await heard(chunk({"content": parts}, "stop")) == [ThinkingDelta("hm"), TextDelta("a"), Finish("stop")]


async def test_empty_choices_other_choices_and_null_deltas_are_passed_over() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}
    found = await heard(
        b'data: {"choices": []}\n\n',
        b"data: " + json.dumps({"choices": [other]}).encode() + b"\n\n",
        b'data: {"choices": [{"delta": null}], "usage": null}\n\n',
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "a"}, "stop"),
    )
    assert found == [TextDelta("a"), Finish("stop")]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("stop", "stop"), ("length", "max_tokens"), ("content_filter", "refusal"), ("something_new", "stop")],
)
@pytest.mark.rule("A86")
async def test_finish_reasons_keep_their_meaning(reason: str, expected: str) -> None:
    assert (await heard(chunk({"content": "a"}), chunk({}, reason)))[-1] == Finish(expected)  # type: ignore[arg-type]


@pytest.mark.rule("A86")
async def test_a_refusal_is_text_and_ends_as_refusal() -> None:
    found = await heard(chunk({"refusal": "I must "}), chunk({"refusal": "not."}), chunk({}, "stop"))
    assert text_in(found) == "I must not."
    assert found[-1] == Finish("refusal")


async def test_usage_in_every_chunk_counts_once_and_missing_usage_is_no_fault() -> None:
    growing = [chunk({"content": str(n)}, usage={"prompt_tokens": 5, "completion_tokens": n}) for n in range(3)]
    found = await heard(*growing, chunk({}, "stop"))
    assert [event for event in found if isinstance(event, Usage)] == [Usage(5, 2, 0)]


def call_piece(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name",) if key in fields}
    if arguments is not None:
        function["arguments"] = arguments
    return {**fields, "function": function}


async def test_calls_interleaved_by_index_are_told_apart() -> None:
    found = await heard(
        chunk({"tool_calls": [call_piece("", index=0, id="a", name="f"), call_piece("", index=1, id="b", name="g")]}),
        chunk({"tool_calls": [call_piece('{"x"', index=1)]}),
        chunk({"tool_calls": [call_piece('{"y"', index=0), call_piece(":1}", index=1)]}),
        chunk({"tool_calls": [call_piece(":2}", index=0)]}),
        chunk({}, "tool_calls"),
    )
    assert calls_in(found) == [("a", "f", '{"y":2}'), ("b", "g", '{"x":1}')]
    assert found[-1] == Finish("tool_calls")


async def test_whole_calls_without_index_or_under_one_index_are_told_apart() -> None:
    assert calls_in(
        await heard(
            chunk({"tool_calls": [call_piece("{}", id="a", name="f"), call_piece("{}", id="b", name="g")]}),
            chunk({}, "stop"),
        )
    ) == [("a", "f", "{}"), ("b", "g", "{}")]
    assert calls_in(
        await heard(
            chunk({"tool_calls": [call_piece("{}", index=0, id="a", name="f")]}),
            chunk({"tool_calls": [call_piece("{}", index=0, id="b", name="g")]}),
            chunk({}, "stop"),
        )
    ) == [("a", "f", "{}"), ("b", "g", "{}")]
    assert calls_in(
        await heard(chunk({"tool_calls": [call_piece("{}", name="f"), call_piece("{}", name="f")]}), chunk({}, "stop"))
    ) == [(None, "f", "{}"), (None, "f", "{}")]


async def test_calls_count_whatever_the_finish_reason_says() -> None:
    found = await heard(chunk({"tool_calls": [call_piece("{}", index=0, name="f")]}), chunk({}, "stop"))
    assert found[-1] == Finish("tool_calls")


@pytest.mark.rule("A97")
async def test_big_numbers_in_arguments_survive_as_text_and_as_an_object() -> None:
    written = '{"n":123456789012345678901,"f":1.0}'
    as_text = chunk({"tool_calls": [call_piece(written, index=0, name="f")]}, "tool_calls")
    as_object = (
        b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":%s}}]},"finish_reason":"stop"}]}\n\n'
    )
    assert calls_in(await heard(as_text))[0][2] == written
    assert calls_in(await heard(as_object % written.encode()))[0][2] == written


async def test_a_name_that_comes_late_is_waited_for() -> None:
    found = await heard(
        chunk({"tool_calls": [call_piece("{", index=0, id="a")]}),
        chunk({"tool_calls": [call_piece("}", index=0, name="f")]}, "tool_calls"),
    )
    assert [event for event in found if isinstance(event, ToolCallDelta)] == [ToolCallDelta(0, "a", "f", "{}")]


@pytest.mark.rule("A96")
async def test_half_characters_do_not_break_the_stream() -> None:
    found = await heard(
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b\\u0000"},"finish_reason":"stop"}]}\n\n',
    )
    assert text_in(found) == "a\ud83d\ude00b\x00"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    document = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
    }
    body = json.dumps(document, indent=1).encode()
    found = await heard(b"\n ", body[:20], body[20:], kind="application/json")
    assert found == [TextDelta("whole"), Usage(2, 1, 0), Finish("max_tokens")]


async def test_after_its_finish_a_silent_server_is_not_waited_for_long(
    model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents_app.providers.exchange.FOR_USAGE", 0.05)
    script = model.script([steps.text("a"), steps.finish("stop"), steps.hang()])
    assert await events(request(model.url, script)) == [TextDelta("a"), Finish("stop")]
    assert model.wait_ended(model.wait_request(script)) == "closed"


# --- faults ---


@pytest.mark.rule("A84")
async def test_passing_errors_are_tried_again_and_then_it_goes_on(model: ModelServer) -> None:
    script = model.script(attempts([steps.status(503)], [steps.drop()], [steps.text("ok")]))
    assert text_in(await events(request(model.url, script))) == "ok"
    assert len(model.requests_of(script)) == 3


async def test_after_the_last_attempt_the_provider_is_unavailable(model: ModelServer) -> None:
    script = model.script([steps.status(500)])
    fault = await fault_of(request(model.url, script))
    assert fault.fault == "unavailable"
    assert len(model.requests_of(script)) == 3


async def test_the_pause_a_server_asks_for_is_kept(model: ModelServer) -> None:
    script = model.script(attempts([steps.status(429, retry_after="1")], [steps.text("ok")]))
    begun = time.monotonic()
    assert text_in(await events(request(model.url, script))) == "ok"
    assert time.monotonic() - begun >= 1.0


async def test_a_server_that_asks_for_a_long_pause_is_not_waited_for(model: ModelServer) -> None:
    script = model.script([steps.status(429, retry_after="3600")])
    assert (await fault_of(request(model.url, script))).fault == "unavailable"
    assert len(model.requests_of(script)) == 1


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (400, "bad field", "refused_request"),
        (401, "wrong key sk-canary-key", "configuration"),
        (404, "no such model", "configuration"),
        (400, "This model's maximum context length is 8192 tokens", "context_too_long"),
        (400, "prompt is too long: 9000 tokens > 8000 maximum", "context_too_long"),
        (500, "the request exceeds the available context size", "context_too_long"),
    ],
)
async def test_a_refused_request_is_sorted_and_tried_once(model: ModelServer, code: int, message: str, expected: str) -> None:
    script = model.script([steps.status(code, message=message)])
    fault = await fault_of(request(model.url, script))
    assert fault.fault == expected
    assert message not in str(fault)
    assert len(model.requests_of(script)) == 1


async def test_the_code_for_a_context_too_long_is_known() -> None:
    body = json.dumps({"error": {"message": "?", "code": "context_length_exceeded"}}).encode()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()

    async with server(refuse) as url:
        assert (await fault_of(request(url))).fault == "context_too_long"


async def test_a_redirect_is_not_followed() -> None:
    async def redirect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with server(redirect) as url:
        assert (await fault_of(request(url))).fault == "configuration"


@pytest.mark.rule("A85")
async def test_an_error_object_in_mid_stream_ends_it_and_is_not_tried_again(model: ModelServer) -> None:
    script = model.script([steps.text("so far"), steps.error_object()])
    seen: list[ProviderEvent] = []
    fault: ProviderError | None = None
    try:
        async for batch in OpenAIChat().stream(request(model.url, script)):
            seen += batch
    except ProviderError as error:
        fault = error
    assert seen == [TextDelta("so far")]
    assert fault is not None
    assert fault.fault == "broken_stream"
    assert len(model.requests_of(script)) == 1


async def test_an_error_object_before_any_output_is_tried_again(model: ModelServer) -> None:
    script = model.script(attempts([steps.error_object()], [steps.text("ok")]))
    assert text_in(await events(request(model.url, script))) == "ok"


@pytest.mark.rule("A85")
async def test_a_connection_cut_in_mid_stream_is_a_broken_stream(model: ModelServer) -> None:
    script = model.script([steps.text("so far"), steps.drop()])
    assert (await fault_of(request(model.url, script))).fault == "broken_stream"
    assert len(model.requests_of(script)) == 1


async def test_what_is_no_json_is_a_broken_stream() -> None:
    with pytest.raises(ProviderError) as caught:
        await heard(chunk({"content": "a"}), b"data: {not json\n\n")
    assert caught.value.fault == "broken_stream"


async def test_nobody_listening_is_unavailable() -> None:
    fault = await fault_of(request("http://127.0.0.1:9/v1", limits=replace(LIMITS, retries=0)))
    assert fault.fault == "unavailable"


@pytest.mark.parametrize("opening", [[], [steps.raw(b": thinking\n\n")]])
async def test_no_output_in_time_is_a_timeout_and_closes_the_connection(model: ModelServer, opening: steps.Answer) -> None:
    script = model.script([*opening, steps.hang()])
    fault = await fault_of(request(model.url, script, limits=replace(LIMITS, first_output=2.0)))
    assert fault.fault == "timeout"
    assert model.wait_ended(model.wait_request(script)) == "closed"
    assert len(model.requests_of(script)) == 1


async def test_too_long_between_outputs_is_a_timeout_though_the_server_keeps_the_line_warm() -> None:
    async def warm(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + chunk({"content": "a"}))
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with server(warm) as url:
        fault = await fault_of(request(url, limits=replace(LIMITS, between_outputs=0.2)))
    assert fault.fault == "timeout"


async def test_neither_key_nor_words_of_anyone_are_in_errors_or_logs(
    model: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error": {"message": "you wrote: private words", "code": "sk-canary-key", "type": "sk-canary-key"}})
    script = model.script(attempts([steps.status(500, message="private words sk-canary-key")], [steps.drop()]))
    fault = await fault_of(request(model.url, script))

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body.encode()))
        await writer.drain()

    async with server(refuse) as url:
        other = await fault_of(request(url, "private words", limits=replace(LIMITS, retries=1)))
    everything = caplog.text + str(fault) + str(other) + repr(fault) + repr(request(model.url))
    assert "***" in everything
    assert "sk-canary-key" not in everything
    assert "private words" not in everything


@pytest.mark.parametrize(
    "given",
    [{"api_key": "sk-canary-key\n"}, {"api_key": None, "headers": {"Authorization": "Bearer sk-canary-key"}}],
    ids=["a key with a line's end", "a key in a header"],
)
async def test_a_key_that_the_server_repeats_in_another_form_is_masked(model: ModelServer, given: dict[str, Any]) -> None:
    script = model.script([steps.status(401, code="sk-canary-key")])
    fault = await fault_of(request(model.url, script, **given))
    assert "***" in fault.answered.code
    assert "sk-canary-key" not in fault.answered.code + str(fault)


# --- stopping ---


async def test_closing_the_iterator_closes_the_connection(model: ModelServer) -> None:
    script = model.script([steps.text("a"), steps.hang()])
    stream = OpenAIChat().stream(request(model.url, script))
    assert await anext(stream) == [TextDelta("a")]
    await stream.aclose()  # type: ignore[attr-defined]
    assert model.wait_ended(model.wait_request(script)) == "closed"


@pytest.mark.parametrize("opening", [[], [steps.text("a")]])
async def test_cancelling_the_task_closes_the_connection(model: ModelServer, opening: steps.Answer) -> None:
    script = model.script([*opening, steps.hang()])
    task = asyncio.create_task(events(request(model.url, script)))
    await asyncio.to_thread(model.wait_request, script)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.wait_ended(model.wait_request(script)) == "closed"


async def test_a_complete_answer_leaves_its_connection_for_the_next(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents_app.providers.exchange.FOR_END", 60.0)
    scripts = [model.script([steps.text("a")]) for _ in range(3)]
    for script in scripts:
        await events(request(model.url, script))
    assert len({model.wait_request(script).connection for script in scripts}) == 1


async def test_two_hundred_answers_are_read_side_by_side(model: ModelServer) -> None:
    scripts = [model.script([steps.text(*[f"{number}."] * 20)]) for number in range(200)]
    found = await asyncio.gather(*(events(request(model.url, script)) for script in scripts))
    assert [text_in(each) for each in found] == [f"{number}." * 20 for number in range(200)]


@pytest.mark.rule("A85")
async def test_what_came_before_a_cut_is_not_lost_when_nobody_was_reading(model: ModelServer) -> None:
    script = model.script([steps.text("one "), steps.gate("cut"), steps.text("two"), steps.drop()])
    model.close_gate("cut")
    stream = OpenAIChat().stream(request(model.url, script))
    assert await anext(stream) == [TextDelta("one ")]
    model.open_gate("cut")
    model.wait_ended(model.wait_request(script))
    # The loop takes in text and cut, while the task that reads is kept from running.
    for _ in range(20):
        await asyncio.sleep(0)
    assert await anext(stream) == [TextDelta("two")]
    with pytest.raises(ProviderError):
        await anext(stream)
