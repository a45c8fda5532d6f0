"""Tool calls that wait for this client, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agenthost.chat import local_tools
from agenthost.chat.local_tools import ClientTool
from agenthost.chat.runs import of_message
from agenthost.chat.screen import Screen

ASKS_USER = "ask_user"


@dataclass(slots=True)
class Call:
    id: str
    name: str
    input: Mapping[str, Any]
    shown_whole: bool = True
    was_granted: bool = False
    """It was allowed before and waits once more: its result is held back until somebody has agreed to that too."""


@dataclass(frozen=True, slots=True)
class Decision:
    granted: bool
    reason: str = ""
    trusts: bool = False
    for_all: bool = False
    """The same for the others that ask now."""


@dataclass(frozen=True, slots=True)
class Denied:
    """There is no result: whoever was asked for one declined."""

    reason: str = ""


class Judge(Protocol):
    """Who decides about calls: a person at the terminal, or what was said beforehand."""

    def permission(self, call: Call, *, others: int) -> Decision:
        """Whether a tool of the server may run. ``others``: how many more ask at the same time."""
        ...

    def result(self, call: Call) -> str | Denied:
        """What a call gives that nothing here can run."""
        ...

    def questions(self, call: Call) -> str | Denied:
        """The answers to the agent's questions to its user, as JSON."""
        ...


@dataclass
class Given:
    messages: list[dict[str, Any]] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)


def answered(
    calls: Sequence[Call],
    *,
    judge: Judge,
    client_tools: Mapping[str, ClientTool],
    server_tools: Collection[str],
    screen: Screen,
    runner: asyncio.Runner,
) -> Given:
    """An answer to each call. ``server_tools`` are those whose permission the server asks for."""
    given = Given()
    for_all: Decision | None = None
    asking = [call for call in calls if call.name in server_tools and not _asks_user(call)]
    for call in calls:
        tool = client_tools.get(call.name)
        if tool is not None and tool.function is not None:
            given.messages.append(_message(call, _run(call, tool, screen, runner)))
        elif _asks_user(call):
            given.messages.append(_message(call, judge.questions(call)))
        elif call in asking:
            others = len(asking) - asking.index(call) - 1
            decision = for_all or (
                Decision(granted=True) if call.name in given.trusted else judge.permission(call, others=others)
            )
            if decision.for_all:
                for_all = decision
            if decision.trusts:
                given.trusted.append(call.name)
            given.messages.append(_permission(call, decision))
        else:
            given.messages.append(_message(call, judge.result(call)))
    return given


def _asks_user(call: Call) -> bool:
    questions = call.input.get("questions")
    return call.name == ASKS_USER and isinstance(questions, list) and all(isinstance(each, dict) for each in questions)


def _run(call: Call, tool: ClientTool, screen: Screen, runner: asyncio.Runner) -> Any:
    assert tool.function is not None
    screen.note(f"  running {call.name} here …")
    ran = local_tools.run(tool.function, call.input, runner)
    if ran.fault:
        screen.fault(f"  {call.name} failed: {ran.fault}")
    else:
        screen.result(ran.content if isinstance(ran.content, str) else str(ran.content))
    return ran.content


def _message(call: Call, content: Any) -> dict[str, Any]:
    if isinstance(content, Denied):
        return _permission(call, Decision(granted=False, reason=content.reason))
    return {"role": "tool", "toolCallId": call.id, "content": content}


def _permission(call: Call, decision: Decision) -> dict[str, Any]:
    reason = {"reason": decision.reason} if decision.reason and not decision.granted else {}
    return {"role": "tool_permission", "toolCallId": call.id, "granted": decision.granted, **reason}


def pending(history: Sequence[Mapping[str, Any]]) -> dict[str, Call]:
    """The calls that a history ends in (A71 of the protocol's rules): whoever reads it can go on with them."""
    done: set[str] = set()
    for message in reversed(history):
        if message.get("role") == "tool":
            done.add(str(message.get("toolCallId")))
            continue
        found = (of_happening(each.data) for each in of_message(message) if each.name == "tool_call")
        return {call.id: call for call in found if call.id not in done}
    return {}


def of_happening(data: Mapping[str, Any]) -> Call:
    given = data.get("input")
    return Call(str(data.get("toolCallId", "")), str(data.get("name", "")), given if isinstance(given, dict) else {})


class Beforehand:
    """Decides without a person, for scripts: what was not allowed on the command line is denied."""

    def __init__(self, allowed: Sequence[str], screen: Screen) -> None:
        self._allowed = allowed
        self._screen = screen

    def permission(self, call: Call, *, others: int) -> Decision:  # noqa: ARG002 - nobody is asked, so nothing is counted
        if call.name in self._allowed or "all" in self._allowed:
            return Decision(granted=True)
        self._screen.note(f"  {call.name} was denied: nobody can be asked here (--allow {call.name})")
        return Decision(granted=False, reason="nobody is there who could allow it")

    def result(self, call: Call) -> Denied:
        self._screen.note(f"  {call.name} was denied: nobody can type its result here")
        return Denied("nobody is there who could answer it")

    def questions(self, call: Call) -> Denied:
        return self.result(call)
