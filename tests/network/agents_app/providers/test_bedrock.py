"""Bedrock's Converse over binary frames, with a key and with signatures."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from botocore.credentials import ReadOnlyCredentials

from agents_app.errors import ProviderError
from agents_app.providers import amazon, bedrock_request
from agents_app.providers.bedrock import Bedrock
from agents_app.providers.server_errors import MalformedStream
from agents_app.providers.sse import EventTooLong
from agents_app.runtime.interface import Limits, ModelRequest, ProviderEvent, Usage
from agents_app.runtime.messages import Message, ToolSchema
from tests.network.agents_app.providers.listener import listener
from tests.network.agents_app.providers.test_vendors import STRANGE
from tests.network.agents_app.providers.vendors import LOOK, Said, said

MODEL = "us.anthropic.claude-sonnet-4-5-v1:0"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def frame(kind: str, document: Any, message: str = "event") -> bytes:
    header_of_kind = ":event-type" if message == "event" else ":exception-type"
    headers = b""
    for name, value in ((header_of_kind, kind), (":content-type", "application/json"), (":message-type", message)):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
    payload = json.dumps(document).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack("!I", zlib.crc32(prelude))
    whole = prelude + headers + payload
    return whole + struct.pack("!I", zlib.crc32(whole))


def delta(index: int, **delta: Any) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": delta})


def call(index: int, call_id: str, *pieces: str) -> bytes:
    start = frame("contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": call_id, "name": "look"}}})
    stop = frame("contentBlockStop", {"contentBlockIndex": index})
    return start + b"".join(delta(index, toolUse={"input": piece}) for piece in pieces) + stop


def stop(reason: str = "end_turn") -> bytes:
    usage = {"inputTokens": 20, "outputTokens": 7, "totalTokens": 37, "cacheReadInputTokens": 8, "cacheWriteInputTokens": 2}
    return frame("messageStop", {"stopReason": reason}) + frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})


BEGIN = frame("messageStart", {"role": "assistant"})
THOUGHT = delta(0, reasoningContent={"text": "I "}) + delta(0, reasoningContent={"text": "look."})
THOUGHT += delta(0, reasoningContent={"signature": "c2ln"}) + frame("contentBlockStop", {"contentBlockIndex": 0})


def asked(url: str | None, *messages: Message, **changes: Any) -> ModelRequest:
    made = ModelRequest(
        model=MODEL,
        instructions="Be brief.",
        messages=list(messages) or [Message("user", "hi")],
        tools=[LOOK],
        api_key="bedrock-key",
        base_url=url,
        full_model=f"bedrock:{MODEL}",
        settings={"aws_region": "eu-west-1"},
        limits=Limits(connect=60.0, first_output=90.0, between_outputs=90.0),
    )
    return replace(made, **changes)


async def heard(request: ModelRequest) -> Said:
    found: list[ProviderEvent] = []
    async for batch in Bedrock().stream(request):
        found += batch
    return said(found)


@pytest.mark.parametrize("size", [10_000, 1, 7])
async def test_thinking_text_parallel_calls_and_usage_however_cut(size: int) -> None:
    whole = (
        BEGIN + THOUGHT + delta(1, text="L\u00f6") + delta(1, text="oking.") + call(2, "t1", '{"a', '":1}') + call(3, "t2", "")
    )
    whole += stop("tool_use")
    async with listener([whole[at : at + size] for at in range(0, len(whole), size)]) as server:
        found = await heard(asked(server.url))
    assert (found.thinking, found.text, found.reason) == ("I look.", "L\u00f6oking.", "tool_calls")
    assert found.calls == [("t1", "look", '{"a":1}'), ("t2", "look", "")]
    assert found.usage == Usage(30, 7, 8)
    assert server.heard[0].path == "/model/us.anthropic.claude-sonnet-4-5-v1%3A0/converse-stream"
    assert server.heard[0].headers["Authorization"] == "Bearer bedrock-key"
    sent = server.heard[0].body
    assert sent["system"] == [{"text": "Be brief."}]
    assert sent["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"


async def test_what_was_thought_goes_back_in_its_place_and_to_its_model_alone() -> None:
    redacted = delta(1, reasoningContent={"redactedContent": base64.b64encode(b"hid").decode()})
    redacted += delta(1, reasoningContent={"redactedContent": base64.b64encode(b"den").decode()})
    async with listener([BEGIN + THOUGHT + redacted + call(2, "t1", "{}") + stop("tool_use")], [BEGIN + stop()]) as server:
        first = await heard(asked(server.url))
        conversation = [Message("user", "hi"), first.message(f"bedrock:{MODEL}"), Message("tool", "full", tool_call_id="t1")]
        await heard(asked(server.url, *conversation))
        await heard(asked(server.url, *conversation, full_model="bedrock:another"))
    used = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}
    assert server.heard[1].body["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "I look.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": base64.b64encode(b"hidden").decode()}},
        used,
    ]
    assert server.heard[2].body["messages"][1]["content"] == [used]


@pytest.mark.rule("A18")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("guardrail_intervened", "refusal"),
        ("content_filtered", "refusal"),
    ],
)
async def test_how_an_answer_ends(reason: str, expected: str) -> None:
    async with listener([BEGIN + delta(0, text="so") + stop(reason)]) as server:
        assert (await heard(asked(server.url))).reason == expected


TOO_LONG = frame("validationException", {"message": "Input is too long for requested model."}, "exception")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ([BEGIN + delta(0, text="half"), frame("throttlingException", {"message": "no"}, "exception")], "broken_stream"),
        (
            [BEGIN, frame("validationException", {"message": "Input is too long for requested model."}, "exception")],
            "context_too_long",
        ),
        ([BEGIN + delta(0, text="half")], "broken_stream"),
        ([b"\x00\x00\x00\x20not a frame at all"], "broken_stream"),
    ],
)
async def test_faults_in_the_stream(answer: Sequence[bytes], fault: str) -> None:
    async with listener(answer) as server:
        with pytest.raises(ProviderError) as caught:
            await heard(asked(server.url))
    assert caught.value.fault == fault


async def test_what_passes_is_tried_again() -> None:
    throttled = [frame("throttlingException", {"message": "slowly"}, "exception")]
    async with listener(throttled, [BEGIN + delta(0, text="now") + stop()]) as server:
        assert (await heard(asked(server.url))).text == "now"


@pytest.mark.parametrize(
    ("status", "kind", "words", "fault"),
    [
        (400, "ValidationException", "Input is too long for requested model.", "context_too_long"),
        (400, "ValidationException", "Malformed input request", "refused_request"),
        (403, "AccessDeniedException", "You don't have access", "configuration"),
        (429, "ThrottlingException", "Too many tokens, please wait", "unavailable"),
    ],
)
async def test_refusals_by_status(status: int, kind: str, words: str, fault: str) -> None:
    headers = {"x-amzn-ErrorType": f"{kind}:http://internal.amazon.com/", "Content-Type": "application/json"}
    async with listener([json.dumps({"message": words}).encode()], status=status, headers=headers) as server:
        with pytest.raises(ProviderError) as caught:
            await heard(asked(server.url, limits=Limits(retries=0)))
    assert caught.value.fault == fault
    assert kind in caught.value.detail
    assert words not in caught.value.detail


async def test_an_answer_that_is_left_is_closed_at_once() -> None:
    async with listener([BEGIN + delta(0, text="half")], hang=True) as server:
        stream: Any = Bedrock().stream(asked(server.url))
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(server.closed.wait(), 30)


def test_strange_histories_become_what_converse_takes() -> None:
    for kind, history in STRANGE.items():
        body = json.loads(bedrock_request.body(asked(None, *history, Message("user", "and now?"))))
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], kind
        for message in body["messages"]:
            assert message["content"], kind
            assert all(block.get("text", "x").strip() for block in message["content"]), kind


def test_calls_without_tools_are_still_explained() -> None:
    history = STRANGE["a call without a result"]
    body = json.loads(bedrock_request.body(asked(None, *history, tools=[])))
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"]] == ["look"]


def test_images_are_bytes_and_others_words() -> None:
    body = json.loads(bedrock_request.body(asked(None, *STRANGE["images"])))
    shown = body["messages"][0]["content"]
    assert shown[0] == {"text": "(an image, not shown here: https://images.example/a.png)"}
    assert shown[1] == {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}


def test_settings_stand_where_converse_wants_them() -> None:
    settings = {
        "max_tokens": 500,
        "temperature": 0.5,
        "stop": "END",
        "reasoning_effort": "low",
        "top_k": 5,
        "aws_region": "eu-west-1",
        "guardrailConfig": {"guardrailIdentifier": "g"},
    }
    body = json.loads(bedrock_request.body(asked(None, settings=settings)))
    assert body["inferenceConfig"] == {"maxTokens": 500, "temperature": 0.5, "stopSequences": ["END"]}
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 2048}, "top_k": 5}
    assert body["guardrailConfig"] == {"guardrailIdentifier": "g"}
    assert "aws_region" not in json.dumps(body)


def test_a_tool_without_description_has_none() -> None:
    body = json.loads(bedrock_request.body(asked(None, tools=[ToolSchema("f", "")])))
    assert body["toolConfig"]["tools"][0]["toolSpec"] == {
        "name": "f",
        "inputSchema": {"json": {"type": "object", "properties": {}}},
    }


async def _nobody(_: str | None) -> amazon.Identity:
    return amazon.Identity(None, None)


async def _somebody(_: str | None) -> amazon.Identity:
    return amazon.Identity("eu-central-1", ReadOnlyCredentials("AKIDEXAMPLE", "wJalrEXAMPLEKEY", "session-token"))


def test_a_signature_names_the_region_the_service_and_the_key_but_not_the_secret() -> None:
    who = amazon.Identity(None, ReadOnlyCredentials("AKIDEXAMPLE", "wJalrEXAMPLEKEY", "session-token"))
    url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/a%3A0/converse-stream"
    headers = amazon.signed(url, {"Content-Type": "application/json"}, b"{}", "eu-west-1", who)
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-west-1/bedrock/aws4_request" in headers["Authorization"]
    assert headers["X-Amz-Security-Token"] == "session-token"
    assert "wJalr" not in str(headers) + repr(who)


async def test_the_servers_own_credentials_sign_for_amazon_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amazon, "identity", _somebody)
    async with listener([BEGIN + stop()]) as server:
        with pytest.raises(ProviderError, match="Amazon's hosts only"):
            await heard(asked(server.url, api_key=None))
        assert server.heard == []


@pytest.mark.parametrize(("settings", "words"), [({}, "no region"), ({"aws_region": "eu-west-1"}, "neither an api_key")])
async def test_nobody_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], words: str) -> None:
    monkeypatch.setattr(amazon, "identity", _nobody)
    with pytest.raises(ProviderError, match=words) as caught:
        await heard(asked(None, api_key=None, settings=settings))
    assert caught.value.fault == "configuration"


def test_a_message_with_any_byte_changed_is_refused() -> None:
    whole = delta(0, text="x")
    for at in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1
        with pytest.raises((MalformedStream, EventTooLong)):
            amazon.EventStreamSplitter().feed(bytes(spoilt))


def prelude(size: int, headers: int) -> bytes:
    start = struct.pack("!II", size, headers)
    return start + struct.pack("!I", zlib.crc32(start))


@pytest.mark.parametrize(("size", "headers"), [(2**32 - 1, 0), (25 * 1024 * 1024, 0), (2**20, 2**18)])
def test_a_message_that_is_too_large_is_refused_before_it_arrives(size: int, headers: int) -> None:
    with pytest.raises(EventTooLong):
        amazon.EventStreamSplitter().feed(prelude(size, headers))


@pytest.mark.parametrize(
    "headers",
    [b"\x04kind\x0aoops", b"\x04kind", b"\x02\xff\xff\x00", b"\x04kind\x07\xff\xff\xff", b"\x01a\x00\x01a\x00", b"\x01a\x02"],
    ids=["unknown type", "no type", "name not UTF-8", "value not UTF-8", "twice", "no value"],
)
def test_malformed_headers_are_refused(headers: bytes) -> None:
    whole = prelude(16 + len(headers), len(headers)) + headers
    with pytest.raises(MalformedStream):
        amazon.EventStreamSplitter().feed(whole + struct.pack("!I", zlib.crc32(whole)))


@pytest.mark.parametrize("size", [0, 3, 12, 15])
def test_a_message_smaller_than_its_own_frame_is_refused(size: int) -> None:
    with pytest.raises(MalformedStream):
        amazon.EventStreamSplitter().feed(prelude(size, 0) + bytes(16))
