"""Each vendor's provider against a server that refuses what the vendor refuses, on a real socket."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents_app import providers
from agents_app.errors import ProviderError
from agents_app.runtime.interface import Finish, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from agents_app.runtime.messages import Block, Message, ToolSchema
from tests.fakes import steps
from tests.fakes.scripted_server import ScriptedServer, attempts
from tests.network.agents_app.providers.vendors import KEY, LOOK, VENDORS, Vendor, batches, events, fault_of, request, said

PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture(params=VENDORS, ids=lambda vendor: vendor.name)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    found: Vendor = request.param
    return found


@pytest.fixture
def server(vendor: Vendor) -> Iterator[ScriptedServer]:
    with vendor.serve() as serving:
        yield serving


def results(*answers: tuple[str, str]) -> list[Message]:
    return [Message("tool", text, tool_call_id=call) for call, text in answers]


async def test_text_comes_as_it_is_said(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.text("Hel", "lo"), steps.gate("later"), steps.text(" there"), steps.usage(30, 4, cached=10)])
    provider = providers.find(vendor.name)
    assert provider is not None
    stream = provider.stream(request(vendor, server, Message("user", script)))
    heard = ""
    async for batch in stream:
        heard += "".join(event.text for event in batch if isinstance(event, TextDelta))
        if heard == "Hello":
            server.open_gate("later")
        last = batch
    assert heard == "Hello there"
    assert last[-1] == Finish("stop")
    assert server.wait_ended(server.requests[0]) == "done"


async def test_what_arrived_together_comes_together(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.text(*["word "] * 200)])
    found = await batches(vendor, request(vendor, server, Message("user", script)))
    assert said([event for batch in found for event in batch]).text == "word " * 200
    assert all(sum(isinstance(event, TextDelta) for event in batch) <= 1 for batch in found)


@pytest.mark.parametrize("size", [0, 1, 3])
async def test_bytes_may_be_cut_anywhere(vendor: Vendor, server: ScriptedServer, size: int) -> None:
    script = server.script(
        [
            steps.cut_every(size),
            steps.thinking("h\u00f6 ", "\U0001f6a2"),
            steps.text("L\u00f6", "ok \U0001f6a2"),
            steps.call("look", {"harbour": "Brest \U0001f6a2", "n": 12345678901234567890.5}, id="call_1", pieces=4),
        ]
    )
    found = said(await events(vendor, request(vendor, server, Message("user", script))))
    assert (found.thinking, found.text, found.reason) == ("h\u00f6 \U0001f6a2", "L\u00f6ok \U0001f6a2", "tool_calls")
    assert found.calls[0][1] == "look"
    assert json.loads(found.calls[0][2])["harbour"] == "Brest \U0001f6a2"


async def test_tokens_mean_the_same_with_every_vendor(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.usage(30, 7, cached=10), steps.text("fine")])
    found = said(await events(vendor, request(vendor, server, Message("user", script))))
    assert found.usage == Usage(input_tokens=30, output_tokens=7, cache_read_tokens=10)


async def test_parallel_calls_after_thinking_go_back_with_what_was_thought(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script(
        [
            steps.thinking("First ", "I look."),
            steps.text("Looking."),
            steps.call("look", {"harbour": "Brest"}, pieces=3),
            steps.call("look", {"harbour": "Kiel"}, pieces=2),
        ],
        [steps.thinking("Both seen."), steps.call("look", {"harbour": "Riga"})],
        [steps.text("All three are full.")],
    )
    conversation: list[Message] = [Message("user", script)]
    found = said([])
    for step in range(3):
        found = said(await events(vendor, request(vendor, server, *conversation)))
        conversation.append(found.message(vendor.full_model))
        conversation += results(*((call, f"full {step}") for call, _, _ in found.calls))
    assert found.text == "All three are full."
    assert [asked.refused for asked in server.requests] == ["", "", ""]


async def test_interleaved_thinking_goes_back_in_its_places(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script(
        [
            steps.thinking("one"),
            steps.text("Eins. "),
            steps.thinking("two"),
            steps.text("Zwei."),
            steps.thinking("three"),
            steps.call("look", {"harbour": "Brest"}),
        ],
        [steps.text("done")],
    )
    found = said(await events(vendor, request(vendor, server, Message("user", script))))
    assert found.text == "Eins. Zwei."
    assert all(word in found.thinking for word in ("one", "two", "three"))
    again = [Message("user", script), found.message(vendor.full_model), *results((found.calls[0][0], "full"))]
    assert said(await events(vendor, request(vendor, server, *again))).text == "done"
    body = server.requests[1].body
    match vendor.name:
        case "anthropic":
            order = [block["type"] for block in body["messages"][1]["content"]]
            assert order == ["thinking", "text", "thinking", "text", "thinking", "tool_use"]
        case "openai-responses":
            order = [item.get("type", item.get("role")) for item in body["input"]]
            assert order[1:-1] == ["reasoning", "message", "reasoning", "message", "reasoning", "function_call"]
        case _:
            parts = body["contents"][1]["parts"]
            assert [part["text"] for part in parts if "text" in part] == ["Eins. Zwei."]
            assert "functionCall" in parts[-1]
            assert [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


async def test_another_model_gets_nothing_of_what_was_thought(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.thinking("secretly"), steps.call("look", {"harbour": "Brest"})], [steps.text("fine")])
    first = request(vendor, server, Message("user", script), settings={})
    found = said(await events(vendor, first))
    again = [Message("user", script), found.message(vendor.full_model), *results((found.calls[0][0], "full"))]
    other = request(vendor, server, *again, settings={}, full_model=vendor.full_model + "-later")
    assert said(await events(vendor, other)).text == "fine"
    sent = json.dumps(server.requests[1].body)
    assert "secretly" not in sent
    assert '"id": "fc_' not in sent


async def test_calls_of_another_model_can_be_gone_on_with(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.text("never said")], [steps.text("fine")])
    call = {"type": "tool_use", "toolCallId": "chatcmpl-tool.7/" + "x" * 80, "name": "fs.read", "input": {"n": 1}}
    conversation = [
        Message("user", script),
        Message("assistant", [call]),
        Message("tool", "full", tool_call_id=str(call["toolCallId"])),
    ]
    found = said(await events(vendor, request(vendor, server, *conversation, settings={})))
    assert found.text == "fine"


STRANGE: dict[str, list[Message]] = {
    "thinking alone": [
        Message("user", "a"),
        Message("assistant", [{"type": "thinking", "thinking": "hm"}]),
    ],
    "nothing": [Message("user", ""), Message("assistant", ""), Message("user", [{"type": "text", "text": " \n"}])],
    "a system's word in the middle": [
        Message("system", "Be kind."),
        Message("user", "a"),
        Message("assistant", "b"),
        Message("system", "Be kinder."),
    ],
    "users in a row": [Message("user", "a"), Message("user", "b")],
    "assistants in a row": [Message("assistant", "a"), Message("assistant", "b")],
    "a result with an image": [
        Message("user", "a"),
        Message("assistant", [{"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {}}]),
        Message("tool", [{"type": "text", "text": "see"}, {"type": "image", "url": PIXEL}], tool_call_id="c1"),
    ],
    "a result that is an image": [
        Message("assistant", [{"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {}}]),
        Message("tool", [{"type": "image", "url": PIXEL}], tool_call_id="c1"),
    ],
    "an empty result": [
        Message("assistant", [{"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {}}]),
        Message("tool", "", tool_call_id="c1"),
    ],
    "a call without a result": [
        Message("assistant", [{"type": "tool_use", "toolCallId": "c1", "name": "look", "input": {}}]),
    ],
    "a result without a call": [Message("tool", "full", tool_call_id="c9")],
    "results in another order, something between": [
        Message(
            "assistant",
            [{"type": "tool_use", "toolCallId": call, "name": "look", "input": {}} for call in ("c1", "c2")],
        ),
        Message("tool", "two", tool_call_id="c2"),
        Message("user", "and?"),
        Message("tool", "one", tool_call_id="c1"),
    ],
    "images": [
        Message(
            "user",
            [
                {"type": "image", "url": "https://images.example/a.png"},
                {"type": "image", "url": PIXEL},
                {"type": "image", "url": "data:image/png;base64,!!!"},
                {"type": "image", "url": "data:text/plain;base64,aGk="},
            ],
        ),
    ],
    "the model's own image": [Message("assistant", [{"type": "text", "text": "x"}, {"type": "image", "url": PIXEL}])],
}


@pytest.mark.parametrize("kind", STRANGE)
async def test_a_strange_history_is_taken(vendor: Vendor, server: ScriptedServer, kind: str) -> None:
    asked = request(vendor, server, *STRANGE[kind], Message("user", "and now?"), settings={})
    assert said(await events(vendor, asked)).text == "echo: and now?"


async def test_the_last_word_may_be_the_models(vendor: Vendor, server: ScriptedServer) -> None:
    asked = request(vendor, server, Message("user", "a"), Message("assistant", "b"), settings={})
    assert said(await events(vendor, asked)).reason == "stop"


async def test_names_of_tools_that_a_vendor_refuses_are_mended_both_ways(vendor: Vendor, server: ScriptedServer) -> None:
    tools = [ToolSchema(name, "Reads.") for name in ("fs.read", "fs_read", "2nd/" + "x" * 80)]
    asked = request(vendor, server, Message("user", "x"), tools=tools, settings={})
    await events(vendor, asked)
    sent = server.requests[0].body["tools"]
    names = [tool["name"] for tool in (sent[0]["functionDeclarations"] if vendor.name == "google" else sent)]
    assert len(set(names)) == 3
    for name, tool in zip(names, tools, strict=True):
        script = server.script([steps.call(name, {})])
        found = said(await events(vendor, replace(asked, messages=[Message("user", script)])))
        assert found.calls[0][1] == tool.name


@pytest.mark.rule("A18")
async def test_how_an_answer_ends(vendor: Vendor, server: ScriptedServer) -> None:
    for reason, expected in ((vendor.long, "max_tokens"), (vendor.filtered, "refusal")):
        script = server.script([steps.text("so far"), steps.finish(reason)])
        found = said(await events(vendor, request(vendor, server, Message("user", script))))
        assert (found.text, found.reason) == ("so far", expected)


@pytest.mark.rule("A18")
async def test_a_refusal_in_words_is_one(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.blocked() if vendor.name == "google" else steps.refusal("I will not.")])
    found = said(await events(vendor, request(vendor, server, Message("user", script))))
    assert found.reason == "refusal"


@pytest.mark.rule("A18")
async def test_a_conversation_that_is_too_long_is_told_from_other_faults(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.overflow()])
    fault = await fault_of(vendor, request(vendor, server, Message("user", script)))
    assert fault.fault == "context_too_long"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_what_passes_is_tried_again(vendor: Vendor, server: ScriptedServer, status: int) -> None:
    script = server.script(attempts([steps.status(status, retry_after="0")], [steps.text("now")]))
    assert said(await events(vendor, request(vendor, server, Message("user", script)))).text == "now"
    assert len(server.requests) == 2


@pytest.mark.parametrize("code", ["server_error"])
async def test_an_error_before_the_first_word_is_tried_again(vendor: Vendor, server: ScriptedServer, code: str) -> None:
    script = server.script(attempts([steps.error_object(code=code)], [steps.text("now")]))
    assert said(await events(vendor, request(vendor, server, Message("user", script)))).text == "now"


@pytest.mark.parametrize("end", [steps.error_object(), steps.drop(), steps.close()], ids=lambda step: step["do"])
async def test_an_end_in_the_middle_is_none(vendor: Vendor, server: ScriptedServer, end: steps.Step) -> None:
    script = server.script([steps.text("half"), steps.gate("half"), end])
    provider = providers.find(vendor.name)
    assert provider is not None
    heard: list[ProviderEvent] = []

    async def listen() -> None:
        async for batch in provider.stream(request(vendor, server, Message("user", script))):
            heard.extend(batch)
            server.open_gate("half")

    with pytest.raises(ProviderError) as caught:
        await listen()
    assert said(heard).text == "half"
    assert caught.value.fault == "broken_stream"
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "fault"), [(400, "refused_request"), (401, "configuration"), (404, "configuration")])
async def test_what_does_not_pass_is_not_tried_again(vendor: Vendor, server: ScriptedServer, status: int, fault: str) -> None:
    script = server.script([steps.status(status, message=f"{KEY} and the prompt")])
    found = await fault_of(vendor, request(vendor, server, Message("user", script)))
    assert found.fault == fault
    assert KEY not in str(found)
    assert "prompt" not in str(found)
    assert len(server.requests) == 1


async def test_no_secret_is_logged(vendor: Vendor, server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    script = server.script(attempts([steps.status(529, retry_after="0", code=KEY)], [steps.status(500)]))
    asked = request(vendor, server, Message("user", script), headers={"X-Team": "sk-header"})
    fault = await fault_of(vendor, replace(asked, limits=replace(asked.limits, retries=1)))
    for place in (caplog.text, str(fault), repr(fault), repr(asked)):
        assert KEY not in place
        assert "sk-header" not in place
    assert server.requests[0].headers["x-team"] == "sk-header"


async def test_an_answer_that_is_left_is_closed_at_once(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.text("half"), steps.hang()])
    provider = providers.find(vendor.name)
    assert provider is not None
    stream: Any = provider.stream(request(vendor, server, Message("user", script)))
    await anext(stream)
    await stream.aclose()
    assert await asyncio.to_thread(server.wait_ended, server.requests[0]) == "closed"


async def test_a_cancelled_task_closes_its_answer_before_it_ends(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.hang()])
    task = asyncio.create_task(events(vendor, request(vendor, server, Message("user", script))))
    await asyncio.to_thread(server.wait_request, script)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(server.wait_ended, server.requests[0]) == "closed"


async def test_silence_is_not_waited_for_longer_than_the_agent_allows(vendor: Vendor, server: ScriptedServer) -> None:
    silent = server.script([steps.ping(), steps.hang()]) if vendor.name == "anthropic" else server.script([steps.hang()])
    stuck = server.script([steps.text("half"), steps.hang()])
    asked = request(vendor, server, limits=replace(request(vendor, server).limits, first_output=0.3))
    assert (await fault_of(vendor, replace(asked, messages=[Message("user", silent)]))).fault == "timeout"
    asked = replace(asked, limits=replace(asked.limits, first_output=60.0, between_outputs=0.3))
    assert (await fault_of(vendor, replace(asked, messages=[Message("user", stuck)]))).fault == "timeout"


async def test_settings_of_one_name_reach_every_vendor(vendor: Vendor, server: ScriptedServer) -> None:
    settings = {"max_tokens": 4000, "top_p": 0.99, "reasoning_effort": "low"}
    await events(vendor, request(vendor, server, Message("user", "x"), settings=settings))
    sent = server.requests[0].body
    match vendor.name:
        case "anthropic":
            assert (sent["max_tokens"], sent["top_p"], sent["thinking"]["budget_tokens"]) == (4000, 0.99, 2048)
        case "openai-responses":
            assert (sent["max_output_tokens"], sent["top_p"], sent["reasoning"]) == (4000, 0.99, {"effort": "low"})
            assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])
        case _:
            config = sent["generationConfig"]
            assert (config["maxOutputTokens"], config["topP"]) == (4000, 0.99)
            assert config["thinkingConfig"] == {"includeThoughts": True, "thinkingLevel": "low"}


async def test_images_are_sent_and_never_fetched(vendor: Vendor, server: ScriptedServer) -> None:
    blocks: list[Block] = [{"type": "text", "text": "look"}, {"type": "image", "url": server.origin + "/a.png"}]
    await events(vendor, request(vendor, server, Message("user", [*blocks, {"type": "image", "url": PIXEL}]), settings={}))
    assert len(server.requests) == 1
    assert server.connections <= 1
    sent = json.dumps(server.requests[0].body)
    assert server.origin + "/a.png" in sent
    assert "iVBORw0KGgo=" in sent


def _kinds(found: list[ProviderEvent]) -> list[str]:
    return [type(event).__name__ for event in found if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta)]


async def test_thinking_text_and_calls_keep_their_order(vendor: Vendor, server: ScriptedServer) -> None:
    script = server.script([steps.thinking("a"), steps.text("b"), steps.call("look", {"harbour": "x"})])
    found = await events(vendor, request(vendor, server, Message("user", script), tools=[LOOK]))
    kinds = _kinds(found)
    assert list(dict.fromkeys(kinds)) == ["ThinkingDelta", "TextDelta", "ToolCallDelta"]
