"""What a chat completions server streams, read leniently, as provider events. Pure.

Servers that speak this format differ in every detail that is not the text itself; what is taken here
beyond OpenAI's own words was met in the wild: reasoning under two names, calls without index or id,
usage in any chunk, whole messages instead of deltas, errors in the middle of a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from agents_app import exact_json
from agents_app.errors import ProviderFault
from agents_app.runtime.interface import Finish, FinishReason, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

_CONTEXT_WORDS = re.compile(
    r"context[_ -]?length|context[_ -]?(window|size)|maximum context|"
    r"(prompt|input|request|messages?)[^.]{0,40} (is|are) too (long|large)|too many (input )?tokens|"
    r"reduce the length|(input|prompt) tokens? (count|limit)|exceeds? the (maximum|available|model)[^.]{0,40}(tokens|context)",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[\w.:-]{1,64}", re.ASCII)


class ServerSaid(Exception):
    """The server put an error into its answer. ``code`` is fit for a log; its message is not."""

    def __init__(self, fault: ProviderFault, code: str, *, passing: bool) -> None:
        self.fault, self.code, self.passing = fault, code, passing
        super().__init__(code)


class Unreadable(Exception):
    """The stream holds what is not a chunk."""


class ChatStream:
    """One answer. ``read`` takes events as they come; ``end`` says how it ended.

    ``finished``: the model said it is done. ``over``: nothing more will come.
    """

    def __init__(self) -> None:
        self.finished = False
        self.over = False
        self._reason: str | None = None
        self._refused = False
        self._usage: Usage | None = None
        self._fault: ServerSaid | Unreadable | None = None
        self._calls = _Calls()
        # Neighbouring deltas of one kind until something else comes: they go out as one.
        self._kind: type[TextDelta] | type[ThinkingDelta] = TextDelta
        self._texts: list[str] = []

    def read(self, events: Iterable[list[bytes]]) -> list[ProviderEvent]:
        """The provider events of these server events, neighbouring deltas joined.

        A fault that came together with output is kept for ``check``: the output comes first.
        """
        out: list[ProviderEvent] = []
        try:
            for lines in events:
                for chunk in self._chunks(lines):
                    self._chunk(chunk, out)
        except (ServerSaid, Unreadable) as fault:
            self._put_text(out)
            if not out:
                raise
            self._fault = fault
        self._put_text(out)
        return out

    def check(self) -> None:
        """Raise the fault that the last output came with."""
        if self._fault is not None:
            raise self._fault

    def read_whole(self, document: bytes) -> list[ProviderEvent]:
        """For a server that answers with one JSON document although asked to stream."""
        out: list[ProviderEvent] = []
        self._chunk(_parsed(document), out)
        self._put_text(out)
        self.over = True
        return out

    def end(self) -> list[ProviderEvent] | None:
        """What closes the answer: usage and the reason. None: it broke off before its end."""
        if not self.finished and not self.over:
            return None
        out: list[ProviderEvent] = []
        self._calls.flush(out)
        out.extend(self.usage())
        out.append(Finish(self._finish_reason()))
        return out

    def usage(self) -> list[ProviderEvent]:
        return [] if self._usage is None else [self._usage]

    def _finish_reason(self) -> FinishReason:
        if self._refused or self._reason == "content_filter":
            return "refusal"
        if self._reason in ("length", "max_tokens"):
            return "max_tokens"
        # Servers disagree on what to say after calls; what came counts.
        return "tool_calls" if self._calls else "stop"

    def _chunks(self, lines: list[bytes]) -> Iterable[dict[str, Any]]:
        if self.over:
            return
        whole = lines[0] if len(lines) == 1 else b"\n".join(lines)
        if whole.strip() == b"[DONE]":
            self.over = True
            return
        if not whole.strip():
            return
        try:
            yield _parsed(whole)
        except Unreadable:
            # Some servers forget the empty line between events.
            if len(lines) == 1:
                raise
            for line in lines:
                yield from self._chunks([line])

    def _chunk(self, chunk: dict[str, Any], out: list[ProviderEvent]) -> None:
        if error := _error_of(chunk):
            raise error
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = _usage(usage)
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
        self._text(ThinkingDelta, delta.get("reasoning_content") or delta.get("reasoning"), out)
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
                    self._text(ThinkingDelta, item.get("text") if isinstance(item, dict) else item, out)
            else:
                self._text(TextDelta, part.get("text"), out)

    def _text(self, kind: type[TextDelta] | type[ThinkingDelta], text: Any, out: list[ProviderEvent]) -> None:
        if not isinstance(text, str) or not text:
            return
        if kind is not self._kind:
            self._put_text(out)
            self._kind = kind
        self._texts.append(text)

    def _put_text(self, out: list[ProviderEvent]) -> None:
        if self._texts:
            out.append(self._kind("".join(self._texts)))
            self._texts.clear()


class _Calls:
    """Gives each call one number, whatever the server calls it."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._ids: list[str | None] = []
        self._named: list[bool] = []
        self._waiting: dict[int, str] = {}

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
        if not self._named[number]:
            # The name comes with the first piece that goes out; what came before it waits.
            arguments = self._waiting.pop(number, "") + arguments
            if name is None:
                self._waiting[number] = arguments
                return
            self._named[number] = True
            out.append(ToolCallDelta(number, self._ids[number], name, arguments))
        elif arguments:
            last = out[-1] if out else None
            if isinstance(last, ToolCallDelta) and last.index == number:
                out[-1] = ToolCallDelta(number, last.id, last.name, last.arguments + arguments)
            else:
                out.append(ToolCallDelta(number, None, None, arguments))

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


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        # Lone surrogates and bad UTF-8 are the model's own doing: the loop mends them, the answer goes on.
        try:
            value = json.loads(_decoded(text))
        except (ValueError, RecursionError):
            raise Unreadable from None
    if not isinstance(value, dict):
        raise Unreadable
    if b'"arguments"' in text and _has_plain_arguments(value):
        try:
            exact: dict[str, Any] = exact_json.loads(text)
        except exact_json.NotJSON:
            raise Unreadable from None
        return exact
    return value


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")


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
    return Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")), _count(cached))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _error_of(chunk: Mapping[str, Any]) -> ServerSaid | None:
    error = chunk.get("error")
    if not error:
        if chunk.get("object") != "error" and chunk.get("type") != "error":
            return None
        error = chunk
    return said(error)


def said(error: Any, status: int | None = None) -> ServerSaid:
    """An error as the server wrote it, sorted; ``status`` is the answer's, if it was not 200."""
    fields: Mapping[str, Any] = error if isinstance(error, dict) else {}
    code = " ".join(_token(fields.get(name)) for name in ("code", "type") if _token(fields.get(name)))
    words = " ".join(str(item) for item in (code, fields.get("message") or (error if isinstance(error, str) else "")))
    number = status if status is not None else _status(fields.get("code"))
    if number in (401, 403):
        return ServerSaid("configuration", code, passing=False)
    # A rate is counted in tokens too.
    if number != 429 and "rate" not in code and _CONTEXT_WORDS.search(words[:10_000]):
        return ServerSaid("context_too_long", code, passing=False)
    passing = number in (408, 429) or number >= 500 or (number == 0 and bool(re.search("server|overload|rate|timeout", code)))
    # No money left comes as 429 too, and does not pass by waiting.
    passing = passing and "insufficient_quota" not in code
    unavailable = passing or number == 429 or number == 0
    return ServerSaid("unavailable" if unavailable else "refused_request", code, passing=passing)


def _status(code: Any) -> int:
    try:
        number = int(code)
    except (TypeError, ValueError):
        return 0
    return number if 400 <= number <= 599 else 0


def _token(value: Any) -> str:
    """A code or type if it looks like one: free text may quote what a user wrote."""
    text = str(value) if isinstance(value, str | int) else ""
    return text if _TOKEN.fullmatch(text) else ""
