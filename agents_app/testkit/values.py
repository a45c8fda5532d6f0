"""The results of a test run: values that are easy to assert on, with readable representations."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agents_app.runtime.interface import ModelRequest, Usage
from agents_app.runtime.messages import Content, Message, text_of

End = Literal["end_turn", "max_tokens", "refusal", "error", "waiting"]
By = Literal["server", "client", "user", "nobody"]
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 120


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool call and its outcome.

    ``by``: what answers it: the server's tool, a client's, the user (a form), or nobody, because there is no such tool.
    ``asked``: a permission was needed. ``arguments``: None if they were not a JSON object.
    """

    name: str
    arguments: Mapping[str, Any] | None
    result: Content | None
    by: By
    asked: bool = False
    denied: bool = False
    failed: bool = False
    id: str = ""

    @property
    def text(self) -> str:
        """The result's text, as the model reads it."""
        return "" if self.result is None else text_of(self.result)

    def __repr__(self) -> str:
        given = "(not a JSON object)"
        if self.arguments is not None:
            given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        became = "open" if self.result is None else _short.repr(self.result)
        how = " denied" if self.denied else " failed" if self.failed else ""
        return f"<{self.name}({given}) by {self.by}{how}: {became}>"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a test conversation.

    ``end``: ``"end_turn"``, ``"max_tokens"``, ``"refusal"``, ``"error"`` (``error`` has the public code and ``failure`` the
    server's log text), or ``"waiting"``: a call has no answer, and a server would wait for one.
    """

    end: End
    texts: Sequence[str]
    thinking: str
    calls: Sequence[ToolRun]
    requests: Sequence[ModelRequest]
    usage: Usage
    error: str = ""
    failure: str = ""
    history: Sequence[Message] = field(default=(), repr=False)

    @property
    def text(self) -> str:
        """The text of the agent's last message: the answer."""
        return self.texts[-1] if self.texts else ""

    def call(self, name: str) -> ToolRun:
        """The only call of this tool."""
        found = [call for call in self.calls if call.name == name]
        if len(found) != 1:
            raise AssertionError(f"{name} was called {len(found)} times: {list(self.calls)}")
        return found[0]

    @property
    def open(self) -> list[ToolRun]:
        """The calls that have no result."""
        return [call for call in self.calls if call.result is None]

    def __repr__(self) -> str:
        lines = [f"end={self.end!r}" + (f" error={self.error!r}" if self.error else "")]
        lines += [f"failure={self.failure!r}"] if self.failure else []
        lines += [f"thinking={_short.repr(self.thinking)}"] if self.thinking else []
        lines += [repr(call) for call in self.calls]
        lines += [f"text={_short.repr(text)}" for text in self.texts if text]
        lines.append(f"{len(self.requests)} model calls, {self.usage.input_tokens} tokens in, {self.usage.output_tokens} out")
        return "<Turn\n  " + "\n  ".join(lines) + "\n>"
