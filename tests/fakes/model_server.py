"""A scripted model server that speaks OpenAI chat completions on a real socket.

What scripts are and how they are chosen: scripted_server.py.
In a test's own process: ``with ModelServer() as model``. As a process of its own:
``python -m tests.fakes.model_server --port 9999``, controlled by HTTP through ``RemoteModelServer``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.fakes.scripted_server import (
    DEFAULT_WAIT,
    Attempts,
    NotInTimeError,
    RecordedRequest,
    Refusal,
    ScriptAnswer,
    ScriptedServer,
    attempts,
)
from tests.fakes.speech import Speech, pieces_of, written
from tests.fakes.steps import Answer, Step

__all__ = ["Attempts", "ModelServer", "NotInTimeError", "RecordedRequest", "RemoteModelServer", "attempts", "content_text"]


def last_user_text(messages: Sequence[dict[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "user":
            return content_text(message.get("content"))
    return ""


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content or () if block.get("type") == "text")


def answers_since_user(messages: Sequence[dict[str, Any]]) -> int:
    count = 0
    for message in reversed(messages):
        if message.get("role") == "user":
            break
        count += message.get("role") == "assistant"
    return count


class ModelServer(ScriptedServer):
    """OpenAI chat completions (scripted_server.ScriptedServer). ``strict``: it refuses what OpenAI refuses."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, strict: bool = False) -> None:
        super().__init__(host=host, port=port)
        self._strict = strict

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def _speaks(self, method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/chat/completions")

    def _place(self, body: dict[str, Any]) -> tuple[str, int]:
        messages = body.get("messages", [])
        return last_user_text(messages), answers_since_user(messages)

    def _complaint(self, request: RecordedRequest) -> Refusal | None:
        if request.body.get("stream") is not True:
            return 400, {"error": {"message": "only streams are spoken here"}}
        if self._strict:
            # Not for those who start this as a process to be up soon.
            from tests.fakes import chat_rules

            try:
                chat_rules.check(request.body)
            except chat_rules.Refused as refused:
                return 400, {"error": {"message": str(refused), "type": "invalid_request_error", "param": None, "code": None}}
        return None

    def _failure(self, step: Step) -> Refusal:
        if step["do"] == "overflow":
            words = (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. "
                "Please reduce the length of the messages."
            )
            error = {
                "message": words,
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
            return 400, {"error": error}
        return step["number"], {"error": {"message": step["message"], "type": "scripted", "code": step["code"]}}

    def _speech(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> Speech:
        return _ChatSpeech(writer, request.body, self._call_ids)


class _ChatSpeech(Speech):
    """One streamed completion."""

    def __init__(self, writer: asyncio.StreamWriter, request: dict[str, Any], call_ids: itertools.count[int]) -> None:
        super().__init__(writer)
        self._call_ids = call_ids
        self._model = request.get("model", "")
        self._wants_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        self._finished = self._told_usage = False
        self._calls = 0
        self._said = 0

    async def begin(self) -> None:
        await self._delta({"role": "assistant", "content": ""})

    async def fail(self, message: str, code: str) -> None:
        await self.chunk({"error": {"message": message, "code": code, "type": "server_error"}})

    async def chunk(self, body: dict[str, Any]) -> None:
        await self.raw(b"data: " + written(body) + b"\n\n")

    async def _delta(self, delta: dict[str, Any], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        await self.chunk({"id": "scripted", "object": "chat.completion.chunk", "model": self._model, "choices": [choice]})

    async def say(self, step: Step) -> None:
        match step["do"]:
            case "text" | "thinking":
                field_name = "content" if step["do"] == "text" else "reasoning_content"
                for delta in step["deltas"]:
                    self._said += len(delta)
                    await self._delta({field_name: delta})
            case "call":
                await self._call(step)
            case "call_piece":
                await self._delta({"tool_calls": [{"index": step["index"], "function": {"arguments": step["arguments"]}}]})
            case "usage":
                await self._usage(step["input"], step["output"], step["cached"])
            case "finish":
                self._finished = True
                await self._delta({}, step["reason"])
            case "ping":
                await self.raw(b": keep-alive\n\n")
            case other:
                raise ValueError(f"no such step: {other}")

    async def _call(self, step: Step) -> None:
        index = self._calls if step["index"] is None else step["index"]
        self._calls += 1
        call_id = step["id"] if step["id"] is not None else f"call_{next(self._call_ids)}"
        parts = pieces_of(step["arguments"], step["pieces"])
        first = {"index": index, "id": call_id, "type": "function", "function": {"name": step["name"], "arguments": parts[0]}}
        await self._delta({"tool_calls": [first]})
        for part in parts[1:]:
            await self._delta({"tool_calls": [{"index": index, "function": {"arguments": part}}]})

    async def _usage(self, tokens_in: int, tokens_out: int, cached: int) -> None:
        self._told_usage = True
        told = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        await self.chunk(
            {"id": "scripted", "object": "chat.completion.chunk", "model": self._model, "choices": [], "usage": told}
        )

    async def finish(self) -> None:
        await self.open()
        if not self._finished:
            await self._delta({}, "tool_calls" if self._calls else "stop")
        if self._wants_usage and not self._told_usage:
            await self._usage(10, max(1, self._said // 4), 0)
        await self.raw(b"data: [DONE]\n\n")


class RemoteModelServer:
    """A ModelServer in another process, controlled by HTTP; the methods mean the same."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._base = url.removesuffix("/v1")

    def _ask(self, action: str, **given: Any) -> Any:
        data = json.dumps(given).encode()
        request = urllib.request.Request(f"{self._base}/control/{urllib.parse.quote(action)}", data=data, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=float(given.get("timeout", DEFAULT_WAIT)) + 5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise NotInTimeError(json.load(error)["error"]) from None

    def script(self, *answers: ScriptAnswer, name: str | None = None) -> str:
        written = [{"attempts": answer.answers} if isinstance(answer, Attempts) else answer for answer in answers]
        registered: str = self._ask("script", answers=written, name=name)["name"]
        return registered

    def enqueue(self, *answers: Answer) -> None:
        self._ask("enqueue", answers=list(answers))

    def open_gate(self, name: str) -> None:
        self._ask("open_gate", name=name)

    def close_gate(self, name: str) -> None:
        self._ask("close_gate", name=name)

    def wait_gate(self, name: str, *, times: int = 1, timeout: float = DEFAULT_WAIT) -> None:
        self._ask("wait_gate", name=name, times=times, timeout=timeout)

    def wait_request(self, script: str, *, count: int = 1, timeout: float = DEFAULT_WAIT) -> RecordedRequest:
        return RecordedRequest(**self._ask("wait_request", script=script, count=count, timeout=timeout))

    def wait_ended(self, request: RecordedRequest, *, timeout: float = DEFAULT_WAIT) -> str:
        state: str = self._ask("wait_ended", number=request.number, timeout=timeout)["state"]
        return state

    @property
    def requests(self) -> list[RecordedRequest]:
        return [RecordedRequest(**request) for request in self._ask("requests")["requests"]]

    @property
    def streams(self) -> int:
        count: int = self._ask("counts")["streams"]
        return count


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model server that speaks OpenAI chat completions.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with ModelServer(host=given.host, port=given.port) as server:
        sys.stdout.write(server.url + "\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
