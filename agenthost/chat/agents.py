"""An agent as ``/meta`` describes it: its tools, its options, what it can do. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agenthost.chat.errors import NotAAP, WrongUse
from agenthost.chat.safe_text import one_line


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
        """The value; WrongUse if this option cannot have it."""
        if self.kind == "select" and value not in self.choices:
            raise WrongUse(f"{self.name} cannot be {one_line(value)!r}; choose one of {', '.join(self.choices)}")
        return value


@dataclass(frozen=True, slots=True)
class Agent:
    name: str
    version: str
    title: str
    description: str
    tools: Mapping[str, str]
    """The server's tools that a session may enable, each with its description."""
    options: Mapping[str, Option]
    can: frozenset[str]
    """What it declares, such as ``stream.delta`` or ``image.data``."""

    def option(self, name: str) -> Option:
        if name not in self.options:
            raise WrongUse(
                f"{self.name} has no option {one_line(name)!r}{meant(name, self.options)} "
                f"It has {', '.join(self.options) or 'none at all'}."
            )
        return self.options[name]

    def tool(self, name: str) -> str:
        """The name; WrongUse if the agent exposes no such tool."""
        if name not in self.tools:
            raise WrongUse(
                f"{self.name} has no tool {one_line(name)!r}{meant(name, self.tools)} "
                f"It has {', '.join(self.tools) or 'none at all'}."
            )
        return name

    @property
    def stream_mode(self) -> str:
        """The liveliest form of a turn that it offers."""
        for mode in ("delta", "message", "none"):
            if f"stream.{mode}" in self.can:
                return mode
        return "none"

    @property
    def history_kind(self) -> str | None:
        for kind in ("full", "compacted"):
            if f"history.{kind}" in self.can:
                return kind
        return None


def of_meta(document: Any) -> list[Agent]:
    """The agents of a server; NotAAP if that is no version 3."""
    if not isinstance(document, dict) or not isinstance(document.get("agents"), list):
        raise NotAAP("What answers there does not describe agents as this protocol does.")
    if document.get("version") != 3:
        raise NotAAP(f"The server speaks version {one_line(str(document.get('version')))} of AAP there; this chat speaks 3.")
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
        can=frozenset(f"{group}.{what}" for group, members in groups.items() if isinstance(members, dict) for what in members),
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
    listed = value if isinstance(value, list) else []
    return [each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The end of a sentence about a name that is not known: what somebody who misspelt it may have meant."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else "."


def named(agents: Sequence[Agent], name: str) -> Agent:
    for agent in agents:
        if agent.name == name:
            return agent
    listed = "".join(f"\n  {line}" for line in lines(agents))
    raise WrongUse(f"There is no agent {one_line(name)!r}{meant(name, [each.name for each in agents])} There are:{listed}")


def lines(agents: Sequence[Agent]) -> list[str]:
    """A line for each agent, for a list of them."""
    longest = max((len(agent.name) for agent in agents), default=0)
    return [f"{agent.name:<{longest}}  {one_line(agent.title or agent.description)}".rstrip() for agent in agents]
