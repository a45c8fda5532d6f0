"""The vendors' own clients understand the scripted servers, and are refused what the vendors refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google import genai
from google.genai import errors as google_errors
from google.genai import types as google_types

from tests.fakes import steps
from tests.fakes.anthropic_server import AnthropicServer
from tests.fakes.google_server import GoogleServer
from tests.fakes.responses_server import ResponsesServer
from tests.fakes.seals import seal

LOOK = {"type": "object", "properties": {"harbour": {"type": "string"}}}
ARGUMENTS = {"harbour": "Brest \U0001f6a2"}


# --- Anthropic ---


@pytest.fixture
def claude() -> Iterator[AnthropicServer]:
    with AnthropicServer() as server:
        yield server


@pytest.fixture
def anthropic_client(claude: AnthropicServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="k", base_url=claude.url, max_retries=0) as client:
        yield client


def claude_request(*messages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tools = [{"name": "look", "description": "Looks.", "input_schema": LOOK}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    return {"model": "c", "max_tokens": 2048, "messages": list(messages), "tools": tools, "thinking": thinking, **changes}


def claude_says(client: anthropic.Anthropic, *messages: dict[str, Any], **changes: Any) -> anthropic.types.Message:
    with client.messages.stream(**claude_request(*messages, **changes)) as stream:
        return stream.get_final_message()


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_anthropics_client_reads_thinking_calls_text_and_usage_however_cut(
    claude: AnthropicServer, anthropic_client: anthropic.Anthropic, size: int
) -> None:
    script = claude.script(
        [
            steps.cut_every(size),
            steps.thinking("hm ", "m\u00e9"),
            steps.redacted(),
            steps.text("L\u00f6", "ok"),
            steps.thinking("more"),
            steps.call("look", ARGUMENTS, id="toolu_a", pieces=3),
            steps.call("look", {}, id="toolu_b"),
            steps.usage(20, 7, cached=5),
        ],
        [steps.text("seen")],
    )
    said = claude_says(anthropic_client, user(script))
    assert [block.type for block in said.content] == [
        *("thinking", "redacted_thinking", "text", "thinking", "tool_use", "tool_use")
    ]
    assert said.content[0].to_dict() == {
        "type": "thinking",
        "thinking": "hm m\u00e9",
        "signature": seal("thinking", "hm m\u00e9"),
    }
    assert said.content[4].to_dict()["input"] == ARGUMENTS
    assert (said.stop_reason, said.usage.input_tokens, said.usage.cache_read_input_tokens) == ("tool_use", 15, 5)
    assert said.usage.output_tokens == 7
    results = [{"type": "tool_result", "tool_use_id": each, "content": "x"} for each in ("toolu_a", "toolu_b")]
    blocks = [block.to_dict() for block in said.content]
    again = claude_says(anthropic_client, user(script), {"role": "assistant", "content": blocks}, user(results))
    assert (again.content[0].to_dict()["text"], again.stop_reason) == ("seen", "end_turn")
    assert [(request.answer, request.state, request.refused) for request in claude.requests] == [
        (0, "done", ""),
        (1, "done", ""),
    ]


CALL = {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_a", "content": "x"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": seal("thinking", "hm")}
PLAIN = {"thinking": {"type": "disabled"}}


def asked(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


@pytest.mark.parametrize(
    ("messages", "changes", "words"),
    [
        ([asked(THOUGHT, CALL), user([RESULT])], {}, "first message must use"),
        ([user("a"), asked(THOUGHT, CALL), user("b")], {}, "without `tool_result` blocks"),
        ([user("a"), asked(THOUGHT, CALL), user([{"type": "text", "text": "b"}, RESULT])], {}, "without `tool_result` blocks"),
        ([user("a"), user([RESULT])], {}, "unexpected `tool_use_id`"),
        ([user("a"), asked(THOUGHT, CALL), user([RESULT, RESULT])], {}, "single result"),
        ([user("a"), asked(CALL), user([RESULT])], {}, "must start with a thinking block"),
        ([user("a"), asked({**THOUGHT, "thinking": "hmm"}, CALL), user([RESULT])], {}, "Invalid `signature`"),
        ([user("a"), asked({"type": "redacted_thinking", "data": "x"}, CALL), user([RESULT])], {}, "Invalid `data`"),
        ([user("a"), asked(THOUGHT), user("b")], {}, "final block"),
        ([user("a"), asked({"type": "text", "text": ""}), user("b")], PLAIN, "must be non-empty"),
        ([user("a"), {"role": "assistant", "content": ""}, user("b")], PLAIN, "must have non-empty content"),
        ([user("a"), asked({"type": "text", "text": " \n"}), user("b")], PLAIN, "non-whitespace"),
        ([user("a"), {"role": "assistant", "content": "b"}], PLAIN, "must end with a user message"),
        ([user("a")], {"max_tokens": 1024}, "must be greater than `thinking.budget_tokens`"),
        ([user("a")], {"tool_choice": {"type": "any"}}, "forces tool use"),
        ([user("a")], {"extra_body": {"seed": 1}}, "Extra inputs are not permitted"),
        ([user([{"type": "text", "text": "a", "detail": "low"}])], {}, "Extra inputs are not permitted"),
        ([user("a")], {"tools": [{"name": "a.b", "input_schema": LOOK}]}, "should match pattern"),
        ([user("a")], {"tools": [{"name": "a", "input_schema": LOOK}] * 2}, "names must be unique"),
        ([user("a")], {"tools": [{"name": "a", "input_schema": {}}]}, "input_schema.type"),
        ([user("a"), asked(THOUGHT, {**CALL, "id": "call:1"}), user([RESULT])], {}, "tool_use.id"),
        ([user("a"), asked(THOUGHT, {**CALL, "input": "{}"}), user([RESULT])], {}, "valid dictionary"),
        ([user("a"), asked(THOUGHT, CALL), user([{**RESULT, "is_error": True, "content": ""}])], {}, "cannot be empty"),
        (
            [user([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AAAA"}}])],
            {},
            "media_type",
        ),
        ([user([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!"}}])], {}, "base64"),
        ([user([{"type": "image", "source": {"type": "url", "url": "file:///x"}}])], {}, "Only HTTP"),
        ([user([{"type": "image_url", "image_url": {"url": "x"}}])], {}, "does not match"),
    ],
)
def test_anthropics_rules_are_kept(
    claude: AnthropicServer,
    anthropic_client: anthropic.Anthropic,
    messages: list[dict[str, Any]],
    changes: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words):
        claude_says(anthropic_client, *messages, **changes)
    assert words in claude.requests[0].refused.replace('\\"', '"')


def test_thinking_of_the_last_answer_comes_back_complete(claude: AnthropicServer, anthropic_client: anthropic.Anthropic) -> None:
    script = claude.script([steps.thinking("one"), steps.thinking("two"), steps.call("look", id="toolu_a")])
    said = [block.to_dict() for block in claude_says(anthropic_client, user(script)).content]
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        claude_says(anthropic_client, user(script), asked(said[0], said[2]), user([RESULT]))


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (steps.status(401, message="invalid x-api-key"), anthropic.AuthenticationError),
        (steps.status(403), anthropic.PermissionDeniedError),
        (steps.status(404), anthropic.NotFoundError),
        (steps.status(429, retry_after="7"), anthropic.RateLimitError),
        (steps.status(500), anthropic.InternalServerError),
        (steps.status(529), anthropic.APIStatusError),
        (steps.overflow(), anthropic.BadRequestError),
    ],
)
def test_anthropics_errors_are_told_in_its_words(
    claude: AnthropicServer, anthropic_client: anthropic.Anthropic, step: steps.Step, kind: type[anthropic.APIStatusError]
) -> None:
    with pytest.raises(kind) as caught:
        claude_says(anthropic_client, user(claude.script([step])))
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    if step.get("retry_after"):
        assert caught.value.response.headers["retry-after"] == "7"


def test_anthropics_errors_in_mid_stream_and_refusals_are_read(
    claude: AnthropicServer, anthropic_client: anthropic.Anthropic
) -> None:
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        claude_says(anthropic_client, user(claude.script([steps.text("a"), steps.error_object("busy", "overloaded_error")])))
    said = claude_says(anthropic_client, user(claude.script([steps.text("a"), steps.refusal(), steps.ping()])))
    assert said.stop_reason == "refusal"
    said = claude_says(anthropic_client, user(claude.script([steps.text("a"), steps.finish("max_tokens")])))
    assert said.stop_reason == "max_tokens"


# --- OpenAI ---


@pytest.fixture
def gpt() -> Iterator[ResponsesServer]:
    with ResponsesServer() as server:
        yield server


@pytest.fixture
def openai_client(gpt: ResponsesServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="k", base_url=gpt.url, max_retries=0) as client:
        yield client


def gpt_says(client: openai.OpenAI, *items: Any, **changes: Any) -> Any:
    tools = [{"type": "function", "name": "look", "description": "Looks.", "parameters": LOOK, "strict": False}]
    given = {"model": "g", "input": list(items), "tools": tools, "include": ["reasoning.encrypted_content"], "store": False}
    with client.responses.stream(**{**given, **changes}) as stream:
        numbers = [event.sequence_number for event in stream]
        assert numbers == list(range(len(numbers)))
        return stream.get_final_response()


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_openais_client_reads_reasoning_calls_text_and_usage_however_cut(
    gpt: ResponsesServer, openai_client: openai.OpenAI, size: int
) -> None:
    script = gpt.script(
        [
            steps.cut_every(size),
            steps.thinking("hm ", "m\u00e9", signed=False),
            steps.thinking("second"),
            steps.text("L\u00f6", "ok"),
            steps.call("look", ARGUMENTS, id="call_a", pieces=3),
            steps.call("look", {}, id="call_b"),
            steps.usage(20, 7, cached=5),
        ],
        [steps.text("seen")],
    )
    said = gpt_says(openai_client, user(script))
    assert [item.type for item in said.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [part.text for part in said.output[0].summary] == ["hm m\u00e9", "second"]
    assert said.output[0].encrypted_content
    assert said.output_text == "L\u00f6ok"
    assert json.loads(said.output[2].arguments) == ARGUMENTS
    assert (said.usage.input_tokens, said.usage.input_tokens_details.cached_tokens, said.usage.output_tokens) == (20, 5, 7)
    items = [item.to_dict(exclude_none=True) for item in said.output]
    for item in items:
        item.pop("parsed_arguments", None)
        for part in item.get("content", ()):
            part.pop("parsed", None)
    results = [{"type": "function_call_output", "call_id": each, "output": "x"} for each in ("call_a", "call_b")]
    assert gpt_says(openai_client, user(script), *items, *results).output_text == "seen"
    assert [(request.answer, request.state, request.refused) for request in gpt.requests] == [(0, "done", ""), (1, "done", "")]


FUNCTION = {"type": "function_call", "call_id": "call_a", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_a", "output": "x"}
REASONING = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": seal("reasoning", "rs_0")}


@pytest.mark.parametrize(
    ("items", "changes", "words"),
    [
        ([user("a"), FUNCTION], {}, "No tool output found"),
        ([user("a"), OUTPUT], {}, "No tool call found"),
        ([user("a"), REASONING], {}, "required following item"),
        ([user("a"), REASONING, user("b")], {}, "required following item"),
        ([user("a"), {**REASONING, "encrypted_content": "x"}, FUNCTION, OUTPUT], {}, "could not be verified"),
        ([user("a"), {**FUNCTION, "id": "call_1"}, OUTPUT], {}, "begins with 'fc'"),
        ([user("a"), {**FUNCTION, "call_id": "c" * 65}, OUTPUT], {}, "string too long"),
        ([user("a"), {**FUNCTION, "name": "a.b"}, OUTPUT], {}, "does not match pattern"),
        ([user("a"), {**FUNCTION, "arguments": {}}, OUTPUT], {}, "expected a string"),
        ([user("a"), {**FUNCTION, "index": 0}, OUTPUT], {}, "Unknown parameter: 'input"),
        ([user("a")], {"extra_body": {"messages": []}}, "Unknown parameter: 'messages'"),
        ([user([{"type": "text", "text": "a"}])], {}, "Invalid value: 'text'"),
        ([{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}, user("b")], {}, "Supported values are"),
        ([user([{"type": "input_image", "image_url": "x"}])], {}, "Expected a valid URL"),
        ([user("a")], {"tools": [{"type": "function", "name": "f", "parameters": LOOK, "strict": True}]}, "additionalProp"),
        ([user("a")], {"tools": [{"type": "function", "name": "f g", "parameters": LOOK}]}, "does not match pattern"),
    ],
)
def test_openais_rules_are_kept(
    gpt: ResponsesServer, openai_client: openai.OpenAI, items: list[Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        gpt_says(openai_client, *items, **changes)


def test_a_reasoning_item_that_was_not_stored_is_not_known(gpt: ResponsesServer, openai_client: openai.OpenAI) -> None:
    script = gpt.script([steps.thinking("hm"), steps.call("look", id="call_a")])
    given = [item.to_dict(exclude_none=True) for item in gpt_says(openai_client, user(script)).output]
    given[1].pop("parsed_arguments", None)
    bare = {name: value for name, value in given[0].items() if name != "encrypted_content"}
    with pytest.raises(openai.NotFoundError, match="Items are not persisted"):
        gpt_says(openai_client, user(script), bare, given[1], OUTPUT)
    with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
        gpt_says(openai_client, user(script), given[1], OUTPUT)
    with pytest.raises(openai.NotFoundError, match="not found"):
        gpt_says(openai_client, user(script), {**given[1], "id": "fc_x"}, OUTPUT, store=True)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (steps.status(401), openai.AuthenticationError),
        (steps.status(403), openai.PermissionDeniedError),
        (steps.status(404), openai.NotFoundError),
        (steps.status(429), openai.RateLimitError),
        (steps.status(500), openai.InternalServerError),
        (steps.overflow(), openai.BadRequestError),
    ],
)
def test_openais_errors_are_told_in_its_words(
    gpt: ResponsesServer, openai_client: openai.OpenAI, step: steps.Step, kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind) as caught:
        gpt_says(openai_client, user(gpt.script([step])))
    if step["do"] == "overflow":
        assert caught.value.code == "context_length_exceeded"


def test_openais_errors_in_mid_stream_and_incomplete_answers_are_read(gpt: ResponsesServer, openai_client: openai.OpenAI) -> None:
    for last, kind in ((steps.error_object("busy"), "error"), (steps.failed("busy"), "response.failed")):
        script = gpt.script([steps.text("a"), last])
        events = list(openai_client.responses.create(model="g", input=script, stream=True))
        assert events[-1].type == kind
    script = gpt.script([steps.text("a"), steps.finish("content_filter")])
    *_, end = openai_client.responses.create(model="g", input=script, stream=True)
    assert end.type == "response.incomplete"
    assert end.response.incomplete_details is not None
    assert end.response.incomplete_details.reason == "content_filter"
    script = gpt.script([steps.text("a"), steps.refusal("I ", "won't")])
    said = gpt_says(openai_client, user(script))
    assert said.output[1].content[0].refusal == "I won't"


# --- Google ---


@pytest.fixture
def gemini() -> Iterator[GoogleServer]:
    with GoogleServer() as server:
        yield server


@pytest.fixture
def google_client(gemini: GoogleServer) -> Iterator[genai.Client]:
    options = google_types.HttpOptions(base_url=gemini.url)
    client = genai.Client(api_key="k", http_options=options)
    yield client
    client.close()


def gemini_says(
    client: genai.Client, *contents: dict[str, Any], model: str = "gemini-3-pro", **changes: Any
) -> list[google_types.GenerateContentResponse]:
    functions = [{"name": "look", "description": "Looks.", "parameters_json_schema": LOOK}]
    config = {"tools": [{"function_declarations": functions}], "system_instruction": "Be brief.", **changes}
    return list(client.models.generate_content_stream(model=model, contents=list(contents), config=config))  # type: ignore[arg-type]


def said_parts(chunks: list[google_types.GenerateContentResponse]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for chunk in chunks:
        for candidate in chunk.candidates or ():
            if candidate.content is not None:
                found += [part.model_dump(mode="json", exclude_none=True) for part in candidate.content.parts or ()]
    return found


def told(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_googles_client_reads_thoughts_calls_text_and_usage_however_cut(
    gemini: GoogleServer, google_client: genai.Client, size: int
) -> None:
    script = gemini.script(
        [
            steps.cut_every(size),
            steps.thinking("hm ", "m\u00e9"),
            steps.text("L\u00f6", "ok"),
            steps.call("look", ARGUMENTS, id="a"),
            steps.call("look", {}, id="b"),
            steps.usage(20, 7, cached=5),
        ],
        [steps.thinking("so"), steps.text("seen")],
    )
    chunks = gemini_says(google_client, told({"text": script}))
    parts = said_parts(chunks)
    assert [part.get("thought", False) for part in parts[:4]] == [True, True, False, False]
    assert parts[4]["function_call"] == {"id": "a", "name": "look", "args": ARGUMENTS}
    assert "thought_signature" in parts[4]
    assert "thought_signature" not in parts[5]
    usage = chunks[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.cached_content_token_count) == (20, 5)
    calls = [part for part in parts if "function_call" in part]
    answers = [{"function_response": {"id": each, "name": "look", "response": {"output": "x"}}} for each in "ab"]
    again = gemini_says(google_client, told({"text": script}), told(*calls, role="model"), told(*answers))
    assert [part.get("text") for part in said_parts(again)] == ["so", "seen", ""]
    assert "thought_signature" in said_parts(again)[-1]
    assert [(request.answer, request.refused) for request in gemini.requests] == [(0, ""), (1, "")]


SIGNED = {"function_call": {"name": "look", "args": {}}, "thought_signature": seal("call", "look", {})}
ANSWER = {"function_response": {"name": "look", "response": {"output": "x"}}}
HELLO = told({"text": "a"})


@pytest.mark.parametrize(
    ("contents", "changes", "words"),
    [
        ([HELLO, told({"function_call": {"name": "look"}}, role="model"), told(ANSWER)], {}, "missing a thought_signature"),
        ([HELLO, told({**SIGNED, "thought_signature": seal("x")}, role="model"), told(ANSWER)], {}, "Corrupted"),
        ([HELLO, told(SIGNED, role="model"), told(ANSWER, ANSWER)], {}, "number of function response parts"),
        ([HELLO, told(SIGNED, role="model"), HELLO], {}, "number of function response parts"),
        ([HELLO, told(ANSWER)], {}, "immediately after a function call turn"),
        ([told(SIGNED, role="model"), told(ANSWER)], {}, "immediately after a user turn"),
        ([told({"text": ""})], {}, "must have one initialized field"),
        ([told()], {}, "parts must not be empty"),
        ([HELLO], {"tools": [{"function_declarations": [{"name": "1 a"}]}]}, "Invalid function name"),
        ([told({"inline_data": {"mime_type": "image/png", "data": b""}})], {}, "process input image"),
    ],
)
def test_googles_rules_are_kept(
    gemini: GoogleServer, google_client: genai.Client, contents: list[Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(google_errors.ClientError, match=words):
        gemini_says(google_client, *contents, **changes)


def test_google_reads_no_json_schema_where_its_own_is_due_and_no_unknown_fields(gemini: GoogleServer) -> None:
    address = f"{gemini.url}/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"

    def refusal(**body: Any) -> str:
        answer = httpx.post(address, json={"contents": [HELLO], **body}, headers={"x-goog-api-key": "k"})
        assert answer.status_code == 400
        return str(answer.json()["error"]["message"])

    foreign = {"type": "object", "patternProperties": {}}
    declared = {"tools": [{"functionDeclarations": [{"name": "f", "parameters": foreign}]}]}
    assert "patternProperties" in refusal(**declared)
    assert 'Unknown name "messages"' in refusal(messages=[])
    assert "Base64 decoding failed" in refusal(contents=[told({**SIGNED, "thoughtSignature": "!"}, role="model")])
    assert httpx.post(address, json={"contents": [HELLO]}).json()["error"]["status"] == "PERMISSION_DENIED"


def test_an_older_model_of_googles_needs_no_signature(gemini: GoogleServer, google_client: genai.Client) -> None:
    call = {"function_call": {"name": "look", "args": {}}}
    script = gemini.script([], [steps.text("fine")])
    contents = [told({"text": script}), told(call, role="model"), told(ANSWER)]
    assert said_parts(gemini_says(google_client, *contents, model="gemini-2.5-flash"))[0]["text"] == "fine"


@pytest.mark.parametrize(
    ("step", "code", "name"),
    [
        (steps.status(403), 403, "PERMISSION_DENIED"),
        (steps.status(404), 404, "NOT_FOUND"),
        (steps.status(429), 429, "RESOURCE_EXHAUSTED"),
        (steps.status(500), 500, "INTERNAL"),
        (steps.status(503), 503, "UNAVAILABLE"),
        (steps.overflow(), 400, "INVALID_ARGUMENT"),
    ],
)
def test_googles_errors_are_told_in_its_words(
    gemini: GoogleServer, google_client: genai.Client, step: steps.Step, code: int, name: str
) -> None:
    with pytest.raises(google_errors.APIError) as caught:
        gemini_says(google_client, told({"text": gemini.script([step])}))
    assert (caught.value.code, caught.value.status) == (code, name)


def test_googles_blocks_and_reasons_and_errors_in_mid_stream_are_read(gemini: GoogleServer, google_client: genai.Client) -> None:
    chunks = gemini_says(google_client, told({"text": gemini.script([steps.blocked()])}))
    assert chunks[-1].prompt_feedback is not None
    assert chunks[-1].prompt_feedback.block_reason == google_types.BlockedReason.PROHIBITED_CONTENT
    chunks = gemini_says(google_client, told({"text": gemini.script([steps.text("a"), steps.finish("SAFETY")])}))
    assert (chunks[-1].candidates or [])[0].finish_reason == google_types.FinishReason.SAFETY
    script = gemini.script([steps.text("a"), steps.error_object("busy")])
    with pytest.raises(google_errors.ServerError, match="busy"):
        gemini_says(google_client, told({"text": script}))


# --- all of them ---


@pytest.mark.parametrize("kind", [AnthropicServer, ResponsesServer, GoogleServer])
def test_a_client_that_hangs_up_at_a_gate_is_seen(kind: type[AnthropicServer | ResponsesServer | GoogleServer]) -> None:
    with kind() as server:
        script = server.script([steps.text("before"), steps.gate("g"), steps.text("after")])
        address, body = {
            AnthropicServer: ("/v1/messages", {"model": "c", "max_tokens": 9, "messages": [user(script)], "stream": True}),
            ResponsesServer: ("/v1/responses", {"model": "g", "input": script, "stream": True}),
            GoogleServer: ("/v1beta/models/g:streamGenerateContent?alt=sse", {"contents": [told({"text": script})]}),
        }[kind]
        headers = {"x-api-key": "k", "anthropic-version": "1", "authorization": "Bearer k"}
        with httpx.stream("POST", server.origin + address, json=body, headers=headers) as answer:
            chunks = answer.iter_text()
            assert next(chunks)
            server.wait_gate("g")
        assert server.wait_ended(server.wait_request(script)) == "closed"
