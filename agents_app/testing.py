"""Test kit for authors of agents: no server, no database, no Django, and no model unless a test wants one.

    from agents_app.testing import Script, call, run

    def test_it_looks_before_it_answers() -> None:
        turn = run("agents.toml", "Is it raining in Bern?", model=Script(call("weather", city="Bern"), "Yes."))
        assert turn.call("weather").arguments == {"city": "Bern"}
        assert turn.text == "Yes."

A test runs the server's own loop with the agent's tools, options and limits. The model is a ``Script``, a ``Recording``
of a real one, or the agent's own; the test specifies the answers to permissions, client tools and forms. Works with any
test runner, inside and outside an event loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agents_app import loader
from agents_app import options as agent_options
from agents_app.errors import AgentsFileError
from agents_app.runtime.interface import Provider
from agents_app.runtime.messages import Content, Message, ToolSchema
from agents_app.spec import AgentSpec
from agents_app.testkit import shared_loop
from agents_app.testkit.files import MemoryWorkspace
from agents_app.testkit.recording import Recording, RecordingMismatch
from agents_app.testkit.script import OutOfScript, Script, call, fail, finish, pause, thinking, usage
from agents_app.testkit.turn_runner import Answers, Clients, Permit, play
from agents_app.testkit.values import ToolRun, Turn
from agents_app.tools.signature import describe

__all__ = [
    "Conversation",
    "OutOfScript",
    "Recording",
    "RecordingMismatch",
    "Script",
    "ToolRun",
    "Turn",
    "call",
    "fail",
    "finish",
    "load",
    "pause",
    "run",
    "thinking",
    "usage",
]


class Conversation:
    """Several turns with one agent; ``say`` runs the next one.

    ``agent``: an agents file (with ``name`` if it has several), ``"module:agent"``, an agent in Python itself, or the
    result of ``load``.
    ``model``: a ``Script``, a ``Recording`` or any provider; by default the agent's own model.
    ``options``: values that a client would set. ``tools``: the names of the tools that the session enables; by default all.
    ``permit``: the decision on calls that need a permission: True, False, or a function of name and arguments that
    returns True, False, a reason for the denial, or None to leave the call open. ``client_tools``: the application's own
    tools, as functions by name. ``answers``: the user's answers to forms, by question; or a function of the form.
    ``stand_ins``: functions by name that replace the agent's own tools or provide the tools of its MCP servers, which
    are not contacted. Nothing is summarised: a conversation that is too long is cut.
    ``files``: the workspace of the file tools at the start, by path; the property ``files`` has its present content.
    ``api_key``: a key that a server would have in its environment, for a test with the real model.
    """

    def __init__(
        self,
        agent: Any,
        *,
        name: str | None = None,
        model: Provider | Recording | None = None,
        options: Mapping[str, str] | None = None,
        tools: Sequence[str] | None = None,
        permit: Permit = True,
        client_tools: Mapping[str, Callable[..., Any]] | None = None,
        answers: Answers | None = None,
        stand_ins: Mapping[str, Callable[..., Any]] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        api_key: str | None = None,
    ) -> None:
        self.agent = load(agent, name)
        self.messages: list[Message] = []
        self.turns: list[Turn] = []
        self._model, self._options, self._api_key = model, dict(options or {}), api_key
        faults = agent_options.faults(self.agent, self._options)
        if faults:
            raise ValueError("; ".join(f"option {option}: {why}" for option, why in faults))
        self._enabled = _enabled(self.agent, tools)
        schemas = _schemas(self.agent, client_tools or {})
        self._workspace = MemoryWorkspace(files or {})
        replaced = _stand_ins(self.agent, stand_ins or {})
        self._clients = Clients(permit, client_tools or {}, schemas, answers, replaced, self._workspace)

    def __repr__(self) -> str:
        return f"<Conversation with {self.agent.name}, {len(self.turns)} turns>"

    @property
    def files(self) -> dict[str, str]:
        """The files of the workspace by path."""
        return self._workspace.content

    def say(self, message: Content) -> Turn:
        """Send the user's message (a text, or blocks with images) and run the turn to its end."""
        position = self.messages[-1].position + 1 if self.messages else 1
        number = len(self.turns) + 1
        asked = [*self.messages, Message("user", message, turn=number, position=position)]
        playing = play(self.agent, self._speaker, self._options, self._enabled, self._clients, asked, number, self._api_key)
        turn = shared_loop.run(playing)
        self.turns.append(turn)
        self.messages = list(turn.history)
        return turn

    def _speaker(self, own: Provider) -> Provider:
        if isinstance(self._model, Recording):
            return self._model.speaker(own, _secrets(self.agent, self._options))
        return own if self._model is None else self._model


def run(
    agent: Any,
    message: Content,
    *,
    name: str | None = None,
    model: Provider | Recording | None = None,
    options: Mapping[str, str] | None = None,
    tools: Sequence[str] | None = None,
    permit: Permit = True,
    client_tools: Mapping[str, Callable[..., Any]] | None = None,
    answers: Answers | None = None,
    stand_ins: Mapping[str, Callable[..., Any]] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    api_key: str | None = None,
) -> Turn:
    """Run one turn in a conversation of its own; see ``Conversation`` for the parameters."""
    conversation = Conversation(
        agent,
        name=name,
        model=model,
        options=options,
        tools=tools,
        permit=permit,
        client_tools=client_tools,
        answers=answers,
        stand_ins=stand_ins,
        files=files,
        api_key=api_key,
    )
    return conversation.say(message)


def load(agent: Any, name: str | None = None) -> AgentSpec:
    """The agent, read and checked as at a server's start; ``AgentsFileError`` lists all its faults."""
    if isinstance(agent, AgentSpec):
        return agent
    if isinstance(agent, Path) or (isinstance(agent, str) and ":" not in agent):
        return _named(loader.load(Path(agent)), name, str(agent))
    reference = agent if isinstance(agent, str) else _reference(agent)
    default_name = name or reference.rpartition(":")[2]
    table = {"python": reference}
    try:
        return loader.read({"agents": [table]}, Path(reference))[0]
    except AgentsFileError as error:
        # An agent in code may have no name, and a test needs none.
        if [fault.key for fault in error.faults] != ["name"]:
            raise
    return loader.read({"agents": [{**table, "name": default_name}]}, Path(reference))[0]


def _named(specs: Sequence[AgentSpec], name: str | None, file: str) -> AgentSpec:
    names = [spec.name for spec in specs]
    if name is None and len(specs) == 1:
        return specs[0]
    if name not in names:
        raise ValueError(f"{file} has the agents {', '.join(names)}: choose one with name=")
    return specs[names.index(name)]


def _reference(agent: Any) -> str:
    """The ``module:name`` of an object, by which a definition's tools are found."""
    if isinstance(agent, type):
        return f"{agent.__module__}:{agent.__qualname__}"
    for module, variables in _modules():
        for variable, value in variables.items():
            if value is agent:
                return f"{module}:{variable}"
    raise ValueError(f"the {type(agent).__name__} is not a variable of a module: assign it to one, or pass 'module:variable'")


def _modules() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, module in list(sys.modules.items()):
        variables = getattr(module, "__dict__", None)
        if isinstance(variables, dict):
            yield name, variables


def _enabled(agent: AgentSpec, tools: Sequence[str] | None) -> frozenset[str]:
    names = frozenset(tool.name for tool in agent.exposed_tools)
    if tools is None:
        return names
    if unknown := sorted(set(tools) - names):
        raise ValueError(f"the agent has no tools {', '.join(unknown)} to enable; it has {', '.join(sorted(names)) or 'none'}")
    return frozenset(tools)


def _stand_ins(agent: AgentSpec, functions: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    unknown = [name for name in functions if agent.tool(name) is None]
    if unknown and not agent.mcp:
        raise ValueError(f"the agent has no tools {', '.join(unknown)} to replace")
    return functions


def _schemas(agent: AgentSpec, functions: Mapping[str, Callable[..., Any]]) -> list[ToolSchema]:
    if functions and not agent.client_tools:
        raise ValueError("the agent takes no client tools; set client_tools = true")
    return [ToolSchema(name, *describe(function)) for name, function in functions.items()]


def _secrets(agent: AgentSpec, options: Mapping[str, str]) -> set[str]:
    values = agent_options.effective(agent, options)
    hidden = {values[option.name] for option in agent.options if option.type == "secret"}
    if agent.api_key is not None:
        hidden.add(agent_options.fill(agent.api_key, values))
    return hidden
