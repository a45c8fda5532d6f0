"""Converts the stream of a chat completions server to provider events, leniently. Pure.

Servers with this format differ in everything but the text. Each variation accepted here was seen in a real server:
reasoning under three names, calls without index or id, usage in any chunk or elsewhere, whole messages instead of or
beside deltas, errors in the middle of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from agents_app import exact_json
from agents_app.providers.answer_reader import AnswerReader, count, fields, items, parsed, parsed_exactly, put_call, word
from agents_app.providers.server_errors import ServerError, classified
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

_CUT: Mapping[str, FinishReason] = {
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_output_tokens"), "max_tokens"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive", "recitation", "prohibited_content"), "refusal"),
}
"""The finish reasons that count; others (stop, eos, tool_calls…) add nothing to the answer."""
_PLAIN = frozenset({"content", "role"})
"""The members of most deltas."""
_BROKEN = ("error", "abort", "network_error", "insufficient_system_resource")


@dataclass(slots=True)
class _Thought:
    """Thinking up to its signature, if the server signs it."""

    texts: list[str] = field(default_factory=list)
    signature: str = ""

    @property
    def part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "thinking", "thinking": [{"type": "text", "text": "".join(self.texts)}]}
        return {**part, "signature": self.signature} if self.signature else part


class ChatStream(AnswerReader):
    """Reads one answer. ``keeps_thinking``: the server wants its thinking back."""

    def __init__(self, keeps_thinking: str | None = None) -> None:
        super().__init__()
        self._cut: FinishReason | None = None
        self._calls = _Calls()
        self._keeps_thinking = keeps_thinking
        self._thoughts: list[_Thought] = []
        self._details: list[dict[str, Any]] = []

    def _whole(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        self._take(document, out)

    def _close(self, out: list[ProviderEvent]) -> None:
        self._calls.flush(out)
        if self._keeps_thinking == "parts" and self._thoughts:
            out.append(Opaque("thoughts", [thought.part for thought in self._thoughts]))
        elif self._keeps_thinking and self._thoughts:
            out.append(Opaque("thinking", "".join(text for thought in self._thoughts for text in thought.texts)))
        if self._details:
            out.append(Opaque("reasoning_details", self._details))
        out.extend(Opaque("call", {"index": index, "extra_content": extra}) for index, extra in self._calls.extras.items())
        out.extend(self.usage())
        out.append(Finish(self._finish_reason()))

    def _finish_reason(self) -> FinishReason:
        # Servers send different reasons after calls, so the calls themselves count.
        return self._cut or ("tool_calls" if self._calls else "stop")

    def _documents(self, lines: Any) -> Iterable[dict[str, Any]]:
        if len(lines) == 1 and lines[0].startswith(b"{") and not self.over:
            return (self._parsed(lines[0]),)
        return super()._documents(lines)

    def _parsed(self, text: bytes) -> dict[str, Any]:
        chunk = parsed(text)
        return parsed_exactly(text) if b'"arguments"' in text and _has_plain_arguments(chunk) else chunk

    def _take(self, chunk: dict[str, Any], out: list[ProviderEvent]) -> None:
        if error := _error_of(chunk):
            raise error
        usage = chunk.get("usage")
        if usage is None and "x_groq" in chunk:
            usage = fields(chunk["x_groq"]).get("usage")
        if isinstance(usage, dict):
            self._tokens = _usage(usage)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None):
                self._choice(choice, out)

    def _choice(self, choice: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        delta = _said_in(choice)
        if isinstance(delta, dict):
            self._delta(delta, out)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._end(reason.lower())
            if isinstance(usage := choice.get("usage"), dict):
                self._tokens = _usage(usage)

    def _end(self, reason: str) -> None:
        if reason in _BROKEN:
            raise ServerError("unavailable", f"finish_reason {reason}", passing=True)
        # A second reason, sent with the usage, may be less precise.
        self._cut = self._cut or _CUT.get(reason)
        self.finished = True

    def _delta(self, delta: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        if delta.keys() <= _PLAIN:
            self._content(delta.get("content"), out)
            return
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        details = items(delta.get("reasoning_details"))
        if details:
            self._detail(details)
            thought = thought or _read_from(details)
        if thought:
            self._think(thought, out)
        self._content(delta.get("content"), out)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._cut = "refusal"
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
            if not self._thoughts or self._thoughts[-1].signature:
                self._thoughts.append(_Thought())
            self._thoughts[-1].texts.append(spoken)

    def _detail(self, details: list[Any]) -> None:
        """Join adjacent pieces of one kind and index; texts are appended, other members are replaced."""
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
                if self._thoughts and (signature := word(part.get("signature"))):
                    self._thoughts[-1].signature = signature
            else:
                self._text(TextDelta, part.get("text"), out)


@dataclass(slots=True)
class _OneCall:
    call_id: str | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def goes_on(self, name: str, more: str) -> bool:
        """Whether a piece with a name and without an id continues this call: some servers repeat the name."""
        return name == self.name and (not more or not _complete("".join(self.arguments)))


class _Calls:
    """Numbers the calls of an answer, however the server identifies them."""

    def __init__(self) -> None:
        self._calls: list[_OneCall] = []
        self._numbers: dict[int, int] = {}
        self.extras: dict[int, Any] = {}
        """Data to send back with a call, by its number."""

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, piece: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        function = fields(piece.get("function"))
        call_id, name, arguments = word(piece.get("id")) or None, word(function.get("name")), function.get("arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = exact_json.dumps(arguments)
        number = self._number(piece.get("index"), call_id, name, arguments)
        if isinstance(piece.get("extra_content"), dict):
            self.extras[number] = piece["extra_content"]
        call = self._calls[number]
        call.arguments.append(arguments)
        if not call.name:
            # The first piece must have the name; earlier pieces wait for it.
            if name:
                call.name = name
                out.append(ToolCallDelta(number, call.call_id, name, "".join(call.arguments)))
        elif arguments:
            put_call(ToolCallDelta(number, None, None, arguments), out)

    def flush(self, out: list[ProviderEvent]) -> None:
        """Add calls without a name with an empty one, which no tool has."""
        for number, call in enumerate(self._calls):
            if not call.name:
                out.append(ToolCallDelta(number, call.call_id, "", "".join(call.arguments)))

    def _number(self, index: Any, call_id: str | None, name: str, arguments: str) -> int:
        number = self._known(index, call_id, name, arguments)
        if number is None:
            number = len(self._calls)
            self._calls.append(_OneCall(call_id))
        elif self._calls[number].call_id is None:
            self._calls[number].call_id = call_id
        if isinstance(index, int):
            self._numbers[index] = number
        return number

    def _known(self, index: Any, call_id: str | None, name: str, arguments: str) -> int | None:
        number = self._numbers.get(index) if isinstance(index, int) else self._without_index(call_id)
        if number is None or not name:
            # A piece without a name is not a new call, although some servers give each piece a new id.
            return number
        call = self._calls[number]
        if call_id is not None and call.call_id is not None:
            # Several calls with one index differ by their ids.
            return number if call_id == call.call_id else None
        return number if not call.name or call.goes_on(name, arguments) else None

    def _without_index(self, call_id: str | None) -> int | None:
        if call_id is not None:
            for number, call in enumerate(self._calls):
                if call.call_id == call_id:
                    return number
        return len(self._calls) - 1 if self._calls else None


def _complete(arguments: str) -> bool:
    try:
        return isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


def _said_in(choice: Mapping[str, Any]) -> Any:
    """The delta, or the whole message if there is no delta."""
    delta = choice.get("delta")
    return choice.get("message") if delta is None else delta


def _read_from(details: list[Any]) -> str:
    """The readable text in parts of reasoning, some of which are encrypted."""
    return "".join(word(fields(part).get("text")) or word(fields(part).get("summary")) for part in details)


def _has_plain_arguments(chunk: Mapping[str, Any]) -> bool:
    """Whether a call's arguments are an object, whose numbers need the exact parser."""
    try:
        return any(
            not isinstance(piece["function"].get("arguments"), str | None)
            for choice in chunk["choices"]
            for piece in _said_in(choice)["tool_calls"]
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = fields(usage.get("prompt_tokens_details")).get("cached_tokens")
    cached = cached or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens")
    return Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), count(cached))


def _error_of(chunk: Mapping[str, Any]) -> ServerError | None:
    error = chunk.get("error")
    if not error:
        if chunk.get("object") != "error" and chunk.get("type") != "error":
            return None
        error = chunk
    return classified(error)
