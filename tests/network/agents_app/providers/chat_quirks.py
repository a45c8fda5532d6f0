"""What known servers make of OpenAI's chat completions, as bytes, with what is to be understood."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agents_app.runtime.interface import Usage

Call = tuple[str | None, str, str]
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class Quirk:
    """What a server said, and what is to be understood. ``fault`` instead of an end: it fails."""

    name: str
    wire: bytes
    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    finish: str = "stop"
    fault: str = ""
    status: int = 200
    kind: str = "text/event-stream"


def data(document: Any) -> bytes:
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def delta(reason: str | None = None, /, **fields: Any) -> bytes:
    return data({"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]})


def piece(arguments: Any = None, name: str | None = None, **fields: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": function}


def calling(*pieces: dict[str, Any], reason: str | None = None) -> bytes:
    return delta(reason, tool_calls=list(pieces))


def told(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


OK = delta("stop", content="ok")
USAGE = data({"choices": [], "usage": told(3, 2)})

STREAMS = [
    # What stands around the words.
    Quirk(
        "openai: role alone, empty content, usage last",
        delta(role="assistant", content="") + OK + USAGE + DONE,
        "ok",
        usage=Usage(3, 2),
    ),
    Quirk(
        "mistral: a role in every chunk",
        delta(role="assistant", content="o") + delta("stop", role="assistant", content="k") + DONE,
        "ok",
    ),
    Quirk(
        "vllm: usage in every chunk",
        b"".join(data({"choices": [{"delta": {"content": str(n)}}], "usage": told(5, n)}) for n in range(3)) + OK,
        "012ok",
        usage=Usage(5, 2),
    ),
    Quirk("ollama: usage was never told", OK + DONE, "ok"),
    Quirk(
        "groq: usage in a field of its own",
        OK + data({"choices": [], "x_groq": {"id": "r", "usage": told(9, 1)}}) + DONE,
        "ok",
        usage=Usage(9, 1),
    ),
    Quirk(
        "moonshot: usage within the choice",
        data({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": told(7, 1, cached_tokens=4)}]}) + DONE,
        usage=Usage(7, 1, 4),
    ),
    Quirk(
        "deepseek: cached tokens by its own name",
        OK + data({"choices": [], "usage": told(8, 1, prompt_cache_hit_tokens=6)}),
        "ok",
        usage=Usage(8, 1, 6),
    ),
    Quirk(
        "openrouter: usage with nulls and a price",
        OK + data({"choices": [], "usage": told(8, 1, cost=0.1, prompt_tokens_details=None, cached_tokens=2)}),
        "ok",
        usage=Usage(8, 1, 2),
    ),
    Quirk(
        "azure: filter results before the answer",
        data({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
        + data({"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]})
        + OK
        + DONE,
        "ok",
    ),
    Quirk("openrouter: comments while it waits", b": OPENROUTER PROCESSING\n\n" * 3 + OK + b": x\n\n" + DONE, "ok"),
    Quirk("a proxy: CRLF", (delta(content="o") + delta("stop", content="k") + DONE).replace(b"\n", b"\r\n"), "ok"),
    Quirk(
        "one-api: data: without a space",
        (delta(content="o") + delta("stop", content="k") + DONE).replace(b"data: ", b"data:"),
        "ok",
    ),
    Quirk("a proxy: byte order mark", b"\xef\xbb\xbf" + OK + DONE, "ok"),
    Quirk("lm studio: events with names", b"event: message\n" + OK + b"event: done\n" + DONE, "ok"),
    Quirk("llama.cpp: no [DONE]", OK, "ok"),
    Quirk("tgi: no empty line at the end", OK[:-1], "ok"),
    Quirk("tgi: not even a line's end", OK[:-2], "ok"),
    Quirk("litellm: words after [DONE]", OK + DONE + delta(content="late"), "ok"),
    Quirk(
        "an old server: null and empty lists",
        data({"choices": None})
        + data({"choices": [None]})
        + data({"choices": [{"delta": None}]})
        + data(
            {"choices": [{"index": 0, "delta": {"content": None, "tool_calls": None, "function_call": None, "refusal": None}}]}
        )
        + OK,
        "ok",
    ),
    Quirk(
        "perplexity: the whole message beside each delta",
        data({"choices": [{"index": 0, "message": {"content": "o"}, "delta": {"content": "o"}}]})
        + data({"choices": [{"index": 0, "message": {"content": "ok"}, "delta": {"content": "k"}}]})
        + data({"choices": [{"index": 0, "message": {"content": "ok"}, "delta": {}, "finish_reason": "stop"}]}),
        "ok",
    ),
    Quirk(
        "a gateway: messages instead of deltas",
        data({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}),
        "ok",
    ),
    Quirk(
        "mistral: content in parts",
        delta(
            "stop",
            content=[
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "ok"},
                {"type": "reference", "reference_ids": [1]},
            ],
        ),
        "ok",
        "hm",
    ),
    # The end.
    Quirk("llama.cpp: eos", delta("eos", content="ok") + DONE, "ok"),
    Quirk("an old server: an empty reason in every chunk", delta("", content="o") + delta("", content="k") + DONE, "ok"),
    Quirk("an old server: no reason but [DONE]", delta(content="ok") + DONE, "ok"),
    Quirk("mistral: model_length", delta("model_length", content="ok"), "ok", finish="max_tokens"),
    Quirk("litellm: MAX_TOKENS", delta("MAX_TOKENS", content="ok"), "ok", finish="max_tokens"),
    Quirk(
        "openrouter: a second reason with the usage",
        delta("length", content="ok")
        + data({"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}], "usage": told(3, 2)})
        + DONE,
        "ok",
        usage=Usage(3, 2),
        finish="max_tokens",
    ),
    Quirk("azure: content_filter", delta("content_filter", content="o"), "o", finish="refusal"),
    Quirk("litellm: SAFETY", delta("SAFETY", content="o"), "o", finish="refusal"),
    Quirk(
        "openai: refusal in its own field",
        delta(refusal="No", content=None) + delta("stop", refusal="."),
        "No.",
        finish="refusal",
    ),
    # Thinking.
    Quirk(
        "deepseek: reasoning_content",
        delta(role="assistant", content=None, reasoning_content="h") + delta(content=None, reasoning_content="m") + OK,
        "ok",
        "hm",
    ),
    Quirk(
        "openrouter: reasoning, and the same as details",
        delta(content="", reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm", "index": 0}]) + OK,
        "ok",
        "hm",
    ),
    Quirk(
        "openrouter: details alone",
        delta(
            content="",
            reasoning_details=[
                {"type": "reasoning.summary", "summary": "h"},
                {"type": "reasoning.text", "text": "m", "signature": None},
                {"type": "reasoning.encrypted", "data": "x"},
            ],
        )
        + OK,
        "ok",
        "hm",
    ),
    Quirk("vllm: both names with the same words", delta(reasoning="hm", reasoning_content="hm") + OK, "ok", "hm"),
    Quirk("vllm: reasoning and words in one chunk", delta("stop", reasoning_content="hm", content="ok"), "ok", "hm"),
    Quirk("ollama: thinking in the text stays there", delta("stop", content="<think>hm</think>ok"), "<think>hm</think>ok"),
    # Calls.
    Quirk(
        "ollama: a call in one piece, the end says stop",
        calling(piece('{"a":1}', "f", id="c", index=0, type="function"), reason="stop") + DONE,
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "ollama: arguments as an object",
        calling(piece({"a": 1, "b": [1.0]}, "f", id="c"), reason="stop"),
        calls=(("c", "f", '{"a":1,"b":[1.0]}'),),
        finish="tool_calls",
    ),
    Quirk(
        "an old server: arguments as an empty object",
        calling(piece({}, "f", id="c"), reason="stop"),
        calls=(("c", "f", "{}"),),
        finish="tool_calls",
    ),
    Quirk(
        "openai: the id in the first piece",
        calling(piece("", "f", id="c", index=0))
        + calling(piece('{"a"', index=0))
        + calling(piece(":1}", index=0), reason="tool_calls"),
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "groq: the id in every piece",
        calling(piece("", "f", id="c", index=0))
        + calling(piece('{"a"', id="c", index=0))
        + calling(piece(":1}", id="c", index=0), reason="tool_calls"),
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "vllm: another id in every piece",
        calling(piece("", "f", id="c1", index=0))
        + calling(piece('{"a"', id="c2", index=0))
        + calling(piece(":1}", id="c3", index=0), reason="tool_calls"),
        calls=(("c1", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "qwen: an empty id and name in later pieces",
        calling(piece("", "f", id="c", index=0)) + calling(piece('{"a":1}', "", id="", index=0), reason="tool_calls"),
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "sglang: the name in every piece",
        calling(piece("", "f", id="c", index=0))
        + calling(piece('{"a"', "f", index=0))
        + calling(piece(":1}", "f", index=0), reason="tool_calls"),
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "no ids at all",
        calling(piece('{"a":1}', "f", index=0)) + calling(piece("{}", "g", index=1), reason="tool_calls"),
        calls=((None, "f", '{"a":1}'), (None, "g", "{}")),
        finish="tool_calls",
    ),
    Quirk(
        "gemini's gateway: all calls under index 0",
        calling(piece("{}", "f", id="a", index=0), piece("{}", "f", id="b", index=0), reason="stop"),
        calls=(("a", "f", "{}"), ("b", "f", "{}")),
        finish="tool_calls",
    ),
    Quirk(
        "gemini's gateway: index 0, ids empty",
        calling(piece('{"a":1}', "f", id="", index=0))
        + calling(piece('{"a":2}', "f", id="", index=0))
        + calling(piece("{}", "g", id="", index=0), reason="stop"),
        calls=((None, "f", '{"a":1}'), (None, "f", '{"a":2}'), (None, "g", "{}")),
        finish="tool_calls",
    ),
    Quirk(
        "index 0, no ids, in pieces",
        calling(piece("", "f", index=0))
        + calling(piece('{"a":"}', index=0))
        + calling(piece('{"}', index=0))
        + calling(piece("", "g", index=0))
        + calling(piece("{}", index=0), reason="stop"),
        calls=((None, "f", '{"a":"}{"}'), (None, "g", "{}")),
        finish="tool_calls",
    ),
    Quirk(
        "no index, pieces follow their id",
        calling(piece("", "f", id="a"))
        + calling(piece("{}"))
        + calling(piece("", "g", id="b"))
        + calling(piece("{", id="b"))
        + calling(piece("}"), reason="stop"),
        calls=(("a", "f", "{}"), ("b", "g", "{}")),
        finish="tool_calls",
    ),
    Quirk(
        "a null where arguments are due",
        calling({"id": "c", "index": 0, "function": {"name": "f", "arguments": None}}, reason="tool_calls"),
        calls=(("c", "f", ""),),
        finish="tool_calls",
    ),
    Quirk(
        "llama.cpp: calls after words and thoughts",
        delta(reasoning_content="hm") + delta(content="ok") + calling(piece("{}", "f", id="c", index=0), reason="tool_calls"),
        "ok",
        "hm",
        (("c", "f", "{}"),),
        finish="tool_calls",
    ),
    Quirk(
        "before tools: function_call",
        delta(function_call={"name": "f", "arguments": ""})
        + delta(function_call={"arguments": '{"a"'})
        + delta(function_call={"arguments": ":1}"})
        + delta("function_call"),
        calls=((None, "f", '{"a":1}'),),
        finish="tool_calls",
    ),
    Quirk(
        "litellm: the finished message once more",
        calling(piece("{}", "f", id="c", index=0))
        + data(
            {
                "choices": [
                    {"delta": {}, "message": {"tool_calls": [piece("{}", "f", id="c", index=0)]}, "finish_reason": "tool_calls"}
                ]
            }
        ),
        calls=(("c", "f", "{}"),),
        finish="tool_calls",
    ),
    # No stream at all.
    Quirk(
        "a server that cannot stream",
        json.dumps(
            {
                "id": "x",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "ok", "reasoning_content": "hm"},
                        "finish_reason": "stop",
                    }
                ],
                "usage": told(3, 2),
            },
            indent=2,
        ).encode(),
        "ok",
        "hm",
        usage=Usage(3, 2),
        kind="application/json",
    ),
    Quirk(
        "a server that cannot stream, with calls",
        json.dumps(
            {
                "choices": [
                    {
                        "message": {"content": None, "tool_calls": [piece({"a": 1}, "f", id="c", type="function")]},
                        "finish_reason": "tool_calls",
                    }
                ]
            }
        ).encode(),
        calls=(("c", "f", '{"a":1}'),),
        finish="tool_calls",
        kind="application/json",
    ),
    Quirk(
        "a server that cannot stream, after a byte order mark",
        b"\xef\xbb\xbf" + json.dumps({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}).encode(),
        "ok",
        kind="application/json",
    ),
    # Errors within an answer.
    Quirk(
        "openrouter: an error after words",
        delta(content="o")
        + data(
            {
                "error": {"code": 502, "message": "Provider disconnected"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            }
        ),
        "o",
        fault="broken_stream",
    ),
    Quirk(
        "openrouter: an error first",
        data(
            {
                "error": {
                    "code": 400,
                    "message": "This endpoint's maximum context length is 32768 tokens. You requested about 40000",
                }
            }
        ),
        fault="context_too_long",
    ),
    Quirk(
        "ollama: an error that is a string",
        delta(content="o") + data({"error": "model runner has unexpectedly stopped"}),
        "o",
        fault="broken_stream",
    ),
    Quirk(
        "lm studio: an event of errors",
        b"event: error\n"
        + data(
            {"error": {"message": "The number of tokens to keep from the initial prompt is greater than the context length."}}
        ),
        fault="context_too_long",
    ),
    Quirk(
        "llama.cpp: a line of errors",
        b'error: {"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}\n\n',
        fault="context_too_long",
    ),
    Quirk(
        "vllm: an object of errors",
        data(
            {
                "object": "error",
                "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
                "type": "BadRequestError",
                "code": 400,
            }
        ),
        fault="context_too_long",
    ),
    Quirk(
        "azure: a filter first",
        data({"error": {"code": "content_filter", "message": "The response was filtered", "status": 400}}),
        fault="declined",
    ),
    Quirk(
        "deepseek: its machines gave up", delta(content="o") + delta("insufficient_system_resource"), "o", fault="broken_stream"
    ),
    Quirk("vllm: aborted", delta(content="o") + delta("abort"), "o", fault="broken_stream"),
    Quirk("a cut that looks polite", delta(content="o"), "o", fault="broken_stream"),
    Quirk(
        "an error document with 200",
        json.dumps({"error": {"message": "no", "type": "invalid_request_error"}}).encode(),
        fault="unavailable",
        kind="application/json",
    ),
    Quirk("a page with 200", b"<!DOCTYPE html><html><body>Sign in</body></html>", fault="configuration", kind="text/html"),
    Quirk("nothing with 200", b"", fault="unavailable"),
    Quirk(
        "an HTML page with 502",
        b"<html><center>502 Bad Gateway</center></html>",
        fault="unavailable",
        status=502,
        kind="text/html",
    ),
    Quirk("an HTML page with 404", b"<html>Not Found</html>", fault="configuration", status=404, kind="text/html"),
]


def refused(message: str, status: int = 400, **fields: Any) -> tuple[int, Any]:
    return status, {"error": {"message": message, **fields}}


OVERFLOWS = {
    "openai": refused("This model's maximum context length is 128000 tokens.", code="context_length_exceeded"),
    "azure": refused("Input tokens exceed the configured limit of 272000 tokens.", code="context_length_exceeded"),
    "deepseek": refused("This model's maximum context length is 131072 tokens. However, you requested 140000 tokens"),
    "openrouter": refused("This endpoint's maximum context length is 32768 tokens.", code=400),
    "groq": refused("Please reduce the length of the messages or completion.", param="messages"),
    "mistral": (400, {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum"}),
    "vllm": (400, {"object": "error", "message": "The prompt is longer than the maximum model length of 4096", "code": 400}),
    "llama.cpp": refused("request (5000 tokens) exceeds the available context size", type="exceed_context_size_error"),
    "lm studio": (400, {"error": "Trying to keep the first 5000 tokens. The model is loaded with context length of only 4096"}),
    "litellm": refused("litellm.ContextWindowExceededError: litellm.BadRequestError", code="400"),
    "tgi": (422, {"error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000"}),
    "together": refused("`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000", 422),
    "xai": (400, {"code": "x", "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}),
    "moonshot": refused("Invalid request: Your request exceeded model token limit: 262144", type="invalid_request_error"),
    "dashscope": refused("Range of input length should be [1, 30720]", code="invalid_parameter_error"),
    "zai": refused("Prompt exceeds max length", code="1261"),
    "minimax": refused("invalid params, context window exceeds limit (2013)"),
    "github": refused("prompt token count of 128001 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded"),
    "bedrock's gateway": refused("Input is too long for requested model."),
}
OTHERS = {
    "a rate counted in tokens": (
        429,
        {"error": {"message": "Rate limit reached: too many tokens, Limit 6000", "code": "rate_limit_exceeded"}},
        "unavailable",
    ),
    "groq: one request above the rate": (
        413,
        {
            "error": {
                "message": "Request too large for model on tokens per minute (TPM)",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        "refused_request",
    ),
    "no money": (402, {"error": {"code": 402, "message": "Insufficient credits"}}, "refused_request"),
    "a field nobody knows": (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"]}]}, "refused_request"),
    "a key that is wrong": (401, {"error": "invalid key"}, "configuration"),
    "ollama: no such model": (404, {"error": {"message": 'model "x" not found, try pulling it first'}}, "configuration"),
    "llama.cpp still loads": (
        503,
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        "unavailable",
    ),
    "azure's filter": (
        400,
        {"error": {"code": "content_filter", "message": "The response was filtered due to the prompt"}},
        "declined",
    ),
    "openrouter's moderation": (
        403,
        {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["x"]}}},
        "declined",
    ),
    "dashscope's inspection": (
        400,
        {"error": {"code": "data_inspection_failed", "message": "inappropriate content"}},
        "declined",
    ),
}
