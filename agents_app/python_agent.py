"""Agenthost's own interface for an agent in Python: a class that gives the answers itself.

An agents file names it (``python = "module:Class"``). The server calls it instead of a model and does everything else:
tools, permissions, waiting, storing, cancelling, taking over after a crash.
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
    """A complete call: the server runs the tool or asks the client, and calls ``respond`` again with the result."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """Private state of the agent: any JSON value, stored with this message and never shown."""

    data: Any


Said = str | TextDelta | ThinkingDelta | ToolCall | ToolCallDelta | State | Opaque | Usage | Finish
"""The values that ``respond`` may yield. A string is a piece of text."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call. That of a denied or failed call is a text with the reason."""

    name: str
    arguments: Mapping[str, Any]
    content: Content

    @property
    def text(self) -> str:
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Request:
    """The input of one step of a turn.

    ``messages``: the conversation, oldest first, shortened if the agent has ``context_tokens``. ``tools``: the tools that
    may be called now. ``options``: the session's values, secrets in plain text. ``settings`` and ``instructions``: those
    of the agents file or the class, with options filled in.
    """

    instructions: str
    messages: Sequence[Message]
    tools: Sequence[ToolSchema]
    settings: Mapping[str, Any]
    options: Mapping[str, str] = field(repr=False)
    limits: Limits
    full_model: str
    """The model name under which this agent's messages are stored."""

    @property
    def text(self) -> str:
        """The text of the user's newest message."""
        return next((text_of(message.content) for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def results(self) -> list[Result]:
        """The results of the agent's last calls, in order; empty if the last message is the user's."""
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
        """The newest ``State`` in this conversation; None if there is none, or it was dropped with old messages."""
        for message in reversed(self.messages):
            for part in reversed(opaque.returned(message, self.full_model)):
                if part.part == STATE:
                    return part.data
        return None


class Agent:
    """Base class of agents in Python. Subclass it, or write any class with a method ``respond``.

    What the agent does:

    - ``respond`` is a generator. It yields strings (pieces of the answer, shown at once), ``ThinkingDelta``,
      ``ToolCall``, ``State`` and ``Usage``. When it returns, the step ends: after calls the server gets their results and
      calls ``respond`` again, without calls the turn ends. ``Finish("refusal")`` or ``Finish("max_tokens")`` as the last
      value ends the turn with that reason.
    - One instance serves all sessions of its process, many at a time, and there are several processes: keep nothing about
      a conversation on ``self``. Data for later steps goes into the text or a ``State``.
    - An asynchronous generator runs in the loop that all runs of a worker share and must not block (``time.sleep``,
      ``requests``, long computations). A plain generator (``def``) runs in a thread and may block.
    - It must stop soon after it is closed, which happens when the turn is cancelled or out of time. Release resources
      with ``try``/``finally`` or ``async with``. A thread cannot be interrupted: a plain generator is closed at its next
      ``yield``.
    - If a worker dies before a step has shown anything, the step runs again, so ``respond`` must be safe to repeat. Put
      actions that must happen only once into a tool.

    What the server does:

    - It creates the instance, without arguments, at its first use, and calls ``respond`` once for each step.
    - It stores and streams the yielded values, runs the tools with permissions and limits, and stores their results.
    - It applies the agent's limits to each step: ``first_output`` until the first value, ``between_outputs`` after it,
      ``run`` for all, and ``max_steps`` calls of ``respond`` per turn.
    - An exception ends the turn with ``error``; values yielded before are kept. The log has the exception's type and
      stack frames, never its message, which may quote a user; a client sees neither.

    The attributes below correspond to keys of the agents file; a key that is set in both is refused.
    """

    title: str | None = None
    description: str | None = None
    instructions: str = ""
    options: Sequence[Mapping[str, Any]] = ()
    """Mappings with the keys of an ``[[agents.options]]`` table."""
    tools: Sequence[Callable[..., Any]] = ()
    """Functions that become tools, as with ``python = …`` in ``[[agents.tools]]``."""

    def respond(self, request: Request) -> AsyncIterator[Said] | Iterator[Said]:
        """Yield the answer of one step; see the class."""
        raise NotImplementedError
