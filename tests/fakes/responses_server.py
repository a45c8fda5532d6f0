"""A scripted model server that speaks OpenAI's Responses, streamed, on a real socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.fakes import responses_rules
from tests.fakes.scripted_server import RecordedRequest, Refusal, ScriptedServer
from tests.fakes.seals import seal
from tests.fakes.speech import Speech, pieces_of, written
from tests.fakes.steps import Answer, Step

_Issued = dict[str, tuple[dict[str, Any], str | None, str | None]]
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_KINDS = {403: "permission_error", 429: "tokens"}


class ResponsesServer(ScriptedServer):
    """``POST /v1/responses`` (scripted_server.ScriptedServer).

    ``finish`` takes the reasons of an incomplete response: ``max_output_tokens``, ``content_filter``.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host=host, port=port)
        self._issued: _Issued = {}
        self._item_ids = itertools.count(1)

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def _speaks(self, method: str, path: str) -> bool:
        return method == "POST" and urlsplit(path).path == "/v1/responses"

    def _place(self, body: dict[str, Any]) -> tuple[str, int]:
        given = body.get("input", [])
        if isinstance(given, str):
            return given, 0
        answers, within = 0, False
        for item in reversed(given):
            if item.get("role") == "user" and (texts := _texts(item.get("content"))):
                return texts[-1], answers
            said = item.get("type") in ("reasoning", "function_call") or item.get("role") == "assistant"
            answers += said and not within
            within = said
        return "", answers

    def _complaint(self, request: RecordedRequest) -> Refusal | None:
        if "authorization" not in request.headers:
            return _error(401, "Missing bearer or basic authentication in header", code=None)
        if request.body.get("stream") is not True:
            return _error(400, "only streams are spoken here")
        try:
            responses_rules.check(request.body, self._issued)
        except responses_rules.Refused as refused:
            return _error(refused.status, refused.message, param=refused.param, code=refused.code)
        return None

    def _failure(self, step: Step) -> Refusal:
        if step["do"] == "overflow":
            words = "Your input exceeds the context window of this model. Please adjust your input and try again."
            return _error(400, words, param="input", code="context_length_exceeded")
        number = step["number"]
        return _error(number, step["message"], code=step["code"] or _CODES.get(number))

    def _speech(self, writer: asyncio.StreamWriter, request: RecordedRequest, steps: Answer) -> Speech:
        return _Response(writer, request.body, self._call_ids, self._item_ids, self._issued)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or () if part.get("type") == "input_text"]


def _error(status: int, message: str, *, param: str | None = None, code: str | None = None) -> Refusal:
    kind = _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


class _Response(Speech):
    """One streamed response."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        request: Mapping[str, Any],
        call_ids: itertools.count[int],
        item_ids: itertools.count[int],
        issued: _Issued,
    ) -> None:
        super().__init__(writer)
        self._request = request
        self._call_ids, self._item_ids, self._issued = call_ids, item_ids, issued
        self._id = f"resp_{next(item_ids)}"
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._message: dict[str, Any] | None = None
        self._thought: dict[str, Any] | None = None
        self._usage: Step | None = None
        self._incomplete: str | None = None
        self._over = False
        self._said = 0

    async def begin(self) -> None:
        await self._event("response.created", response=self._document("in_progress"))
        await self._event("response.in_progress", response=self._document("in_progress"))

    def _document(self, status: str, **fields: Any) -> dict[str, Any]:
        asked = self._request
        return {
            "id": self._id,
            "object": "response",
            "created_at": 1_700_000_000,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.get("instructions"),
            "max_output_tokens": asked.get("max_output_tokens"),
            "model": asked.get("model", ""),
            "output": self._output if status != "in_progress" else [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None, **(asked.get("reasoning") or {})},
            "store": asked.get("store") is not False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": asked.get("tool_choice", "auto"),
            "tools": asked.get("tools", []),
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            "metadata": {},
            **fields,
        }

    async def _event(self, kind: str, **fields: Any) -> None:
        # Before it is numbered: the first words have numbers of their own.
        await self.open()
        document = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        await self.raw(b"event: %s\ndata: %s\n\n" % (kind.encode(), written(document)))

    async def fail(self, message: str, code: str) -> None:
        await self._event("error", code=code, message=message, param=None)

    async def say(self, step: Step) -> None:
        match step["do"]:
            case "text":
                await self._words(step["deltas"], "output_text")
            case "refusal":
                await self._words(step["deltas"], "refusal")
            case "thinking":
                await self._thinking(step)
            case "call":
                await self._call(step)
            case "usage":
                self._usage = step
            case "finish":
                self._incomplete = step["reason"]
            case "failed":
                error = {"code": step["code"], "message": step["message"]}
                await self._event("response.failed", response=self._document("failed", error=error))
                self._over = True
            case "ping":
                await self.raw(b": keep-alive\n\n")
            case other:
                raise ValueError(f"no such step here: {other}")

    # --- items ---

    async def _begin_item(self, item: dict[str, Any]) -> None:
        self._output.append(item)
        await self._event("response.output_item.added", output_index=len(self._output) - 1, item=item)

    async def _end_item(self, **changes: Any) -> None:
        item = self._output[-1]
        item.update(changes)
        before = self._output[-2] if len(self._output) > 1 else None
        thought = before["id"] if before is not None and before["type"] == "reasoning" else None
        self._issued[item["id"]] = (item, thought, None)
        if before is not None:
            known, earlier, _ = self._issued[before["id"]]
            self._issued[before["id"]] = (known, earlier, item["id"])
        await self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _at(self) -> dict[str, Any]:
        return {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}

    async def _thinking(self, step: Step) -> None:
        await self._end_message()
        if self._thought is None:
            self._thought = {"id": f"rs_{next(self._item_ids)}", "type": "reasoning", "summary": []}
            await self._begin_item(dict(self._thought))
            self._output[-1]["summary"] = self._thought["summary"]
        summary = self._thought["summary"]
        if step["deltas"]:
            place = {**self._at(), "summary_index": len(summary)}
            await self._event("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
            for delta in step["deltas"]:
                self._said += len(delta)
                await self._event("response.reasoning_summary_text.delta", **place, delta=delta, obfuscation="x")
            text = "".join(step["deltas"])
            await self._event("response.reasoning_summary_text.done", **place, text=text)
            summary.append({"type": "summary_text", "text": text})
            await self._event("response.reasoning_summary_part.done", **place, part=summary[-1])
        if step.get("signed", True):
            await self._end_thought()

    async def _end_thought(self) -> None:
        if self._thought is None:
            return
        self._thought = None
        changes = {}
        if "reasoning.encrypted_content" in (self._request.get("include") or ()):
            changes = {"encrypted_content": seal("reasoning", self._output[-1]["id"])}
        await self._end_item(**changes)

    async def _words(self, deltas: Sequence[str], kind: str) -> None:
        await self._end_thought()
        if not deltas:
            return
        if self._message is not None and self._message["content"][-1]["type"] != kind:
            await self._end_message()
        field = "text" if kind == "output_text" else "refusal"
        if self._message is None:
            part = {"type": kind, field: "", **({"annotations": [], "logprobs": []} if field == "text" else {})}
            head = {"id": f"msg_{next(self._item_ids)}", "type": "message", "role": "assistant"}
            await self._begin_item({**head, "status": "in_progress", "content": []})
            self._message = {"content": [part]}
            await self._event("response.content_part.added", **self._at(), content_index=0, part=part)
        name = f"response.{'output_text' if field == 'text' else 'refusal'}.delta"
        more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
        for delta in deltas:
            self._said += len(delta)
            self._message["content"][0][field] += delta
            await self._event(name, **self._at(), content_index=0, delta=delta, obfuscation="x", **more)

    async def _end_message(self) -> None:
        if self._message is None:
            return
        part = self._message["content"][0]
        self._message = None
        place = {**self._at(), "content_index": 0}
        if part["type"] == "output_text":
            await self._event("response.output_text.done", **place, text=part["text"], logprobs=[])
        else:
            await self._event("response.refusal.done", **place, refusal=part["refusal"])
        await self._event("response.content_part.done", **place, part=part)
        await self._end_item(status="incomplete" if self._incomplete else "completed", content=[part])

    async def _call(self, step: Step) -> None:
        await self._end_thought()
        await self._end_message()
        call_id = step["id"] if step["id"] is not None else f"call_{next(self._call_ids)}"
        head = {"id": f"fc_{next(self._item_ids)}", "type": "function_call", "call_id": call_id, "name": step["name"]}
        await self._begin_item({**head, "status": "in_progress", "arguments": ""})
        for piece in pieces_of(step["arguments"], step["pieces"]):
            await self._event("response.function_call_arguments.delta", **self._at(), delta=piece, obfuscation="x")
        arguments = step["arguments"]
        await self._event("response.function_call_arguments.done", **self._at(), name=step["name"], arguments=arguments)
        await self._end_item(status="completed", arguments=arguments)

    # --- the end ---

    async def finish(self) -> None:
        await self.open()
        if self._over:
            return
        await self._end_thought()
        await self._end_message()
        told = self._usage or {"input": 10, "output": max(1, self._said // 4), "cached": 0}
        usage = {
            "input_tokens": told["input"],
            "input_tokens_details": {"cached_tokens": told["cached"]},
            "output_tokens": told["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": told["input"] + told["output"],
        }
        if self._incomplete is not None:
            details = {"reason": self._incomplete}
            document = self._document("incomplete", usage=usage, incomplete_details=details)
            await self._event("response.incomplete", response=document)
            return
        await self._event("response.completed", response=self._document("completed", usage=usage))
