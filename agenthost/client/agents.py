"""Agents as described by ``/meta``: tools, options and capabilities. No I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenthost.client.errors import ProtocolError, UsageError
from agenthost.client.safe_text import one_line


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: str
    """``text``, ``select`` or ``secret``."""
    default: str
    title: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()

    @property
    def is_secret(self) -> bool:
        return self.kind == "secret"

    def checked(self, value: str) -> str:
        """The value; raises UsageError if it is invalid for this option."""
        if self.kind == "select" and value not in self.choices:
            raise UsageError(f"{self.name} cannot be {one_line(value)!r}; choose one of {', '.join(self.choices)}")
        return value


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    version: str
    title: str
    description: str
    tools: Mapping[str, str]
    """The server tools that a session may enable, with their descriptions."""
    options: Mapping[str, Option]
    capabilities: frozenset[str]
    """For example ``stream.delta`` or ``image.data``."""

    def option(self, name: str) -> Option:
        if name not in self.options:
            raise UsageError(
                f"{self.name} has no option {one_line(name)!r}{suggestion(name, self.options)} "
                f"It has {', '.join(self.options) or 'none'}."
            )
        return self.options[name]

    def tool(self, name: str) -> str:
        """The name; raises UsageError if the agent has no such tool."""
        if name not in self.tools:
            raise UsageError(
                f"{self.name} has no tool {one_line(name)!r}{suggestion(name, self.tools)} "
                f"It has {', '.join(self.tools) or 'none'}."
            )
        return name

    @property
    def stream_mode(self) -> str:
        """The most detailed stream mode that the agent supports."""
        for mode in ("delta", "message", "none"):
            if f"stream.{mode}" in self.capabilities:
                return mode
        return "none"

    @property
    def history_kind(self) -> str | None:
        for kind in ("full", "compacted"):
            if f"history.{kind}" in self.capabilities:
                return kind
        return None


def parse_meta(document: Any) -> list[Agent]:
    """The agents in a ``/meta`` document; raises ProtocolError if it is not one of AAP version 3."""
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        raise ProtocolError("The server's response is not an AAP meta document.")
    if document.get("version") != 3:
        raise ProtocolError(
            f"The server speaks AAP version {one_line(str(document.get('version')))} at this address; this client needs 3."
        )
    return [_agent(each) for each in document["agents"] if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _agent(document: Mapping[str, Any]) -> Agent:
    options = [_option(each) for each in _objects(document.get("options"))]
    capabilities = document.get("capabilities")
    groups = capabilities if isinstance(capabilities, dict) else {}
    return Agent(
        name=document["name"],
        version=_text(document.get("version")),
        title=_text(document.get("title")),
        description=_text(document.get("description")),
        tools={each["name"]: _text(each.get("description")) for each in _objects(document.get("tools"))},
        options={option.name: option for option in options},
        capabilities=frozenset(
            f"{group}.{member}" for group, members in groups.items() if isinstance(members, dict) for member in members
        ),
    )


def _option(document: Mapping[str, Any]) -> Option:
    choices = document.get("options")
    return Option(
        name=document["name"],
        kind=_text(document.get("type")) or "text",
        default=_text(document.get("default")),
        title=_text(document.get("title")),
        description=_text(document.get("description")),
        choices=tuple(str(each) for each in choices) if isinstance(choices, list) else (),
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else []
    return [each for each in items if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of an error message about an unknown name, with the most similar known name if there is one."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else "."


def find(agents: Sequence[Agent], name: str) -> Agent:
    for agent in agents:
        if agent.name == name:
            return agent
    listed = "".join(f"\n  {line}" for line in listing(agents))
    raise UsageError(f"There is no agent {one_line(name)!r}{suggestion(name, [each.name for each in agents])} Available:{listed}")


def listing(agents: Sequence[Agent]) -> list[str]:
    """One line per agent."""
    longest = max((len(agent.name) for agent in agents), default=0)
    return [f"{agent.name:<{longest}}  {one_line(agent.title or agent.description)}".rstrip() for agent in agents]
