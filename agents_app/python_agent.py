"""Agenthost's own interface for an agent in Python: a class that decides itself what to say.

An agents file names it (``python = "module:Class"``). The server asks it wherever it would ask a model; everything
else stays the server's: tools, permissions, waiting, storing, cancelling, taking over after a crash.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents_app.runtime import opaque
from agents_app.runtime.interface import Finish, Limits, Opaque, TextDelta, ThinkingDelta, ToolCallDelta, Usage
from agents_app.runtime.messages import Content, Message, ToolSchema, calls_of, text_of

__all__ = [
    "Agent",
    "Content",
    "Finish",
    "Limits",
    "Message",
    "Opaque",
    "Request",
    "Result",
    "Said",
    "State",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolSchema",
    "Usage",
    "calls_of",
    "text_of",
]

STATE = "state"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call: the server runs the tool, or asks whoever has to, and calls ``respond`` again with the result."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """What the agent wants to know again: any JSON value, stored with this message and shown to nobody."""

    data: Any


Said = str | TextDelta | ThinkingDelta | ToolCall | ToolCallDelta | State | Opaque | Usage | Finish
"""What ``respond`` may yield. A string is a piece of text."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave that the agent called. A call that was denied or failed has a text that says so."""

    name: str
    arguments: Mapping[str, Any]
    content: Content

    @property
    def text(self) -> str:
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything there is to know at one step of a turn.

    ``messages`` is the conversation, oldest first, shortened if the agent has ``context_tokens``. ``tools`` are those
    that may be called now. ``options`` has the session's values, secrets in clear. ``settings`` and ``instructions``
    are those of the agents file or the class, with options filled in.
    """

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema]
    settings: Mapping[str, Any]
    options: Mapping[str, str] = field(repr=False)
    limits: Limits
    full_model: str
    """The name this agent's messages are kept under."""

    @property
    def text(self) -> str:
        """The newest message of the user."""
        return next((text_of(message.content) for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def results(self) -> list[Result]:
        """The results of the agent's last calls, in their order; none if the user spoke last."""
        found: list[Message] = []
        for message in reversed(self.messages):
            if message.role != "tool":
                calls = {call["toolCallId"]: call for call in calls_of(message)}
                known = [(calls[each.tool_call_id or ""], each) for each in reversed(found) if each.tool_call_id in calls]
                return [Result(call["name"], call["input"], each.content) for call, each in known]
            found.append(message)
        return []

    @property
    def state(self) -> Any:
        """The newest ``State`` in this conversation; None if there was none, or it was left out with old messages."""
        for message in reversed(self.messages):
            for part in reversed(opaque.returned(message, self.full_model)):
                if part.part == STATE:
                    return part.data
        return None


class Agent:
    """An agent that decides itself what to say. Subclass it, or write any class with a method ``respond``.

    What the agent does:

    - ``respond`` is a generator. It yields strings (pieces of the answer, shown at once), ``ThinkingDelta``,
      ``ToolCall``, ``State`` and ``Usage``. Where it returns, this step is over: with calls the server gets their
      results and calls ``respond`` again, without calls the turn has ended. ``Finish("refusal")`` or
      ``Finish("max_tokens")`` as the last thing ends the turn with that reason.
    - One instance serves all sessions of its process, many at a time, and there are many processes: nothing about a
      conversation may be kept on ``self``. Whatever must be known later goes into the text or a ``State``.
    - An asynchronous generator runs in the loop that all runs of a worker share: it awaits, and never blocks
      (``time.sleep``, ``requests``, long computing). A plain generator (``def``) runs in a thread and may block.
    - When it is closed it stops soon: it is closed when the turn is cancelled or out of time. What it holds open is
      released with ``try``/``finally`` or ``async with``. A thread cannot be interrupted: a plain generator hears of
      it at its next ``yield``.
    - A step whose worker died may be asked again, if nothing of it had been shown: what happens inside ``respond``
      should bear that. What must happen once belongs into a tool.

    What the server does:

    - It makes the instance, without arguments, when it first needs it, and calls ``respond`` once for each step.
    - It stores and streams what is yielded; runs the tools, with permissions and limits, and knows what was done.
    - It bounds each step by the agent's limits: ``first_output`` until the first thing yielded, ``between_outputs``
      after that, ``run`` for all, ``max_steps`` calls of ``respond`` in a turn.
    - An exception ends the turn with ``error``. What was yielded before is kept. The log has the exception's type
      and place and never its words, which may quote a user; a client learns neither.

    The attributes below are what an agents file would say; what stands in both is refused there.
    """

    title: str | None = None
    description: str | None = None
    instructions: str = ""
    options: Sequence[Mapping[str, Any]] = ()
    """Each with the keys of an ``[[agents.options]]`` table."""
    tools: Sequence[Callable[..., Any]] = ()
    """Functions, made to tools as ``[[agents.tools]]`` does with ``python = …``."""

    def respond(self, request: Request) -> AsyncIterator[Said] | Iterator[Said]:
        """Answer one step; see above."""
        raise NotImplementedError
