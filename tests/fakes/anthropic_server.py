"""A scripted model server that speaks Anthropic's messages, streamed, on a real socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes import anthropic_rules
from tests.fakes.scripted_server import RecordedRequest, Refusal, ScriptedServer
from tests.fakes.seals import seal
from tests.fakes.speech import Speech, pieces_of, written
from tests.fakes.steps import Answer, Step

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicServer(ScriptedServer):
    """``POST /v1/messages`` (scripted_server.ScriptedServer).

    ``finish`` takes Anthropic's stop reasons, ``error_object`` its types of errors.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host=host, port=port)
        self._issued: dict[str, list[dict[str, Any]]] = {}

    @property
    def url(self) -> str:
        return self.origin

    def _speaks(self, method: str, path: str) -> bool:
        return method == "POST" and urlsplit(path).path == "/v1/messages"

    def _place(self, body: dict[str, Any]) -> tuple[str, int]:
        answers = 0
        for message in reversed(body.get("messages", [])):
            if message.get("role") == "assistant":
                answers += 1
            elif message.get("role") == "user" and (texts := _texts(message.get("content"))):
                return texts[-1], answers
        return "", answers

    def _complaint(self, request: RecordedRequest) -> Refusal | None:
        if "x-api-key" not in request.headers and "authorization" not in request.headers:
            return _error(401, "x-api-key header is required")
        if "anthropic-version" not in request.headers:
            return _error(400, "anthropic-version: header is required")
        if request.body.get("stream") is not True:
            return _error(400, "only streams are spoken here")
        betas = request.headers.get("anthropic-beta", "")
        try:
            anthropic_rules.check(
                request.body,
                self._issued,
                with_beta="beta" in parse_qs(urlsplit(request.path).query) or bool(betas),
                interleaved="interleaved-thinking" in betas,
            )
        except anthropic_rules.Refused as refused:
            return _error(400, str(refused))
        return None

    def _failure(self, step: Step) -> Refusal:
        if step["do"] == "overflow":
            return _error(400, "prompt is too long: 208310 tokens > 200000 maximum")
        return _error(step["number"], step["message"], step["code"])

    def _speech(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> Speech:
        usage = next((step for step in steps if step["do"] == "usage"), None)
        return _Message(writer, request.body, usage, self._call_ids, self._issued)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] for block in content or () if block.get("type") == "text"]


def _error(status: int, message: str, kind: str | None = None) -> Refusal:
    error = {"type": kind or _KINDS.get(status, "api_error"), "message": message}
    return status, {"type": "error", "error": error, "request_id": "req_scripted"}


class _Message(Speech):
    """One streamed message."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        request: Mapping[str, Any],
        usage: Step | None,
        call_ids: itertools.count[int],
        issued: dict[str, list[dict[str, Any]]],
    ) -> None:
        super().__init__(writer)
        self._model = request.get("model", "")
        self._call_ids = call_ids
        self._issued = issued
        self._blocks: list[dict[str, Any]] = []
        self._block_open = False
        self._usage = usage or {"input": 10, "output": 0, "cached": 0}
        self._said = 0
        self._stop: dict[str, Any] = {}

    async def begin(self) -> None:
        message = {
            "id": "msg_scripted",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**self._input(), "cache_creation_input_tokens": 0, "output_tokens": 1, "service_tier": "standard"},
        }
        await self._event("message_start", message=message)

    def _input(self) -> dict[str, int]:
        cached = self._usage["cached"]
        return {"input_tokens": self._usage["input"] - cached, "cache_read_input_tokens": cached}

    async def _event(self, kind: str, **fields: Any) -> None:
        await self.raw(b"event: %s\ndata: %s\n\n" % (kind.encode(), written({"type": kind, **fields})))

    async def fail(self, message: str, code: str) -> None:
        error = {"type": "api_error" if code == "server_error" else code, "message": message}
        await self._event("error", error=error, request_id="req_scripted")

    async def say(self, step: Step) -> None:
        match step["do"]:
            case "text":
                await self._text(step["deltas"])
            case "thinking":
                await self._thinking(step)
            case "redacted":
                await self._block({"type": "redacted_thinking", "data": seal("redacted")})
                await self._close()
            case "call":
                await self._call(step)
            case "refusal":
                await self._text(step["deltas"])
                details = {"type": "refusal", "category": "cyber", "explanation": None}
                self._stop = {"stop_reason": "refusal", "stop_details": details}
            case "usage":
                self._usage = step
            case "finish":
                self._stop = {"stop_reason": step["reason"]}
            case "ping":
                await self._event("ping")
            case other:
                raise ValueError(f"no such step here: {other}")

    async def _text(self, deltas: Sequence[str]) -> None:
        if deltas:
            await self._block({"type": "text", "text": ""})
        for delta in deltas:
            self._said += len(delta)
            self._blocks[-1]["text"] += delta
            await self._delta(type="text_delta", text=delta)

    async def _thinking(self, step: Step) -> None:
        await self._block({"type": "thinking", "thinking": "", "signature": ""})
        for delta in step["deltas"]:
            self._said += len(delta)
            self._blocks[-1]["thinking"] += delta
            await self._delta(type="thinking_delta", thinking=delta)
        if step.get("signed", True):
            signature = seal("thinking", self._blocks[-1]["thinking"])
            self._blocks[-1]["signature"] = signature
            await self._delta(type="signature_delta", signature=signature)
            await self._close()

    async def _call(self, step: Step) -> None:
        call_id = step["id"] if step["id"] is not None else f"toolu_{next(self._call_ids)}"
        await self._close()
        await self._block({"type": "tool_use", "id": call_id, "name": step["name"], "input": {}})
        await self._delta(type="input_json_delta", partial_json="")
        for piece in pieces_of(step["arguments"], step["pieces"]):
            await self._delta(type="input_json_delta", partial_json=piece)
        await self._close()
        self._issued[call_id] = self._blocks

    async def _block(self, block: dict[str, Any]) -> None:
        """Begin it, unless one like it is open."""
        if self._block_open and self._blocks[-1]["type"] == block["type"]:
            return
        await self._close()
        first = not self._blocks
        await self._event("content_block_start", index=len(self._blocks), content_block=block)
        self._blocks.append(dict(block))
        self._block_open = True
        if first:
            await self._event("ping")

    async def _delta(self, **delta: Any) -> None:
        await self._event("content_block_delta", index=len(self._blocks) - 1, delta=delta)

    async def _close(self) -> None:
        if self._block_open:
            self._block_open = False
            await self._event("content_block_stop", index=len(self._blocks) - 1)

    async def finish(self) -> None:
        await self.open()
        await self._close()
        called = any(block["type"] == "tool_use" for block in self._blocks)
        delta = {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None, **self._stop}
        output = self._usage["output"] or max(1, self._said // 4)
        usage = {**self._input(), "cache_creation_input_tokens": 0, "output_tokens": output}
        await self._event("message_delta", delta=delta, usage=usage)
        await self._event("message_stop")
