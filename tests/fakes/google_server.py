"""A scripted model server that speaks Google's streamGenerateContent on a real socket."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes import google_rules
from tests.fakes.scripted_server import RecordedRequest, Refusal, ScriptedServer
from tests.fakes.seals import seal
from tests.fakes.speech import Speech, written
from tests.fakes.steps import Answer, Step

_PATH = re.compile(r"/v1(?:beta)?/models/([^/:]+):streamGenerateContent")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GoogleServer(ScriptedServer):
    """``POST /v1beta/models/X:streamGenerateContent?alt=sse`` (scripted_server.ScriptedServer).

    ``finish`` takes Google's finish reasons. Calls that follow each other go out in one chunk, as parallel ones do.
    """

    retry_header = False

    @property
    def url(self) -> str:
        return self.origin

    def _speaks(self, method: str, path: str) -> bool:
        return method == "POST" and _PATH.fullmatch(unquote(urlsplit(path).path)) is not None

    def _place(self, body: dict[str, Any]) -> tuple[str, int]:
        answers, within = 0, False
        for content in reversed(google_rules.snaked(body.get("contents", []))):
            said = content.get("role") == "model"
            texts = [part["text"] for part in content.get("parts", ()) if "text" in part]
            if not said and texts:
                return texts[-1], answers
            answers += said and not within
            within = said
        return "", answers

    def _complaint(self, request: RecordedRequest) -> Refusal | None:
        if not request.headers.get("x-goog-api-key") and "authorization" not in request.headers:
            words = "Method doesn't allow unregistered callers (callers without established identity)."
            return _error(403, f"{words} Please use API Key or other form of API consumer identity to call this API.")
        address = urlsplit(request.path)
        if parse_qs(address.query).get("alt") != ["sse"]:
            return _error(400, "only alt=sse is spoken here")
        found = _PATH.fullmatch(unquote(address.path))
        try:
            google_rules.check(request.body, found[1] if found else "")
        except google_rules.Refused as refused:
            return _error(400, str(refused))
        return None

    def _failure(self, step: Step) -> Refusal:
        if step["do"] == "overflow":
            return _error(400, "The input token count (1200001) exceeds the maximum number of tokens allowed (1048576).")
        status, document = _error(step["number"], step["message"], step["code"])
        if step["retry_after"] is not None:
            delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{step['retry_after']}s"}
            quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaMetric": "requests"}]}
            document["error"]["details"] = [quota, delay]
        return status, document

    def _speech(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> Speech:
        found = _PATH.fullmatch(unquote(urlsplit(request.path).path))
        return _Candidate(writer, found[1] if found else "", self._call_ids)


def _error(status: int, message: str, name: str | None = None) -> Refusal:
    return status, {"error": {"code": status, "message": message, "status": name or _STATUSES.get(status, "UNKNOWN")}}


class _Candidate(Speech):
    """One streamed answer."""

    def __init__(self, writer: asyncio.StreamWriter, model: str, call_ids: itertools.count[int]) -> None:
        super().__init__(writer)
        self._model = model
        self._call_ids = call_ids
        self._calls: list[dict[str, Any]] = []
        self._called = self._thought = self._over = False
        self._reason = "STOP"
        self._usage: Step | None = None
        self._said = self._thoughts = 0

    async def begin(self) -> None:
        return

    async def _chunk(self, **fields: Any) -> None:
        document = {**fields, "modelVersion": self._model, "responseId": "scripted"}
        # This vendor ends its lines the old way.
        await self.raw(b"data: %s\r\n\r\n" % written(document))

    async def _parts(self, parts: list[dict[str, Any]], reason: str | None = None) -> None:
        content = {"content": {"parts": parts, "role": "model"}} if parts else {}
        candidate = {**content, **({"finishReason": reason} if reason else {}), "index": 0}
        await self._chunk(candidates=[candidate], usageMetadata=self._metadata())

    def _metadata(self) -> dict[str, Any]:
        told = self._usage or {"input": 10, "output": max(1, self._said // 4) + self._thoughts // 4, "cached": 0}
        thoughts = min(self._thoughts // 4, told["output"])
        return {
            "promptTokenCount": told["input"],
            "candidatesTokenCount": told["output"] - thoughts,
            "totalTokenCount": told["input"] + told["output"],
            **({"thoughtsTokenCount": thoughts} if thoughts else {}),
            **({"cachedContentTokenCount": told["cached"]} if told["cached"] else {}),
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": told["input"]}],
        }

    async def fail(self, message: str, code: str) -> None:
        status = 503 if code == "server_error" else next((n for n, name in _STATUSES.items() if name == code), 500)
        await self.raw(b"data: %s\r\n\r\n" % written(_error(status, message)[1]))

    async def say(self, step: Step) -> None:
        if step["do"] != "call":
            await self._say_calls()
        match step["do"]:
            case "text":
                for delta in step["deltas"]:
                    self._said += len(delta)
                    await self._parts([{"text": delta}])
            case "thinking":
                self._thought = self._thought or step.get("signed", True)
                for delta in step["deltas"]:
                    self._thoughts += len(delta)
                    await self._parts([{"text": delta, "thought": True}])
            case "call":
                self._calls.append(step)
            case "usage":
                self._usage = step
            case "finish":
                self._reason = step["reason"]
            case "blocked":
                feedback = {"blockReason": step["reason"]}
                await self._chunk(promptFeedback=feedback, usageMetadata={"promptTokenCount": 10, "totalTokenCount": 10})
                self._over = True
            case "ping":
                await self.raw(b": keep-alive\r\n\r\n")
            case other:
                raise ValueError(f"no such step here: {other}")

    async def _say_calls(self) -> None:
        parts: list[dict[str, Any]] = []
        for step in self._calls:
            arguments = google_rules.arguments(step["arguments"])
            call: dict[str, Any] = {"name": step["name"], "args": arguments}
            if step["id"] is not None:
                call["id"] = step["id"]
            elif self._model.startswith("gemini-3"):
                call["id"] = f"gc{next(self._call_ids)}"
            part: dict[str, Any] = {"functionCall": call}
            if not parts and (self._thought or self._model.startswith("gemini-3")):
                part["thoughtSignature"] = seal("call", step["name"], arguments)
            parts.append(part)
        if parts:
            self._called = True
            self._calls = []
            await self._parts(parts)

    async def finish(self) -> None:
        await self.open()
        await self._say_calls()
        if self._over:
            return
        signed = self._thought and not self._called
        last = [{"text": "", **({"thoughtSignature": seal("text")} if signed else {})}] if self._reason == "STOP" else []
        await self._parts(last, self._reason)
