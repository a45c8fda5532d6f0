"""Whatever conversation a client may bring or a session may come to, every vendor takes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_app.providers import anthropic_request, chat_request, google_request, responses_request
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Message, ToolSchema

PIXEL = "data:image/png;base64,iVBORw0KGgo="
LOOK = ToolSchema("look", "Looks.", {"type": "object", "properties": {"harbour": {"type": "string"}}})

words = st.sampled_from(["", " ", "\n", "a", "Hel lo", "\u00f6\U0001f6a2", "\0", "x" * 300])
spoken = st.sampled_from(["a", "Hello", "\u00f6\U0001f6a2", " b "])
texts = st.builds(lambda text: {"type": "text", "text": text}, words)
urls = st.sampled_from(
    [
        PIXEL,
        "https://images.example/a.png",
        "http://images.example/a?b=c",
        "data:image/svg+xml;base64,PHN2Zy8+",
        "data:image/gif;base64,R0lGODlh",
    ]
)
pictures = st.builds(lambda url: {"type": "image", "url": url}, urls)
names = st.sampled_from(["look", "functions.look", "2look", "", "l" * 90, "l\u00f6\u00f6k"])
call_ids = st.sampled_from(["call_1", "toolu_2", "functions.look:0", "c" * 90, "\u00fc", "4", "a b", "call_1 "])
inputs = st.sampled_from([{}, {"harbour": "Brest"}, {"n": 12345678901234567890123, "f": 1.5, "deep": [{"a": None}]}])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    called: list[str] = []
    answered: set[str] = set()
    for _ in range(draw(st.integers(0, 7))):
        match draw(st.sampled_from(["system", "user", "assistant", "assistant", "tool", "tool"])):
            case "system":
                messages.append(Message("system", draw(words)))
            case "user":
                blocks = st.lists(st.one_of(texts, pictures), min_size=1, max_size=3)
                messages.append(Message("user", draw(st.one_of(spoken, blocks))))
            case "assistant":
                content: list[dict[str, Any]] = []
                if draw(st.booleans()):
                    content.append({"type": "thinking", "thinking": draw(words)})
                content += draw(st.lists(st.one_of(texts, pictures), max_size=2))
                for wanted in draw(st.lists(call_ids, max_size=3, unique=True)):
                    if wanted not in called:
                        called.append(wanted)
                        call = {"type": "tool_use", "toolCallId": wanted, "name": draw(names), "input": draw(inputs)}
                        content.append(call)
                blocks_stay = bool(content) and (draw(st.booleans()) or any(block["type"] == "tool_use" for block in content))
                messages.append(Message("assistant", content if blocks_stay else draw(words)))
            case _:
                open_calls = [call for call in called if call not in answered]
                if open_calls:
                    call_id = draw(st.sampled_from(open_calls))
                    answered.add(call_id)
                    result = draw(st.one_of(words, st.lists(st.one_of(texts, pictures), max_size=3)))
                    messages.append(Message("tool", result, tool_call_id=call_id))
    return [*messages, Message("user", draw(spoken))]


VENDORS: dict[str, tuple[str, Callable[[ModelRequest], bytes]]] = {
    "openai-chat": ("gpt-test", chat_request.body),
    "openai-responses": ("gpt-5.2", responses_request.body),
    "anthropic": ("claude-sonnet-4-5", anthropic_request.body),
    "google": ("gemini-3-pro", google_request.body),
    "google, older": ("gemini-2.5-flash", google_request.body),
}


def check(vendor: str, model: str, body: Mapping[str, Any]) -> None:
    # The vendors' libraries take two seconds to import, so they are imported here.
    match vendor.partition(",")[0]:
        case "openai-chat":
            from tests.fakes import chat_rules

            chat_rules.check(body)
        case "openai-responses":
            from tests.fakes import responses_rules

            responses_rules.check(body, {})
        case "anthropic":
            from tests.fakes import anthropic_rules

            anthropic_rules.check(body, {}, with_beta=False, interleaved=False)
        case _:
            from tests.fakes import google_rules

            google_rules.check(body, model)


@pytest.mark.rule("A90")
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("tools", [[], [LOOK]], ids=["no tools", "tools"])
@settings(deadline=None)
@given(conversation=conversations(), effort=st.sampled_from([None, "high"]))
def test_any_history_is_taken(vendor: str, tools: list[ToolSchema], conversation: list[Message], effort: str | None) -> None:
    model, body = VENDORS[vendor]
    thinking = {} if effort is None or vendor == "openai-chat" else {"reasoning_effort": effort}
    full_model = f"{vendor.partition(',')[0]}:{model}"
    request = ModelRequest(model, "Be brief.", conversation, tools, settings=thinking, full_model=full_model)
    check(vendor, model, json.loads(body(request)))
