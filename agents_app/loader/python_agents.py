"""Reads an agent in Python code, to be merged with its table in the agents file.

Nothing is dropped silently: an unsupported property is a fault that names it and an alternative.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agents_app import object_references, options
from agents_app.loader import agent_options
from agents_app.loader.table import MAX_NAME, Table, is_line
from agents_app.loader.tools import NAME
from agents_app.providers import python
from agents_app.runtime.unicode import storable
from agents_app.spec import OptionSpec, ToolSpec
from agents_app.tools import agent_tools

V = TypeVar("V")

KEY = "python"


@dataclass(frozen=True, slots=True)
class Brought:
    """The properties of an agent in code; None or empty if not set. Texts are plain, not templates."""

    reference: str | None = None
    name: str | None = None
    model: str | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: tuple[OptionSpec, ...] = ()
    tools: tuple[ToolSpec, ...] = ()

    def _both(self, table: Table, key: str, what: str = "") -> None:
        table.fault(key, f"{what or key} is set here and in {self.reference} (Python); remove one")

    def either(self, table: Table, key: str, there: str | None) -> str | None:
        """The value of the file or of this agent; a value in both is a fault."""
        here = table.text(key)
        if here is not None and there is not None:
            self._both(table, key)
        return here if here is not None else there

    def named(self, table: Table, here: str) -> str:
        """The agent's name; the file may repeat the code's."""
        if here and self.name is not None and self.name != here:
            self._both(table, "name", f"the name ({self.name!r} there)")
        if not here and self.reference is not None:
            if self.name is None:
                table.fault("name", f"is required: {self.reference} in Python has none")
            elif not is_line(self.name):
                table.fault("name", f"the name of {self.reference} in Python is not one line of 1 to {MAX_NAME} characters")
            else:
                table.named(self.name)
                return self.name
        return here

    def model_or(self, table: Table) -> str:
        model = self.either(table, "model", self.model)
        if model is None and not table.has("model"):
            table.fault("model", f"is required: {self.reference} in Python has none" if self.reference else "is required")
        return model or ""

    def instructions_or(self, table: Table, here: str, offered: Sequence[OptionSpec]) -> str:
        if self.instructions is None:
            return here
        if here:
            self._both(table, "instructions")
        return options.as_written(self.instructions, _names(offered))

    def joined(
        self, table: Table, key: str, there: Mapping[str, V], here: Mapping[str, V], offered: Sequence[OptionSpec]
    ) -> dict[str, V]:
        """A table merged from the file's part and this agent's."""
        for name in here:
            if name in there:
                self._both(table, key, name)
        return {**_templates(there, _names(offered)), **here}

    def options_with(self, table: Table, here: tuple[OptionSpec, ...]) -> tuple[OptionSpec, ...]:
        for option in here:
            if any(option.name == other.name for other in self.options):
                self._both(table, "options", f"the option {option.name}")
        return (*self.options, *here)

    def tools_with(self, table: Table, here: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        for tool in here:
            if any(tool.name == other.name for other in self.tools):
                self._both(table, "tools", f"the tool {tool.name}")
        return (*self.tools, *here)


NOTHING = Brought()


def read(table: Table) -> Brought:
    reference = table.text(KEY)
    if reference is None:
        return NOTHING
    try:
        found = object_references.find(reference)
        if agent_tools.is_pydantic(found):
            from agents_app.loader import pydantic_agents

            return pydantic_agents.read(table, reference, found)
        if agent_tools.is_own(found):
            python.resolve(reference)
            return _own(table, reference, found)
    except (object_references.ObjectNotFound, python.NoAgent) as error:
        table.fault(KEY, _with_hint(error) if isinstance(error, object_references.ObjectNotFound) else f"{reference}: {error}")
        return Brought(reference, model=f"{python.NAME}:{reference}")
    what = "a function" if inspect.isroutine(found) else "a class" if inspect.isclass(found) else f"a {type(found).__name__}"
    table.fault(KEY, f"{reference} is {what}: name a pydantic_ai.Agent, or a class with a method respond")
    return Brought(reference, model=f"{python.NAME}:{reference}")


def _with_hint(error: object_references.ObjectNotFound) -> str:
    cause = error.__cause__
    if type(cause).__name__ == "UserError" and type(cause).__module__.startswith("pydantic_ai"):
        return (
            f"{error} (a model that is named by a string wants its key where it is made: "
            "with Agent(..., defer_model_check=True) the key stays with the server)"
        )
    return str(error)


def tools_of(table: Table, reference: str, found: Any) -> tuple[ToolSpec, ...]:
    """The tools that the agent defines; their faults are recorded."""
    tools, faults = agent_tools.brought(found)
    for tool in tools:
        if not NAME.fullmatch(tool.name):
            faults.append(f"the tool's name {tool.name!r} must have 1 to 64 characters of A-Z a-z 0-9 _ -")
    for fault in faults:
        table.fault(KEY, f"{reference}: {fault}")
    return tuple(
        ToolSpec(
            name=tool.name,
            source=f"agent:{reference}:{tool.name}",
            description=storable(tool.description),
            parameters=tool.parameters,
            timeout=tool.timeout,
        )
        for tool in tools
    )


def _names(offered: Sequence[OptionSpec]) -> frozenset[str]:
    return frozenset(option.name for option in offered)


def _templates(value: Any, known: frozenset[str]) -> Any:
    """Texts from code as templates: braces are escaped, except around an option's name."""
    if isinstance(value, str):
        return options.as_written(value, known)
    if isinstance(value, Mapping):
        return {name: _templates(item, known) for name, item in value.items()}
    if isinstance(value, list):
        return [_templates(item, known) for item in value]
    return value


_TEXTS = ("title", "description", "instructions")


def _own(table: Table, reference: str, found: Any) -> Brought:
    texts: dict[str, str | None] = {}
    for name in _TEXTS:
        value = getattr(found, name, None) or None
        if value is not None and not isinstance(value, str):
            table.fault(KEY, f"{reference}: its {name} must be a string")
            value = None
        texts[name] = value
    offered = getattr(found, "options", ())
    if not isinstance(offered, list | tuple) or not all(isinstance(each, Mapping) for each in offered):
        table.fault(KEY, f"{reference}: its options must be a list of tables, each as [[agents.options]] has it")
        offered = ()
    inside = table.beside({"options": [dict(each) for each in offered]}, reference)
    return Brought(
        reference=reference,
        model=f"{python.NAME}:{reference}",
        title=texts["title"],
        description=texts["description"],
        instructions=texts["instructions"],
        options=agent_options.read(inside),
        tools=tools_of(table, reference, found),
    )
