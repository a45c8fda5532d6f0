"""The provider ``google`` on the wire, alone and under the agent loop, with what only this vendor says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agents_app.runtime.interface import Finish, Usage
from agents_app.runtime.messages import Message
from tests.fakes import steps
from tests.fakes.google_server import GoogleServer
from tests.fakes.scripted_server import attempts
from tests.fakes.seals import seal
from tests.network.agents_app.providers.loop_host import Conversation
from tests.network.agents_app.providers.vendors import VENDORS, events, fault_of, request, said

VENDOR = VENDORS[2]
MODEL = "google:gemini-3-pro"


@pytest.fixture
def gemini() -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        yield server


async def look(harbour: str = "") -> str:
    return f"full in {harbour}"


def sent(server: GoogleServer, number: int) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = server.requests[number].body["contents"]
    return contents


def raw_chunk(**fields: Any) -> steps.Step:
    return steps.raw(b"data: " + json.dumps(fields).encode() + b"\r\n\r\n")


def candidate(*parts: dict[str, Any], reason: str | None = None, **fields: Any) -> steps.Step:
    said_now = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason, "index": 0, **fields}
    return raw_chunk(candidates=[{name: value for name, value in said_now.items() if value is not None}])


# --- under the loop ---


@pytest.mark.rule("A57", "A63")
async def test_three_steps_give_each_call_its_signature_back(gemini: GoogleServer) -> None:
    script = gemini.script(
        [
            steps.thinking("I look ", "twice."),
            steps.text("Looking."),
            steps.call("look", {"harbour": "Brest"}),
            steps.call("look", {"harbour": "Kiel"}),
        ],
        [steps.thinking("One more."), steps.call("look", {"harbour": "Riga"})],
        [steps.thinking("Done."), steps.text("All full.")],
    )
    conversation = Conversation(gemini, look=look)
    last = await conversation.turn(script, MODEL)
    assert [request.refused for request in gemini.requests] == ["", "", ""]
    assert conversation.ends == [("end_turn", "")]
    assert (last.thinking, last.text) == ("Done.", "All full.")
    assert conversation.steps[0].thinking == "I look twice."
    first = sent(gemini, 2)[1]["parts"]
    assert [sorted(part) for part in first] == [["text"], ["functionCall", "thoughtSignature"], ["functionCall"]]
    assert first[1]["thoughtSignature"] == seal("call", "look", {"harbour": "Brest"})
    assert first[1]["functionCall"]["id"].startswith("gc")
    answers = [part["functionResponse"] for part in sent(gemini, 2)[2]["parts"]]
    assert [answer["id"] for answer in answers] == [part["functionCall"]["id"] for part in first[1:]]
    assert [answer["response"] for answer in answers] == [{"output": "full in Brest"}, {"output": "full in Kiel"}]
    assert sent(gemini, 2)[3]["parts"][0]["thoughtSignature"] == seal("call", "look", {"harbour": "Riga"})


async def test_a_signature_of_words_comes_back_with_them(gemini: GoogleServer) -> None:
    conversation = Conversation(gemini)
    await conversation.turn(gemini.script([steps.thinking("Hm."), steps.text("Hel", "lo.")]), MODEL)
    await conversation.turn("and now?", MODEL)
    parts = sent(gemini, 1)[1]["parts"]
    assert "".join(part["text"] for part in parts) == "Hello."
    assert [part.get("thoughtSignature") for part in parts][-1] == seal("text")
    assert gemini.requests[1].refused == ""


async def test_what_was_signed_stays_with_its_model_and_comes_back_to_it(gemini: GoogleServer) -> None:
    script = gemini.script([steps.thinking("Secretly."), steps.call("look", {"harbour": "Brest"})], [steps.text("Full.")])
    conversation = Conversation(gemini, look=look)
    await conversation.turn(script, MODEL)
    await conversation.turn("and you?", "google:gemini-3-flash")
    await conversation.turn("and you again?", MODEL)
    assert [request.refused for request in gemini.requests] == [""] * 4
    signature = seal("call", "look", {"harbour": "Brest"})
    assert signature not in json.dumps(sent(gemini, 2))
    assert sent(gemini, 3)[1]["parts"][0]["thoughtSignature"] == signature


async def test_calls_of_another_vendors_model_go_on_without_a_signature(gemini: GoogleServer) -> None:
    script = gemini.script([], [steps.call("look", {"harbour": "Kiel"})], [steps.text("Full.")])
    conversation = Conversation(gemini, look=look)
    call = {"type": "tool_use", "toolCallId": "toolu_1", "name": "look", "input": {}}
    conversation.messages += [Message("user", script), Message("assistant", [call]), Message("tool", "x", "toolu_1")]
    found = said(await events(VENDOR, request(VENDOR, gemini, *conversation.messages, settings={})))
    assert gemini.requests[0].refused == ""
    assert found.calls[0][1] == "look"


async def test_an_older_model_without_ids_gets_none(gemini: GoogleServer) -> None:
    script = gemini.script([steps.call("look", {"harbour": "Brest"}), steps.call("look", {})], [steps.text("Full.")])
    conversation = Conversation(gemini, look=look)
    await conversation.turn(script, "google:gemini-2.5-flash")
    assert conversation.ends == [("end_turn", "")]
    assert ["id" in part["functionCall"] for part in sent(gemini, 1)[1]["parts"]] == [False, False]
    assert [part["functionResponse"]["response"]["output"] for part in sent(gemini, 1)[2]["parts"]] == [
        "full in Brest",
        "full in ",
    ]
    assert len({call.call_id for call in conversation.steps[0].calls}) == 2


@pytest.mark.rule("A85")
@pytest.mark.parametrize("end", [steps.error_object(), steps.drop(), steps.close()])
async def test_a_message_broken_off_keeps_its_words_alone_and_the_next_turn_works(gemini: GoogleServer, end: steps.Step) -> None:
    script = gemini.script([steps.thinking("Hm."), steps.text("So"), steps.call("look"), steps.text("!"), end])
    conversation = Conversation(gemini, look=look)
    message = await conversation.turn(script, MODEL)
    assert conversation.ends == [("error", "provider_failed")]
    assert (message.text, message.thinking, message.calls, message.broken) == ("So!", "Hm.", [], True)
    assert (await conversation.turn(gemini.script([steps.text("Better.")]), MODEL)).text == "Better."
    assert gemini.requests[-1].refused == ""


@pytest.mark.rule("A86")
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("MAX_TOKENS", "max_tokens"),
        *((name, "refusal") for name in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE")),
        ("STOP", "end_turn"),
    ],
)
async def test_how_a_message_ends_and_the_next_turn_works(gemini: GoogleServer, reason: str, expected: str) -> None:
    script = gemini.script([steps.text("So far"), steps.finish(reason)])
    conversation = Conversation(gemini)
    message = await conversation.turn(script, MODEL)
    assert (conversation.ends, message.text) == ([(expected, "")], "So far")
    await conversation.turn("and now?", MODEL)
    assert gemini.requests[-1].refused == ""


@pytest.mark.rule("A86")
@pytest.mark.parametrize("reason", ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"])
async def test_a_prompt_that_is_blocked_is_refused_with_no_message(gemini: GoogleServer, reason: str) -> None:
    conversation = Conversation(gemini)
    message = await conversation.turn(gemini.script([steps.blocked(reason)]), MODEL)
    assert (conversation.ends, message.text) == ([("refusal", "")], "")
    await conversation.turn("and now?", MODEL)
    assert conversation.ends[-1] == ("end_turn", "")
    assert gemini.requests[-1].refused == ""


@pytest.mark.rule("A86")
async def test_a_conversation_beyond_the_window_ends_as_max_tokens(gemini: GoogleServer) -> None:
    conversation = Conversation(gemini)
    await conversation.turn(gemini.script([steps.overflow()]), MODEL)
    words = "The input token count exceeds the maximum number of tokens allowed 1048576."
    await conversation.turn(gemini.script([steps.status(400, message=words)]), MODEL)
    assert conversation.ends == [("max_tokens", "")] * 2


# --- alone ---


async def test_what_the_vendor_demands_is_sent(gemini: GoogleServer) -> None:
    await events(VENDOR, request(VENDOR, gemini, Message("user", "x")))
    asked = gemini.requests[0]
    assert asked.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert asked.headers["x-goog-api-key"] == "sk-canary-key"
    assert "authorization" not in asked.headers
    assert asked.body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert asked.body["generationConfig"]["thinkingConfig"]["includeThoughts"] is True


async def test_no_key_stands_in_an_address(gemini: GoogleServer) -> None:
    await events(VENDOR, request(VENDOR, gemini, Message("user", "x")))
    assert "sk-canary" not in gemini.requests[0].path


async def test_parts_and_fields_nobody_knows_do_not_disturb(gemini: GoogleServer) -> None:
    script = gemini.script(
        [
            raw_chunk(usageMetadata={"promptTokenCount": 9}, modelVersion="x"),
            raw_chunk(candidates=[]),
            candidate({"executableCode": {"language": "PYTHON", "code": "1"}}, {"text": "a"}, safetyRatings=[]),
            candidate({"inlineData": {"mimeType": "image/png", "data": "AA=="}}),
            raw_chunk(candidates=[{"content": {"role": "model"}, "index": 0}]),
            raw_chunk(candidates=[{"content": {"parts": [{"text": "other"}]}, "index": 1, "finishReason": "STOP"}]),
            steps.ping(),
            candidate({"text": "b"}, groundingMetadata={"webSearchQueries": []}),
        ]
    )
    found = said(await events(VENDOR, request(VENDOR, gemini, Message("user", script))))
    assert (found.text, found.reason) == ("ab", "stop")


async def test_a_call_and_the_end_may_come_in_one_chunk_with_words(gemini: GoogleServer) -> None:
    call = {"functionCall": {"name": "look", "args": {"n": 123456789012345678901, "f": 1.0}}, "thoughtSignature": "AA=="}
    script = gemini.script([candidate({"text": "a"}, call, {"functionCall": {"name": "look"}}, reason="STOP"), steps.close()])
    found = said(await events(VENDOR, request(VENDOR, gemini, Message("user", script))))
    assert [(name, arguments) for _, name, arguments in found.calls] == [
        ("look", '{"n":123456789012345678901,"f":1.0}'),
        ("look", ""),
    ]
    assert (found.text, found.reason) == ("a", "tool_calls")


async def test_the_last_count_of_tokens_counts_with_thoughts_in_it(gemini: GoogleServer) -> None:
    counts = {"promptTokenCount": 20, "cachedContentTokenCount": 5, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}
    script = gemini.script(
        [
            raw_chunk(usageMetadata={"promptTokenCount": 20, "candidatesTokenCount": 1}),
            raw_chunk(candidates=[{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], usageMetadata=counts),
            steps.close(),
        ]
    )
    found = said(await events(VENDOR, request(VENDOR, gemini, Message("user", script))))
    assert found.usage == Usage(20, 7, 5)


@pytest.mark.rule("A84")
@pytest.mark.parametrize("first", [steps.status(503), steps.status(500), steps.finish("MALFORMED_FUNCTION_CALL")])
async def test_what_spoils_an_answer_before_its_first_word_passes(gemini: GoogleServer, first: steps.Step) -> None:
    script = gemini.script(attempts([first], [steps.text("ok")]))
    found = await events(VENDOR, request(VENDOR, gemini, Message("user", script)))
    assert found[-1] == Finish("stop")
    assert len(gemini.requests) == 2


@pytest.mark.rule("A84")
async def test_the_pause_that_the_vendor_asks_for_is_in_its_error(gemini: GoogleServer) -> None:
    script = gemini.script(attempts([steps.status(429, retry_after="1.5")], [steps.text("ok")]))
    begun = time.monotonic()
    assert said(await events(VENDOR, request(VENDOR, gemini, Message("user", script)))).text == "ok"
    assert time.monotonic() - begun >= 1.5
    long = gemini.script([steps.status(429, retry_after="3600")])
    assert (await fault_of(VENDOR, request(VENDOR, gemini, Message("user", long)))).fault == "unavailable"
    assert len(gemini.requests_of(long)) == 1


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (steps.status(400, message="API key not valid. Please pass a valid API key."), "configuration"),
        (steps.status(403), "configuration"),
        (steps.status(404, message="models/x is not found for API version v1beta"), "configuration"),
        (steps.status(400, message="Please use a valid role: user, model."), "refused_request"),
        (steps.status(429, retry_after="3600"), "unavailable"),
    ],
)
async def test_refusals_are_sorted(gemini: GoogleServer, step: steps.Step, fault: str) -> None:
    found = await fault_of(VENDOR, request(VENDOR, gemini, Message("user", gemini.script([step]))))
    assert found.fault == fault
