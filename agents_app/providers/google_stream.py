"""Converts the stream of Google's streamGenerateContent to provider events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app import exact_json
from agents_app.providers.answer_reader import AnswerReader, count, fields, items, word
from agents_app.providers.layout import Layout
from agents_app.providers.server_errors import ServerError, classified, token
from agents_app.runtime.interface import Finish, FinishReason, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

_REFUSALS = {
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "MODEL_ARMOR",
}
_UNUSABLE = {
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "MALFORMED_RESPONSE",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "IMAGE_OTHER",
    "NO_IMAGE",
}
"""Finish reasons of an unusable answer, for which a retry may help."""


class GoogleStream(AnswerReader):
    """Reads one answer. Parts of tools that run at the vendor are left out."""

    exact = b'"functionCall"'

    def __init__(self) -> None:
        super().__init__()
        self._reason = ""
        self._refused = False
        self._layout = Layout()
        self._said = False

    def _take(self, document: dict[str, Any], out: list[ProviderEvent]) -> None:
        if "error" in document:
            raise classified(document["error"])
        usage = fields(document.get("usageMetadata"))
        if usage:
            self._tokens = Usage(
                count(usage.get("promptTokenCount")) + count(usage.get("toolUsePromptTokenCount")),
                count(usage.get("candidatesTokenCount")) + count(usage.get("thoughtsTokenCount")),
                count(usage.get("cachedContentTokenCount")),
            )
        candidates = items(document.get("candidates"))
        if not candidates and fields(document.get("promptFeedback")).get("blockReason"):
            self._refused = self.finished = True
        for candidate in candidates:
            if fields(candidate).get("index") in (0, None):
                self._candidate(fields(candidate), out)

    def _candidate(self, candidate: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        for part in items(fields(candidate.get("content")).get("parts")):
            self._part(fields(part), out)
        reason = word(candidate.get("finishReason"))
        if not reason or reason == "FINISH_REASON_UNSPECIFIED":
            return
        if reason in _UNUSABLE or (reason == "OTHER" and not self._said):
            raise ServerError("unavailable", token(reason), passing=True)
        self._reason, self.finished = reason, True
        self._refused = self._refused or reason in _REFUSALS

    def _part(self, part: Mapping[str, Any], out: list[ProviderEvent]) -> None:
        signature = part.get("thoughtSignature")
        more = {"signature": signature} if isinstance(signature, str) and signature else None
        called = part.get("functionCall")
        if isinstance(called, dict):
            given = word(called.get("id"))
            arguments = called.get("args")
            text = exact_json.dumps(arguments) if isinstance(arguments, dict) and arguments else ""
            self._put_call(ToolCallDelta(self._layout.calls, given or None, word(called.get("name")), text), out)
            self._layout.call({**(more or {}), **({"id": given} if given else {})})
            self._said = True
        elif part.get("thought") is True:
            self._text(ThinkingDelta, part.get("text"), out)
            if more:
                self._layout.kept(dict(part))
        elif isinstance(part.get("text"), str) or (more and set(part) <= {"thoughtSignature", "thought"}):
            spoken = self._text(TextDelta, part.get("text"), out)
            self._layout.text(len(spoken), more)
            self._said = self._said or bool(spoken)

    def _close(self, out: list[ProviderEvent]) -> None:
        out.extend(self._layout.parts)
        out.extend(self.usage())
        out.append(Finish(self._finish_reason()))

    def _finish_reason(self) -> FinishReason:
        if self._refused:
            return "refusal"
        if self._reason in ("MAX_TOKENS", "CONTINUATION"):
            return "max_tokens"
        return "tool_calls" if self._layout.calls else "stop"
