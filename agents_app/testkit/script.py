"""A model that gives the answers of a test's script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents_app import exact_json
from agents_app.errors import ProviderError, ProviderFault
from agents_app.runtime.interface import (
    Finish,
    FinishReason,
    ModelRequest,
    Opaque,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Called:
    """A complete tool call of a script; its index among the message's calls comes from the script."""

    name: str
    arguments: str
    id: str | None


def call(name: str, arguments: Mapping[str, Any] | str | None = None, /, *, call_id: str | None = None, **named: Any) -> Called:
    """The model calls a tool: ``call("weather", city="Bern")``.

    Arguments that are no Python names go into a dictionary; a string is sent as it is, for a model that writes bad JSON.
    """
    if isinstance(arguments, str):
        return Called(name, arguments, call_id)
    return Called(name, exact_json.dumps({**(arguments or {}), **named}), call_id)


def thinking(text: str) -> ThinkingDelta:
    """Thinking of the model."""
    return ThinkingDelta(text)


def usage(sent: int, received: int, cached: int = 0) -> Usage:
    """The tokens that the provider counts for this step: input, output, and input read from its cache."""
    return Usage(sent, received, cached)


def finish(reason: FinishReason) -> Finish:
    """The model stops early: ``"max_tokens"`` or ``"refusal"``."""
    return Finish(reason)


def fail(fault: ProviderFault = "unavailable") -> ProviderError:
    """The provider fails here."""
    return ProviderError(fault, "the script says so")


def pause(seconds: float) -> float:
    """The model pauses."""
    return seconds


Said = str | ThinkingDelta | TextDelta | Called | ToolCallDelta | Opaque | Usage | Finish | ProviderError | float | asyncio.Event
Step = Said | Sequence[Said] | Callable[[ModelRequest], "Said | Sequence[Said]"]


class OutOfScript(AssertionError):
    """The agent made more model calls than the script has steps."""


class Script:
    """A model for tests: one step for each model call.

    A step is a string, one of ``call``, ``thinking``, ``usage``, ``finish``, ``fail`` and ``pause``, a list of these, or a
    function that takes the request and returns one. ``requests``: the requests so far. ``closed``: how many answers were
    read to their end or closed early.
    """

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._asked = 0
        self.requests: list[ModelRequest] = []
        self.closed = 0

    def __repr__(self) -> str:
        return f"<Script of {len(self._steps)} steps, {self._asked} said>"

    @property
    def is_over(self) -> bool:
        """Whether every step was used; a test that expects as many model calls asserts it."""
        return self._asked >= len(self._steps)

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        self.requests.append(request)
        self._asked += 1
        if self._asked > len(self._steps):
            newest = request.messages[-1] if request.messages else None
            raise OutOfScript(
                f"the script has {len(self._steps)} steps, and the model is asked for the {self._asked}th time, after: {newest}"
            )
        return self._say(self._steps[self._asked - 1], request)

    async def _say(self, step: Step, request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
        try:
            said = step(request) if callable(step) else step
            calls = 0
            finished = False
            for each in [said] if isinstance(said, str) or not isinstance(said, Sequence) else said:
                match each:
                    case ProviderError():
                        raise each
                    case asyncio.Event():
                        await each.wait()
                    case int() | float():
                        await asyncio.sleep(each)
                    case str():
                        yield [TextDelta(each)]
                    case Called(name, arguments, call_id):
                        yield [ToolCallDelta(calls, call_id, name, arguments)]
                        calls += 1
                    case _:
                        finished = finished or isinstance(each, Finish)
                        calls += isinstance(each, ToolCallDelta)
                        yield [each]
            if not finished:
                yield [Finish("tool_calls" if calls else "stop")]
        finally:
            self.closed += 1
