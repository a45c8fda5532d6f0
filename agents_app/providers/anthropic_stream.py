"""Converts Anthropic's stream to provider events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json
from agents_app.providers.answer_reader import AnswerReader, count, fields, items, word
from agents_app.providers.layout import Layout
from agents_app.providers.server_errors import classified
from agents_app.runtime.interface import Finish, FinishReason, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

_REASONS: Mapping[str, FinishReason] = {
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}


@dataclass(slots=True)
class _Block:
    kind: str
    call: int = 0
    length: int = 0
    thinking: list[str] = field(default_factory=list)
    signature: str = ""
    data: str = ""


class AnthropicStream(AnswerReader):
    """One answer. Blocks of tools that run at the vendor are left out."""

    exact = b'"tool_use"'

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""
        self._counts: dict[str, int] = {}
        self._blocks: dict[Any, _Block] = {}
        self._calls = 0

    def _take(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        match document.get("type"):
            case "content_block_delta":
                self._delta(self._block(document), fields(document.get("delta")), out)
            case "content_block_start":
                self._start(document.get("index"), fields(document.get("content_block")), out)
            case "message_start":
                self._count(fields(document.get("message")).get("usage"))
            case "message_delta":
                self._count(document.get("usage"))
                if reason := word(fields(document.get("delta")).get("stop_reason")):
                    self._reason, self.finished = reason, True
            case "message_stop":
                self.over = True
            case "error":
                raise classified(document.get("error") or document)
            case None if "error" in document:
                raise classified(document["error"])

    def _whole(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        if document.get("type") != "message":
            super()._whole(document, out)
            return
        for index, block in enumerate(items(document.get("content"))):
            self._start(index, fields(block), out)
        self._count(document.get("usage"))
        self._reason, self.finished = word(document.get("stop_reason")), True

    def _start(self, index: Any, content: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        block = self._blocks[index] = _Block(word(content.get("type")))
        match block.kind:
            case "text":
                block.length += len(self._text(TextDelta, content.get("text"), out))
            case "thinking":
                if self._thought_before(block):
                    self._text(ThinkingDelta, "\n\n", out)
                block.thinking.append(self._text(ThinkingDelta, content.get("thinking"), out))
                block.signature = word(content.get("signature"))
            case "redacted_thinking":
                block.data = word(content.get("data"))
            case "tool_use":
                block.call, self._calls = self._calls, self._calls + 1
                given = content.get("input")
                arguments = exact_json.dumps(given) if given else ""
                self._put_call(
                    ToolCallDelta(block.call, word(content.get("id")) or None, word(content.get("name")), arguments), out
                )

    def _delta(self, block: _Block, delta: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        match delta.get("type"):
            case "text_delta" if block.kind == "text":
                block.length += len(self._text(TextDelta, delta.get("text"), out))
            case "thinking_delta" if block.kind == "thinking":
                block.thinking.append(self._text(ThinkingDelta, delta.get("thinking"), out))
            case "input_json_delta" if block.kind == "tool_use":
                if piece := word(delta.get("partial_json")):
                    self._put_call(ToolCallDelta(block.call, arguments=piece), out)
            case "signature_delta" if block.kind == "thinking":
                block.signature += word(delta.get("signature"))

    def _block(self, document: Mapping[str, Any]) -> _Block:
        """The open block. If no start event arrived, its kind is taken from the delta."""
        index = document.get("index")
        block = self._blocks.get(index)
        if block is None:
            kind = {"text_delta": "text", "thinking_delta": "thinking"}.get(word(fields(document.get("delta")).get("type")), "")
            block = self._blocks[index] = _Block(kind)
        return block

    def _thought_before(self, block: _Block) -> bool:
        """Whether the block before this one was shown as thinking too."""
        before = [each for each in self._blocks.values() if each is not block]
        return bool(before) and before[-1].kind == "thinking" and any(before[-1].thinking)

    def _count(self, usage: Any) -> None:
        # Each usage report has cumulative totals; later ones may omit some.
        for name, value in fields(usage).items():
            if isinstance(value, int) and name.endswith("_tokens"):
                self._counts[name] = value

    def usage(self) -> list[ProviderEvent]:
        if not self._counts:
            return []
        read = count(self._counts.get("cache_read_input_tokens"))
        written = count(self._counts.get("cache_creation_input_tokens"))
        # Anthropic's `input_tokens` excludes tokens read from or written to the cache.
        given = count(self._counts.get("input_tokens")) + read + written
        return [Usage(given, count(self._counts.get("output_tokens")), read)]

    def _close(self, out: list[ProviderEvent]) -> None:
        layout = Layout()
        for block in self._blocks.values():
            match block.kind:
                case "text":
                    layout.text(block.length)
                case "tool_use":
                    layout.call()
                case "thinking" if block.signature:
                    layout.kept({"type": "thinking", "thinking": "".join(block.thinking), "signature": block.signature})
                case "redacted_thinking" if block.data:
                    layout.kept({"type": "redacted_thinking", "data": block.data})
        out.extend(layout.parts)
        out.extend(self.usage())
        out.append(Finish(_REASONS.get(self._reason) or ("tool_calls" if self._calls else "stop")))
