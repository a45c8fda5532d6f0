"""Converts the stream of OpenAI's Responses to provider events. Pure.

Items of tools that run at the vendor are not shown. Text that a server does not stream, but sends at the end of an item
or of the response, is added then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents_app.providers.answer_reader import AnswerReader, count, fields, items, word
from agents_app.providers.layout import Layout
from agents_app.providers.server_errors import ServerError, classified
from agents_app.runtime.interface import Finish, FinishReason, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

# Items of the vendor's own tools, which are sent back with the reasoning that called them.
_GO_BACK = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools")


@dataclass(slots=True)
class _Item:
    kind: str
    call: int = 0
    length: int = 0
    """Characters of text or of arguments so far."""
    done: Mapping[str, Any] | None = None
    said_thought: bool = False


class ResponsesStream(AnswerReader):
    """One answer."""

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[Any, _Item] = {}
        self._calls = 0
        self._refused = False
        self._incomplete: str | None = None
        # Each thought is a paragraph.
        self._paragraph = self._new_paragraph = False

    def _take(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        kind = word(document.get("type"))
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._refused = self._refused or kind == "response.refusal.delta"
                self._say(self._item(document, "message"), document.get("delta"), out)
            case "response.function_call_arguments.delta":
                self._argue(self._item(document, "function_call"), word(document.get("delta")), out)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(self._item(document, "reasoning"), document.get("delta"), out)
            case "response.reasoning_summary_part.added":
                self._new_paragraph = True
            case "response.function_call_arguments.done":
                item = self._item(document, "function_call")
                self._argue(item, word(document.get("arguments"))[item.length :], out)
            case "response.output_text.done" | "response.refusal.done":
                self._refused = self._refused or kind == "response.refusal.done"
                item = self._item(document, "message")
                if not item.length:
                    self._say(item, document.get("text") or document.get("refusal"), out)
            case "response.output_item.added":
                self._add(document, fields(document.get("item")), out)
            case "response.output_item.done":
                self._finish_item(self._key(document), fields(document.get("item")), out)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._respond(fields(document.get("response")), kind.removeprefix("response."), out)
            case "error":
                raise classified(document.get("error") or document)
            case "":
                if "error" in document:
                    raise classified(document["error"])

    def _whole(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        if document.get("object") == "response":
            self._respond(document, word(document.get("status")) or "completed", out)
        else:
            super()._whole(document, out)

    def _respond(self, response: Mapping[str, Any], status: str, out: list[ProviderEvent]) -> None:
        usage = fields(response.get("usage"))
        if usage:
            cached = fields(usage.get("input_tokens_details")).get("cached_tokens")
            self._tokens = Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens")), count(cached))
        if response.get("error") or status in ("failed", "cancelled"):
            raise (
                classified(response.get("error")) if response.get("error") else ServerError("unavailable", status, passing=False)
            )
        for index, item in enumerate(items(response.get("output"))):
            known = self._items.get(index) or self._items.get(fields(item).get("id"))
            if known is None or known.done is None:
                self._finish_item(index if fields(item).get("id") not in self._items else item["id"], fields(item), out)
        if status == "incomplete":
            self._incomplete = word(fields(response.get("incomplete_details")).get("reason"))
        self.finished = self.over = True

    # --- items ---

    def _key(self, document: Mapping[str, Any]) -> Any:
        index = document.get("output_index")
        return index if isinstance(index, int) else document.get("item_id") or fields(document.get("item")).get("id")

    def _item(self, document: Mapping[str, Any], kind: str) -> _Item:
        """The item of an event; a new one of the event's kind if the server has not announced it."""
        key = self._key(document)
        found = self._items.get(key)
        return self._open(key, kind) if found is None else found

    def _open(self, key: Any, kind: str) -> _Item:
        made = self._items[key] = _Item(kind)
        if kind == "function_call":
            made.call, self._calls = self._calls, self._calls + 1
        self._new_paragraph = True
        return made

    def _add(self, document: Mapping[str, Any], content: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        item = self._open(self._key(document), word(content.get("type")))
        if item.kind == "function_call":
            arguments = word(content.get("arguments"))
            item.length = len(arguments)
            self._paragraph = False
            call_id = word(content.get("call_id")) or word(content.get("id")) or None
            self._put_call(ToolCallDelta(item.call, call_id, word(content.get("name")), arguments), out)

    def _finish_item(self, key: Any, content: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        item = self._items.get(key)
        if item is None:
            self._add({"output_index": key}, {**content, "arguments": ""}, out)
            item = self._items[key]
        item.done = content
        match item.kind:
            case "message":
                parts = [fields(part) for part in items(content.get("content"))]
                self._refused = self._refused or any(part.get("type") == "refusal" for part in parts)
                text = "".join(word(part.get("text")) or word(part.get("refusal")) for part in parts)
                self._say(item, text[item.length :], out)
            case "function_call":
                self._argue(item, word(content.get("arguments"))[item.length :], out)
            case "reasoning" if not item.said_thought:
                for part in items(content.get("summary")) or items(content.get("content")):
                    self._new_paragraph = True
                    self._think(item, fields(part).get("text"), out)

    def _say(self, item: _Item, text: Any, out: list[ProviderEvent]) -> None:
        if spoken := self._text(TextDelta, text, out):
            item.length += len(spoken)
            self._paragraph = False

    def _argue(self, item: _Item, piece: str, out: list[ProviderEvent]) -> None:
        if piece:
            item.length += len(piece)
            self._put_call(ToolCallDelta(item.call, arguments=piece), out)

    def _think(self, item: _Item, text: Any, out: list[ProviderEvent]) -> None:
        if not text:
            return
        if self._new_paragraph and self._paragraph:
            self._text(ThinkingDelta, "\n\n", out)
        self._text(ThinkingDelta, text, out)
        item.said_thought = self._paragraph = True
        self._new_paragraph = False

    # --- the end ---

    def _close(self, out: list[ProviderEvent]) -> None:
        out.extend(self._layout().parts)
        out.extend(self.usage())
        out.append(Finish(self._reason()))

    def _reason(self) -> FinishReason:
        if self._refused or self._incomplete == "content_filter":
            return "refusal"
        if self._incomplete is not None:
            return "max_tokens"
        return "tool_calls" if self._calls else "stop"

    def _layout(self) -> Layout:
        """The layout; ids are sent back only with all of their reasoning."""
        layout = Layout()
        thoughts = [item.done for item in self._items.values() if item.kind == "reasoning"]
        if not all(thought is not None and thought.get("encrypted_content") for thought in thoughts):
            return layout
        for item in self._items.values():
            done = item.done or {}
            match item.kind:
                case "reasoning":
                    layout.kept({name: value for name, value in done.items() if value is not None and name != "status"})
                case "message":
                    layout.text(item.length, _kept_of(done, "id", "phase"))
                case "function_call":
                    layout.call(_kept_of(done, "id"))
                case kind if kind in _GO_BACK and done:
                    layout.kept({name: value for name, value in done.items() if value is not None})
        return layout


def _kept_of(content: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: content[name] for name in names if isinstance(content.get(name), str)}
