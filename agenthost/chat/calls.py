"""Answers to the tool calls that wait for this client."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agenthost.chat import local_tools
from agenthost.chat.screen import Screen
from agenthost.client.calls import Call
from agenthost.client.tools import ClientTool

ASKS_USER = "ask_user"


@dataclass(frozen=True, slots=True)
class Decision:
    granted: bool
    reason: str = ""
    trusts: bool = False
    for_all: bool = False
    """Applies to all other calls that wait for permission now."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The user declined to give a result."""

    reason: str = ""


class Responder(Protocol):
    """Answers calls: by asking the user, or by command-line rules."""

    def permission(self, call: Call, *, others: int) -> Decision:
        """Whether a server tool may run. ``others``: the number of other calls that wait for permission."""
        ...

    def result(self, call: Call) -> str | Denied:
        """The result of a call to a client tool without a local function."""
        ...

    def questions(self, call: Call) -> str | Denied:
        """The answers to the agent's questions (``ask_user``), as JSON."""
        ...


@dataclass
class Answers:
    messages: list[dict[str, Any]] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)


def answer_calls(
    calls: Sequence[Call],
    *,
    responder: Responder,
    client_tools: Mapping[str, ClientTool],
    server_tools: Collection[str],
    screen: Screen,
    runner: asyncio.Runner,
) -> Answers:
    """Answer each call. Calls to ``server_tools`` need a permission, others need a result."""
    answers = Answers()
    for_all: Decision | None = None
    asking = [call for call in calls if call.name in server_tools and not _asks_user(call)]
    for call in calls:
        tool = client_tools.get(call.name)
        if tool is not None and tool.function is not None:
            answers.messages.append(_message(call, _run(call, tool, screen, runner)))
        elif _asks_user(call):
            answers.messages.append(_message(call, responder.questions(call)))
        elif call in asking:
            others = len(asking) - asking.index(call) - 1
            decision = for_all or (
                Decision(granted=True) if call.name in answers.trusted else responder.permission(call, others=others)
            )
            if decision.for_all:
                for_all = decision
            if decision.trusts:
                answers.trusted.append(call.name)
            answers.messages.append(_permission(call, decision))
        else:
            answers.messages.append(_message(call, responder.result(call)))
    return answers


def _asks_user(call: Call) -> bool:
    questions = call.input.get("questions")
    return call.name == ASKS_USER and isinstance(questions, list) and all(isinstance(each, dict) for each in questions)


def _run(call: Call, tool: ClientTool, screen: Screen, runner: asyncio.Runner) -> Any:
    assert tool.function is not None
    screen.note(f"  running {call.name} locally …")
    outcome = local_tools.run(tool.function, call.input, runner)
    if outcome.error:
        screen.error(f"  {call.name} failed: {outcome.error}")
    else:
        screen.result(outcome.content if isinstance(outcome.content, str) else str(outcome.content))
    return outcome.content


def _message(call: Call, content: Any) -> dict[str, Any]:
    if isinstance(content, Denied):
        return _permission(call, Decision(granted=False, reason=content.reason))
    return {"role": "tool", "toolCallId": call.id, "content": content}


def _permission(call: Call, decision: Decision) -> dict[str, Any]:
    reason = {"reason": decision.reason} if decision.reason and not decision.granted else {}
    return {"role": "tool_permission", "toolCallId": call.id, "granted": decision.granted, **reason}


class ScriptResponder:
    """Answers calls in scripts, without a user: denies everything that the command line does not allow."""

    def __init__(self, allowed: Sequence[str], screen: Screen) -> None:
        self._allowed = allowed
        self._screen = screen

    def permission(self, call: Call, *, others: int) -> Decision:  # noqa: ARG002 - needed only for a prompt
        if call.name in self._allowed or "all" in self._allowed:
            return Decision(granted=True)
        self._screen.note(f"  {call.name} was denied: no terminal to ask at (use --allow {call.name})")
        return Decision(granted=False, reason="no user is present to allow it")

    def result(self, call: Call) -> Denied:
        self._screen.note(f"  {call.name} was denied: no terminal to type its result at")
        return Denied("no user is present to answer it")

    def questions(self, call: Call) -> Denied:
        return self.result(call)
