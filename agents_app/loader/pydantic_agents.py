"""Reads a ``pydantic_ai.Agent``: model, instructions, settings and function tools.

Its own loop never runs, because permissions, waiting and storing are the server's. Any other parameter would have no
effect, so it is refused by name. ``PARAMETERS`` lists every parameter of the class, which a test checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import InstructionPart

from agents_app import providers
from agents_app.loader import python_agents
from agents_app.loader.python_agents import KEY, Brought
from agents_app.loader.table import Table
from agents_app.providers import python
from agents_app.tools import agent_tools

_NO_RUNS = "runs are this server's"
_FUNCTIONS_ALONE = "function tools alone are taken; for MCP servers use [[agents.mcp]]"
_Set = Callable[[Any], bool]


@cache
def _bare() -> Any:
    """An agent with nothing set, to compare with."""
    return Agent(None)


def _differs(*names: str) -> _Set:
    return lambda agent: any(getattr(agent, name) != getattr(_bare(), name) for name in names)


def _other_toolsets(agent: Any) -> bool:
    plain = len(agent_tools.function_toolsets(agent)) - 1
    return len(agent._user_toolsets) > plain or bool(agent._dynamic_toolsets)


def _has_functions(instructions: Any) -> bool:
    """Whether a function makes any of these texts for each run."""
    texts = (getattr(each, "instruction", each) for each in instructions)
    return any(not isinstance(each, str | InstructionPart) for each in texts)


TAKEN = "taken"
PARAMETERS: Mapping[str, str | tuple[_Set, str]] = {
    "model": TAKEN,
    "instructions": TAKEN,
    "system_prompt": TAKEN,
    "name": TAKEN,
    "description": TAKEN,
    "model_settings": TAKEN,
    "tools": TAKEN,
    "tool_timeout": TAKEN,
    # Says only when the model is looked at.
    "defer_model_check": TAKEN,
    "output_type": (lambda agent: agent._output_type is not str, "an answer is text; let the model call a tool with the values"),
    "deps_type": (lambda agent: agent._deps_type not in (object, type(None)), "nothing is injected; tools have their module"),
    "retries": (_differs("_max_tool_retries", "_max_output_retries"), "use limits.retries and max_steps"),
    "validation_context": (lambda agent: agent._validation_context is not None, "tools check their arguments themselves"),
    "toolsets": (_other_toolsets, _FUNCTIONS_ALONE),
    "end_strategy": (_differs("end_strategy"), "every tool that is called runs"),
    "metadata": (lambda agent: agent._metadata is not None, _NO_RUNS),
    "max_concurrency": (lambda agent: agent._concurrency_limiter is not None, "limit the turns of a key or a tenant"),
    "capabilities": (
        lambda agent: agent._root_capability.capabilities != _bare()._root_capability.capabilities,
        "native tools, hooks and history processors have no place in this server's loop",
    ),
}
"""Each parameter of the constructor: supported, or (whether an agent sets it, why it is refused)."""

REGISTERED: Mapping[str, str | tuple[_Set, str]] = {
    "tool": TAKEN,
    "tool_plain": TAKEN,
    "instructions": (
        lambda agent: any(_has_functions(each._instructions) for each in (agent, *agent_tools.function_toolsets(agent))),
        "functions are not asked again for each run; write the text, with {option} for what changes",
    ),
    "system_prompt": (
        lambda agent: bool(agent._system_prompt_functions),
        "functions are not asked again for each run; write the text, with {option} for what changes",
    ),
    "output_validator": (lambda agent: bool(agent._output_validators), "an answer is shown while it is written"),
    "toolset": (
        lambda agent: bool(agent._dynamic_toolsets),
        "function tools alone are taken; for MCP servers use [[agents.mcp]]",
    ),
    "on_event": (_differs("_event_hooks"), "events go to clients"),
    "instrument": (lambda agent: bool(agent.instrument), "the server has metrics and traces of its own"),
    "event_stream_handler": (lambda agent: agent.event_stream_handler is not None, "events go to clients"),
}
"""The same for methods that change an agent later."""

SETTINGS: Mapping[str, str] = {
    **dict.fromkeys(("max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"), ""),
    **dict.fromkeys(("logit_bias", "parallel_tool_calls", "stop_sequences", "extra_headers", "extra_body"), ""),
    "timeout": "use limits.first_output and limits.between_outputs",
    "request_timeout": "use limits.run",
    "first_event_timeout": "use limits.first_output",
    "max_retries": "use limits.retries",
    "tool_choice": "put the vendor's own into settings in the file",
    "thinking": "put reasoning_effort into settings in the file",
    "citations": "put the vendor's own into settings in the file",
    "cache": "put the vendor's own into settings in the file",
    "service_tier": "put the vendor's own into settings in the file",
}
"""Each common model setting: empty if it is supported, else the alternative."""

_OUR_PROVIDERS = {"openai": "openai-responses", "google-gla": "google", "google-cloud": "google-vertex"}


def read(table: Table, reference: str, agent: Any) -> Brought:
    if type(agent) is not Agent:
        table.fault(KEY, f"{reference} is a {type(agent).__name__}: its own methods would never run; name a plain Agent")
        return Brought(reference, model=f"{python.NAME}:{reference}")
    for name, (is_set, why) in _refusals().items():
        if is_set(agent):
            table.fault(KEY, f"{reference}: {name} cannot be taken: {why}")
    settings, headers = _settings(table, reference, agent)
    return Brought(
        reference=reference,
        name=agent._name,
        model=_model(table, reference, agent.model),
        description=_description(table, reference, agent),
        instructions=_instructions(agent),
        settings=settings,
        headers=headers,
        tools=python_agents.tools_of(table, reference, agent),
    )


def _refusals() -> dict[str, tuple[_Set, str]]:
    every = {**PARAMETERS, **{f"@{name}": how for name, how in REGISTERED.items()}}
    # The decorator has the same effect as the parameter.
    del every["@toolset"]
    return {name: how for name, how in every.items() if not isinstance(how, str)}


def _model(table: Table, reference: str, model: Any) -> str | None:
    if model is None:
        return None
    if not isinstance(model, str):
        # A model object has its own client, address and settings, which its author wants to be used.
        return f"{python.NAME}:{reference}"
    vendor, colon, name = model.partition(":")
    ours = _OUR_PROVIDERS.get(vendor, vendor)
    if not colon or ours not in providers.NAMES:
        known = ", ".join(providers.NAMES)
        table.fault(KEY, f"{reference}: the model {model!r} is of no provider here ({known}); a model object is used as it is")
    return f"{ours}:{name}"


def _description(table: Table, reference: str, agent: Any) -> str | None:
    description = agent._description
    if description is None or isinstance(description, str):
        return description
    table.fault(KEY, f"{reference}: description cannot be taken: it is a template; write the text")
    return None


def _instructions(agent: Any) -> str | None:
    texts = [*agent._system_prompts]
    texts += [each for each in (_text(sourced.instruction) for sourced in agent._instructions) if each]
    for toolset in agent_tools.function_toolsets(agent):
        texts += [each for each in map(_text, toolset._instructions) if each]
    return "\n\n".join(text for text in texts if text.strip()) or None


def _text(instruction: Any) -> str:
    if isinstance(instruction, InstructionPart):
        return instruction.content
    return instruction if isinstance(instruction, str) else ""


def _settings(table: Table, reference: str, agent: Any) -> tuple[dict[str, Any], dict[str, str]]:
    given = agent.model_settings
    if given is None:
        return {}, {}
    if not isinstance(given, Mapping):
        table.fault(KEY, f"{reference}: model_settings cannot be taken: they are a function; write the values")
        return {}, {}
    settings = dict(given)
    for name, value in list(settings.items()):
        why = SETTINGS.get(name, "put the vendor's own into settings in the file")
        if why or not _is_json(value):
            table.fault(KEY, f"{reference}: the model setting {name} cannot be taken: {why or 'its value is not JSON'}")
            del settings[name]
    headers: dict[str, str] = {}
    if isinstance(agent.model, str):
        headers = settings.pop("extra_headers", {})
        # Native providers use the vendor's names and pass unknown settings on unchanged.
        settings |= settings.pop("extra_body", {})
        if "stop_sequences" in settings:
            settings["stop"] = settings.pop("stop_sequences")
    return settings, headers


def _is_json(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(item) for name, item in value.items())
    if isinstance(value, list):
        return all(_is_json(item) for item in value)
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
