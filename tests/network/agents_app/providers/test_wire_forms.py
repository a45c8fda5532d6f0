"""One answer in every form that its bytes may take on the way: what is understood stays the same."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import httpx
import pytest

from agents_app.runtime.interface import Usage
from agents_app.runtime.messages import Message
from tests.fakes import steps
from tests.fakes.odd_server import saying, server
from tests.network.agents_app.providers.vendors import VENDORS, Said, Vendor, events, request, said

SCRIPT: steps.Answer = [
    steps.usage(30, 9, cached=10),
    steps.thinking("h\u00f6 ", "m \U0001f6a2"),
    steps.text("L\u00f6", "ok \u2028 \U0001f6a2"),
    steps.call("look", {"harbour": "Brest \U0001f6a2", "n": 12345678901234567890123}, id="call_1", pieces=4),
    steps.call("look", {}, id="call_2"),
]


def _broken_over_lines(wire: bytes) -> bytes:
    """Data in several lines, as a pretty printer would make of it."""

    def spread(match: re.Match[bytes]) -> bytes:
        lines = json.dumps(json.loads(match[1]), indent=1, ensure_ascii=False).encode().split(b"\n")
        return b"\n".join(b"data: " + line for line in lines)

    return re.sub(rb"data: (\{.*\})", spread, wire)


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "as it is": lambda wire: wire,
    "lines end the new way": lambda wire: wire.replace(b"\r\n", b"\n"),
    "lines end the old way": lambda wire: wire.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "no names of events": lambda wire: re.sub(rb"event: [^\n]*\n", b"", wire),
    "no space after data": lambda wire: wire.replace(b"data: ", b"data:").replace(b"event: ", b"event:"),
    "ids and times to retry": lambda wire: wire.replace(b"data: ", b"id: 7\nretry: 100\ndata: "),
    "comments between": lambda wire: b": hello\n\n" + wire.replace(b"data: ", b": still here\ndata: "),
    "a byte order mark": lambda wire: b"\xef\xbb\xbf" + wire,
    "a gateway's last word": lambda wire: wire + b"data: [DONE]\n\n",
    "no empty line at the end": lambda wire: wire.rstrip(),
    "escaped": lambda wire: re.sub(
        rb"data: (\{[^\r\n]*\})", lambda each: b"data: " + json.dumps(json.loads(each[1])).encode(), wire
    ),
    "over several lines": _broken_over_lines,
}


async def understood(vendor: Vendor, wire: bytes, size: int) -> Said:
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    async with server(saying(*pieces)) as url:
        with vendor.serve() as unused:
            asked = request(vendor, unused, Message("user", "x"), base_url=url.removesuffix("/v1"))
        return said(await events(vendor, asked))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
async def test_what_is_understood_does_not_depend_on_the_form(vendor: Vendor, form: str) -> None:
    with vendor.serve() as model:
        script = model.script(SCRIPT)
        straight = said(await events(vendor, request(vendor, model, Message("user", script))))
        asked = model.requests[0]
        headers = {name: asked.headers[name] for name in asked.headers if name not in ("host", "content-length")}
        again = await asyncio.to_thread(httpx.post, model.origin + asked.path, json=asked.body, headers=headers)
    wire = again.content
    assert (straight.text, len(straight.calls), straight.reason) == ("L\u00f6ok \u2028 \U0001f6a2", 2, "tool_calls")
    for size in (7, 1 << 20):
        found = await understood(vendor, FORMS[form](wire), size)
        assert (found.text, found.thinking, found.calls, found.usage, found.reason) == (
            straight.text,
            straight.thinking,
            straight.calls,
            straight.usage,
            straight.reason,
        )


WHOLE = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "ok"},
            {"type": "tool_use", "id": "call_1", "name": "look", "input": {"n": 1.0}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 20, "cache_read_input_tokens": 10, "output_tokens": 9},
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "ok", "annotations": []}],
            },
            {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"n":1.0}'},
        ],
        "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 9},
    },
    "google": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "hm", "thought": True},
                        {"text": "ok"},
                        {"functionCall": {"id": "call_1", "name": "look", "args": {"n": 1.0}}},
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"promptTokenCount": 30, "cachedContentTokenCount": 10, "candidatesTokenCount": 9},
    },
}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
@pytest.mark.parametrize("indent", [None, 2])
async def test_an_answer_that_is_no_stream_is_understood(vendor: Vendor, indent: int | None) -> None:
    found = await understood(vendor, b"\n" + json.dumps(WHOLE[vendor.name], indent=indent).encode(), 11)
    assert (found.text, found.thinking, found.calls) == ("ok", "hm", [("call_1", "look", '{"n":1.0}')])
    assert (found.usage, found.reason) == (Usage(30, 9, 10), "tool_calls")


async def test_googles_answer_without_its_stream_is_a_list_of_chunks() -> None:
    first = {"candidates": [{"content": {"parts": [{"text": "well, "}]}, "index": 0}]}
    found = await understood(VENDORS[2], json.dumps([first, WHOLE["google"]], indent=1).encode(), 11)
    assert (found.text, found.reason) == ("well, ok", "tool_calls")
