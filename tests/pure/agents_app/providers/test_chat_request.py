"""How a conversation is written for chat completions servers."""

from __future__ import annotations

import json

import pytest

from agents_app.providers import chat_request
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.messages import Block, Message

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_instructions_come_first_and_system_messages_keep_their_place() -> None:
    conversation = [Message("user", "hi"), Message("system", "Be kind."), Message("user", "you")]
    assert chat_request.messages("Be brief.", conversation) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "you"},
    ]


def test_images_of_a_user_are_sent_as_addresses_in_their_order() -> None:
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "image", "url": "https://images.example/a.png"},
        {"type": "image", "url": PIXEL},
    ]
    assert chat_request.messages("", [Message("user", blocks)]) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "https://images.example/a.png"}},
                {"type": "image_url", "image_url": {"url": PIXEL}},
            ],
        }
    ]


def test_thinking_is_never_sent_back() -> None:
    blocks = [{"type": "thinking", "thinking": "secretly"}, {"type": "text", "text": "openly"}]
    only = Message("assistant", [{"type": "thinking", "thinking": "secretly"}])
    sent = chat_request.messages("", [Message("assistant", blocks), only])
    assert sent == [{"role": "assistant", "content": "openly"}]


@pytest.mark.rule("A97")
def test_calls_and_results_keep_their_ids_and_numbers() -> None:
    call = {"type": "tool_use", "toolCallId": "c1", "name": "f", "input": {"n": 12345678901234567890123, "x": 1.0}}
    conversation = [Message("assistant", [call]), Message("tool", "fine", tool_call_id="c1")]
    assert chat_request.messages("", conversation) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n":12345678901234567890123,"x":1.0}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "fine"},
    ]


def test_images_of_tool_results_follow_after_the_last_result() -> None:
    calls: list[Block] = [{"type": "tool_use", "toolCallId": name, "name": "f", "input": {}} for name in ("c1", "c2")]
    image = {"type": "image", "url": PIXEL}
    conversation = [
        Message("assistant", calls),
        Message("tool", [image], tool_call_id="c1"),
        Message("tool", [{"type": "text", "text": "two"}, image], tool_call_id="c2"),
        Message("assistant", "seen"),
    ]
    sent = chat_request.messages("", conversation)
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "user", "assistant"]
    assert sent[1]["content"]
    assert sent[2]["content"] == "two"
    assert [part["type"] for part in sent[3]["content"]] == ["text", "image_url", "text", "image_url"]
    assert sent[3]["content"][1] == {"type": "image_url", "image_url": {"url": PIXEL}}


def test_without_tools_there_is_no_word_of_tools() -> None:
    body = json.loads(chat_request.body(ModelRequest("m", "", [Message("user", "x")])))
    assert "tools" not in body
    assert "tool_choice" not in body


def test_settings_cannot_take_the_place_of_what_the_server_sets() -> None:
    body = json.loads(chat_request.body(ModelRequest("m", "", [Message("user", "x")], settings={"model": "other", "top_p": 1})))
    assert body["model"] == "m"
    assert body["top_p"] == 1


@pytest.mark.parametrize(("called", "sent"), [("", "_"), ("functions.read log", "functions_read_log"), ("a" * 100, "a" * 64)])
def test_a_call_of_an_impossible_name_spoils_no_later_request(called: str, sent: str) -> None:
    message = Message("assistant", [{"type": "tool_use", "toolCallId": "c", "name": called, "input": {}}])
    out, _ = chat_request.messages("", [message])
    assert out["tool_calls"][0]["function"]["name"] == sent
