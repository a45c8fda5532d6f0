"""Translates messages of Bedrock's ConverseStream into provider events. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app.providers.amazon import EventMessage
from agents_app.providers.answer_reader import AnswerReader, count, fields, parsed, word
from agents_app.providers.layout import Layout
from agents_app.providers.server_errors import ServerError, classified, token
from agents_app.runtime.interface import Finish, FinishReason, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

_REASONS: Mapping[str, FinishReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "guardrail_intervened": "refusal",
    "content_filtered": "refusal",
    "refusal": "refusal",
}
_UNUSABLE = ("malformed_model_output", "malformed_tool_use")
_KIND = "kind"


@dataclass(slots=True)
class _Block:
    kind: str = ""
    call: int = 0
    length: int = 0
    thinking: list[str] = field(default_factory=list)
    signature: str = ""
    redacted: bytes = b""


class BedrockStream(AnswerReader):
    """One answer."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""
        self._blocks: dict[Any, _Block] = {}
        self._calls = 0

    def _documents(self, message: EventMessage) -> Iterable[dict[str, Any]]:
        if self.over:
            return
        kind = message.headers.get(":event-type") or message.headers.get(":exception-type") or ""
        if message.headers.get(":message-type", "event") != "event":
            document = parsed(message.payload) if message.payload else {}
            kind = kind or message.headers.get(":error-code", "")
            raise classified({"code": kind, "message": document.get("message") or document.get("originalMessage")})
        if message.payload:
            yield {**parsed(message.payload), _KIND: kind}

    def _take(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        match document.get(_KIND):
            case "contentBlockDelta":
                self._delta(self._block(document), fields(document.get("delta")), out)
            case "contentBlockStart":
                started = fields(fields(document.get("start")).get("toolUse"))
                if started:
                    block = self._block(document)
                    block.kind, block.call, self._calls = "call", self._calls, self._calls + 1
                    call_id = word(started.get("toolUseId")) or None
                    self._put_call(ToolCallDelta(block.call, call_id, word(started.get("name"))), out)
            case "messageStop":
                reason = word(document.get("stopReason"))
                if reason in _UNUSABLE:
                    raise ServerError("unavailable", token(reason), passing=True)
                self._reason, self.finished = reason, True
            case "metadata":
                self._count(fields(document.get("usage")))
                self.over = self.finished
            case None | "":
                # One document instead of a stream: an error of a proxy.
                raise classified(document)

    def _delta(self, block: _Block, delta: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        if "text" in delta:
            block.kind = block.kind or "text"
            block.length += len(self._text(TextDelta, delta["text"], out))
        elif "toolUse" in delta:
            if block.kind == "call" and (piece := word(fields(delta["toolUse"]).get("input"))):
                self._put_call(ToolCallDelta(block.call, arguments=piece), out)
        elif "reasoningContent" in delta:
            block.kind = block.kind or "reasoning"
            thought = fields(delta["reasoningContent"])
            block.thinking.append(self._text(ThinkingDelta, thought.get("text"), out))
            block.signature += word(thought.get("signature"))
            try:
                block.redacted += base64.b64decode(word(thought.get("redactedContent")))
            except binascii.Error:
                block.redacted = b""

    def _block(self, document: Mapping[str, Any]) -> _Block:
        return self._blocks.setdefault(document.get("contentBlockIndex"), _Block())

    def _count(self, usage: Mapping[str, Any]) -> None:
        if not usage:
            return
        read = count(usage.get("cacheReadInputTokens"))
        # inputTokens does not include tokens read from or written to the cache.
        sent = count(usage.get("inputTokens")) + read + count(usage.get("cacheWriteInputTokens"))
        self._tokens = Usage(sent, count(usage.get("outputTokens")), read)

    def _close(self, out: list[ProviderEvent]) -> None:
        layout = Layout()
        for block in self._blocks.values():
            match block.kind:
                case "text":
                    layout.text(block.length)
                case "call":
                    layout.call()
                case "reasoning" if block.redacted:
                    layout.kept({"reasoningContent": {"redactedContent": base64.b64encode(block.redacted).decode()}})
                case "reasoning" if block.signature:
                    text = {"text": "".join(block.thinking), "signature": block.signature}
                    layout.kept({"reasoningContent": {"reasoningText": text}})
        out.extend(layout.parts)
        out.extend(self.usage())
        out.append(Finish(_REASONS.get(self._reason) or ("tool_calls" if self._calls else "stop")))
