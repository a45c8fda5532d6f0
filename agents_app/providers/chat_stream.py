"""What a chat completions server streams, read leniently, as provider events. Pure.

Servers that speak this format differ in every detail that is not the text itself; what is taken here
beyond OpenAI's own words was met in the wild: reasoning under two names, calls without index or id,
usage in any chunk, whole messages instead of deltas, errors in the middle of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app import exact_json
from agents_app.providers.faults import ServerSaid, said
from agents_app.providers.reading import Reading, count, items, parsed, parsed_exactly, put_call
from agents_app.runtime.interface import (
    Finish,
    FinishReason,
    Opaque,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)


class ChatStream(Reading):
    """One answer. ``keeps_thinking``: the server wants its thinking back, in whichever way."""

    def __init__(self, keeps_thinking: str | None = None) -> None:
        super().__init__()
        self._reason: str | None = None
        self._refused = False
        self._calls = _Calls()
        self._keeps_thinking = keeps_thinking is not None
        self._thinking: list[str] = []
        self._details: list[dict[str, Any]] = []

    def _whole(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        self._take(document, out)

    def _close(self, out: list[ProviderEvent]) -> None:
        self._calls.flush(out)
        if self._keeps_thinking and self._thinking:
            out.append(Opaque("thinking", "".join(self._thinking)))
        if self._details:
            out.append(Opaque("reasoning_details", self._details))
        out.extend(Opaque("call", {"index": index, "extra_content": extra}) for index, extra in self._calls.extras.items())
        out.extend(self.usage())
        out.append(Finish(self._finish_reason()))

    def _finish_reason(self) -> FinishReason:
        if self._refused or self._reason in ("content_filter", "refusal", "safety", "sensitive"):
            return "refusal"
        if self._reason in ("length", "max_tokens", "model_length", "max_output_tokens"):
            return "max_tokens"
        # Servers disagree on what to say after calls; what came counts.
        return "tool_calls" if self._calls else "stop"

    def _parsed(self, text: bytes) -> dict[str, Any]:
        chunk = parsed(text)
        return parsed_exactly(text) if b'"arguments"' in text and _has_plain_arguments(chunk) else chunk

    def _take(self, chunk: dict[str, Any], out: list[ProviderEvent]) -> None:
        if error := _error_of(chunk):
            raise error
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._tokens = _usage(usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._choice(choice, out)

    def _choice(self, choice: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._delta(delta, out)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ServerSaid("unavailable", "finish_reason error", passing=True)
            self._reason, self.finished = reason, True

    def _delta(self, delta: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if thought:
            self._think(thought, out)
        if details := items(delta.get("reasoning_details")):
            self._detail(details)
        self._content(delta.get("content"), out)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            self._text(TextDelta, refusal, out)
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, dict):
                self._put_text(out)
                self._calls.take(piece, out)
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            self._put_text(out)
            self._calls.take({"index": 0, "function": legacy}, out)

    def _think(self, text: Any, out: list[ProviderEvent]) -> None:
        spoken = self._text(ThinkingDelta, text, out)
        if self._keeps_thinking and spoken:
            self._thinking.append(spoken)

    def _detail(self, details: list[Any]) -> None:
        """Pieces of one kind and number that follow each other are one; texts grow, the rest is told last."""
        for piece in details:
            if not isinstance(piece, dict):
                continue
            last = self._details[-1] if self._details else {}
            if not last or any(piece.get(name) != last.get(name) for name in ("type", "index")):
                self._details.append(dict(piece))
                continue
            for name, value in piece.items():
                if name in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None:
                    last[name] = value

    def _content(self, content: Any, out: list[ProviderEvent]) -> None:
        if isinstance(content, str):
            self._text(TextDelta, content, out)
            return
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, dict):
                continue
            if part.get("type") == "thinking":
                inner = part.get("thinking")
                for item in inner if isinstance(inner, list) else [{"text": inner}]:
                    self._think(item.get("text") if isinstance(item, dict) else item, out)
            else:
                self._text(TextDelta, part.get("text"), out)


class _Calls:
    """Gives each call one number, whatever the server calls it."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._ids: list[str | None] = []
        self._named: list[bool] = []
        self._waiting: dict[int, str] = {}
        self.extras: dict[int, Any] = {}
        """What goes back with a call, by its number."""

    def __bool__(self) -> bool:
        return bool(self._ids)

    def take(self, piece: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id = piece.get("id")
        call_id = call_id if isinstance(call_id, str) and call_id else None
        name = function.get("name")
        name = name if isinstance(name, str) and name else None
        arguments = function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = exact_json.dumps(arguments)
        number = self._number(piece.get("index"), call_id, name)
        if isinstance(piece.get("extra_content"), dict):
            self.extras[number] = piece["extra_content"]
        if not self._named[number]:
            # The name comes with the first piece that goes out; what came before it waits.
            arguments = self._waiting.pop(number, "") + arguments
            if name is None:
                self._waiting[number] = arguments
                return
            self._named[number] = True
            out.append(ToolCallDelta(number, self._ids[number], name, arguments))
        elif arguments:
            put_call(ToolCallDelta(number, None, None, arguments), out)

    def flush(self, out: list[ProviderEvent]) -> None:
        """Calls that never got a name go out with an empty one, which no tool has."""
        for number, arguments in self._waiting.items():
            out.append(ToolCallDelta(number, self._ids[number], "", arguments))
        self._waiting.clear()

    def _number(self, index: Any, call_id: str | None, name: str | None) -> int:
        known = self._numbers.get(index) if isinstance(index, int) else None
        if known is None and not isinstance(index, int) and self._ids:
            known = self._ids.index(call_id) if call_id in self._ids and call_id else len(self._ids) - 1
            if name is not None and call_id is None and self._named[known]:
                known = None
        if known is not None and call_id is not None:
            if self._ids[known] is None:
                self._ids[known] = call_id
            elif self._ids[known] != call_id:
                # Several calls under one index: told apart by their ids.
                known = None
        if known is None:
            known = len(self._ids)
            self._ids.append(call_id)
            self._named.append(False)
        if isinstance(index, int):
            self._numbers[index] = known
        return known


def _has_plain_arguments(chunk: Mapping[str, Any]) -> bool:
    """Whether a call's arguments came as an object: then its numbers need the exact parser."""
    try:
        return any(
            not isinstance(piece["function"].get("arguments"), str | None)
            for choice in chunk["choices"]
            for piece in (choice.get("delta") or choice.get("message"))["tool_calls"]
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    return Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), count(cached))


def _error_of(chunk: Mapping[str, Any]) -> ServerSaid | None:
    error = chunk.get("error")
    if not error:
        if chunk.get("object") != "error" and chunk.get("type") != "error":
            return None
        error = chunk
    return said(error)
