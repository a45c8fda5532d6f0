"""Records the answers of a real model in a file and replays them in later tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents_app import exact_json
from agents_app.errors import ProviderError
from agents_app.runtime.interface import (
    Finish,
    ModelRequest,
    Opaque,
    Provider,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.runtime.messages import text_of

FORMAT = 1
MASK = "***"
_SHORTEST_SECRET = 4
"""Masking shorter secrets would mask ordinary words."""


class RecordingMismatch(AssertionError):
    """The agent's request differs from the recorded one."""


class Recording:
    """A file with a model's answers, to be passed as ``model=``.

    With ``record=True`` the agent's own model is asked and the file is written anew; without, the file's answers are
    replayed and no model is needed. The file has the model's answers, the user's messages and the names of the tools.
    API keys, header values and values of secret options are masked wherever they occur.
    """

    def __init__(self, path: Path | str, *, record: bool = False) -> None:
        self.path, self.record = Path(path), record
        self._steps: list[dict[str, Any]] = []
        self._secrets: set[str] = set()
        self._asked = 0
        if not record:
            self._steps = self._read()

    def __repr__(self) -> str:
        return f"<Recording {self.path} ({'being made' if self.record else f'{len(self._steps)} steps'})>"

    def _read(self) -> list[dict[str, Any]]:
        try:
            document = exact_json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no recording {self.path}: make it once, with Recording(path, record=True)"
            ) from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"{self.path} is no recording of format {FORMAT}")
        steps: list[dict[str, Any]] = document["steps"]
        return steps

    def speaker(self, model: Provider, secrets: Collection[str]) -> Provider:
        """The provider to use instead of ``model``."""
        self._secrets |= {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        return _Recorder(self, model) if self.record else _Player(self)

    def add(self, step: dict[str, Any], request: ModelRequest) -> None:
        """Append a step and write the file, so that a test that fails later leaves a recording."""
        secrets = {*self._secrets, *([request.api_key] if request.api_key else []), *request.headers.values()}
        self._secrets = {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}
        self._steps.append(step)
        # One line for each step, so that a diff of two recordings is readable.
        steps = ",\n".join(exact_json.dumps(_masked(each, self._secrets)) for each in self._steps)
        head = f'{{"format":{FORMAT},"model":{exact_json.dumps(request.full_model)},"steps":['
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(f"{head}\n{steps}\n]}}\n", encoding="utf-8")

    def next(self, request: ModelRequest) -> dict[str, Any]:
        self._asked += 1
        if self._asked > len(self._steps):
            raise RecordingMismatch(
                f"{self.path} has {len(self._steps)} steps, and the model is asked for the {self._asked}th time: record it anew"
            )
        step = self._steps[self._asked - 1]
        asked = _masked(_asked(request), self._secrets)
        for name, was in step["asked"].items():
            if asked[name] != was:
                raise RecordingMismatch(
                    f"{self.path}, step {self._asked}: {name} was {was!r} and is {asked[name]!r} now: record it anew"
                )
        return step


def _asked(request: ModelRequest) -> dict[str, Any]:
    message = next((text_of(each.content) for each in reversed(request.messages) if each.role == "user"), "")
    return {"message": message, "tools": [tool.name for tool in request.tools]}


def _masked(value: Any, secrets: Collection[str]) -> Any:
    if isinstance(value, str):
        # The longest first, because one secret may contain another.
        for secret in sorted(secrets, key=len, reverse=True):
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, Mapping):
        return {name: _masked(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, secrets) for item in value]
    return value


class _Recorder:
    def __init__(self, recording: Recording, model: Provider) -> None:
        self._recording, self._model = recording, model

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return self._stream(request)

    async def _stream(self, request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
        said: list[dict[str, Any]] = []
        try:
            async with aclosing(self._model.stream(replace(request, at_once=None))) as stream:  # type: ignore[type-var]  # providers are async generators
                async for batch in stream:
                    for event in batch:
                        _write(event, said)
                    yield batch
        except ProviderError as error:
            said.append({"failed": error.fault})
            raise
        finally:
            self._recording.add({"asked": _asked(request), "said": said}, request)


class _Player:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return self._stream(self._recording.next(request))

    async def _stream(self, step: Mapping[str, Any]) -> AsyncGenerator[list[ProviderEvent]]:
        for each in step["said"]:
            yield [_event(each)]


def _write(event: ProviderEvent, said: list[dict[str, Any]]) -> None:
    """Append an event; deltas of one kind are joined, to keep the file readable."""
    match event:
        case TextDelta(text) | ThinkingDelta(text):
            kind = "text" if isinstance(event, TextDelta) else "thinking"
            if said and kind in said[-1]:
                said[-1][kind] += text
            else:
                said.append({kind: text})
        case ToolCallDelta(index, call_id, name, arguments):
            last = said[-1].get("call") if said else None
            if last is not None and last["index"] == index:
                last["id"], last["name"] = last["id"] or call_id, last["name"] or name
                last["arguments"] += arguments
            else:
                said.append({"call": {"index": index, "id": call_id, "name": name, "arguments": arguments}})
        case Opaque(part, data):
            said.append({"opaque": {"part": part, "data": data}})
        case Usage(sent, received, cached):
            said.append({"usage": [sent, received, cached]})
        case Finish(reason):
            said.append({"finish": reason})


def _event(written: Mapping[str, Any]) -> ProviderEvent:
    match written:
        case {"text": str(text)}:
            return TextDelta(text)
        case {"thinking": str(text)}:
            return ThinkingDelta(text)
        case {"call": call}:
            return ToolCallDelta(**call)
        case {"opaque": {"part": part, "data": data}}:
            return Opaque(part, data)
        case {"usage": [sent, received, cached]}:
            return Usage(sent, received, cached)
        case {"finish": reason}:
            return Finish(reason)
        case {"failed": fault}:
            raise ProviderError(fault, "as recorded")
    raise ValueError(f"unknown entry in a recording: {dict(written)!r}")
