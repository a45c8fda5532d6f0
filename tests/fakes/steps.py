"""Steps of a scripted model answer, as plain JSON objects so that a script can cross a process."""

from __future__ import annotations

import base64
import json
from typing import Any

Step = dict[str, Any]
Answer = list[Step]
"""What the model says to one request."""


def text(*deltas: str) -> Step:
    """One chunk for each delta."""
    return {"do": "text", "deltas": list(deltas)}


def thinking(*deltas: str, signed: bool = True) -> Step:
    """``signed``: with what the vendor wants back, where it has such a thing. No deltas: thinking that is not shown."""
    return {"do": "thinking", "deltas": list(deltas), "signed": signed}


def redacted() -> Step:
    """Thinking that nobody may read. Anthropic's."""
    return {"do": "redacted"}


def refusal(*deltas: str) -> Step:
    """The model will not, and says so in words of their own where the vendor has such words."""
    return {"do": "refusal", "deltas": list(deltas)}


def blocked(reason: str = "PROHIBITED_CONTENT") -> Step:
    """The prompt is refused, there is no answer. Google's."""
    return {"do": "blocked", "reason": reason}


def call(name: str, arguments: Any = None, *, id: str | None = None, index: int | None = None, pieces: int = 1) -> Step:  # noqa: A002
    """A tool call. ``arguments``: an object to be written as JSON, or a string to be sent as it is.

    Without ``id`` the server makes one that is unique; ``index`` counts up within the answer.
    """
    written = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
    return {"do": "call", "name": name, "arguments": written, "id": id, "index": index, "pieces": pieces}


def call_piece(arguments: str, *, index: int) -> Step:
    """More arguments for a call begun earlier."""
    return {"do": "call_piece", "arguments": arguments, "index": index}


def usage(input_tokens: int, output_tokens: int, cached: int = 0) -> Step:
    """``cached`` tokens are among the input's. Where a vendor tells the input first, this must come first."""
    return {"do": "usage", "input": input_tokens, "output": output_tokens, "cached": cached}


def finish(reason: str) -> Step:
    """The vendor's own word (OpenAI: ``stop``, ``length``…); left out, the server says what fits."""
    return {"do": "finish", "reason": reason}


def gate(name: str) -> Step:
    """Wait here until the test opens the gate."""
    return {"do": "gate", "name": name}


def pause(seconds: float) -> Step:
    """Speak at a pace. For load, not for order: order is what gates are for."""
    return {"do": "pause", "seconds": seconds}


def status(number: int, *, retry_after: str | None = None, message: str = "scripted failure", code: str | None = None) -> Step:
    """Answer with an HTTP error instead of a stream. Must come first."""
    return {"do": "status", "number": number, "retry_after": retry_after, "message": message, "code": code}


def overflow() -> Step:
    """The conversation is too long, in the vendor's words. Must come first."""
    return {"do": "overflow"}


def failed(message: str = "scripted failure", code: str = "server_error") -> Step:
    """The answer itself is declared a failure, where the vendor has that beside an error. OpenAI Responses'."""
    return {"do": "failed", "message": message, "code": code}


def ping() -> Step:
    """What the vendor sends so that nobody thinks the line is dead."""
    return {"do": "ping"}


def error_object(message: str = "scripted failure", code: str = "server_error") -> Step:
    """An error object in the middle of the stream, then its end."""
    return {"do": "error_object", "message": message, "code": code}


def drop() -> Step:
    """Cut the connection without a word."""
    return {"do": "drop"}


def close() -> Step:
    """End the response cleanly, with neither a finish reason nor ``[DONE]``."""
    return {"do": "close"}


def hang() -> Step:
    """Say nothing more and keep the connection open."""
    return {"do": "hang"}


def cut_every(count: int) -> Step:
    """From here on the body's bytes come in pieces of ``count``, wherever that cuts: in a character, in a line."""
    return {"do": "cut_every", "bytes": count}


def raw(data: bytes) -> Step:
    """Bytes for the response body as they are, in one chunk of their own."""
    return {"do": "raw", "data": base64.b64encode(data).decode()}


def split_text(value: str, at_byte: int) -> list[Step]:
    """One text delta whose bytes come in two chunks, cut inside the written character(s) at ``at_byte``."""
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": value}, "finish_reason": None}]}
    head, tail = json.dumps(chunk, ensure_ascii=False).encode().split(value.encode())
    body = value.encode()
    return [raw(b"data: " + head + body[:at_byte]), raw(body[at_byte:] + tail + b"\n\n")]
