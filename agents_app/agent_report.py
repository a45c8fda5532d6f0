"""Describes an agent in a few lines for its author, with warnings. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from agents_app import options, queue_names
from agents_app.access_rules import AccessRule, Policy
from agents_app.providers import KEY_VARIABLES
from agents_app.spec import AgentSpec, OptionSpec, ProgramSpec, ToolSpec

KEY_OPTIONAL = ("ollama", "vllm", "litellm", "bedrock")
"""Providers whose key is optional: on the operator's own machines, or with other credentials."""


def lines(agent: AgentSpec, *, whole_addresses: bool = True) -> Iterator[tuple[str, str]]:
    """(name, description) of each main property of the agent. ``whole_addresses`` False: only the host of its own address."""
    if agent.python:
        yield "python", agent.python
    place = (agent.base_url or "") if whole_addresses or not agent.base_url else _host(agent.base_url)
    yield "model", agent.model + (f" at {place}" if place else "")
    for option in agent.options:
        yield "option", _option(option)
    for tool in agent.tools:
        yield "tool", _tool(tool)
    for server in agent.mcp:
        # The path, query or arguments may contain a secret of the operator.
        place = f"at {_host(server.url)}" if server.program is None else _program(server.program)
        yield "mcp", f"{server.name} {place}" + ("" if server.expose else ", not shown to clients")
    if agent.client_tools:
        yield "tools", "clients may bring tools"
    if agent.images:
        yield "images", ", ".join(agent.images)
    if agent.context_tokens:
        yield "context", f"{agent.context_tokens:,} tokens, then older turns are {_COMPACTED[agent.compaction]}"
    if agent.template:
        yield "files", f"new workspaces begin with {agent.template}"
    if agent.network:
        yield "network", "commands may reach " + ("any public host" if agent.network == ("*",) else ", ".join(agent.network))
    if agent.queue != queue_names.DEFAULT:
        yield "queue", f"{agent.queue}: only workers that serve it run its turns"
    if agent.client_files:
        yield "files", "AHP clients are asked for attached files of their machines"
    for rule in agent.access:
        yield "access", _access(rule)
    for model, price in agent.prices.items():
        cached = "" if price.cache_read is None else f", {price.cache_read:g} from the cache"
        yield "price", f"{model}: {price.input:g} in, {price.output:g} out{cached}, a million tokens"


def _access(rule: AccessRule) -> str:
    subjects = f"{' and '.join(rule.applies_to)}: " if rule.applies_to != ("agent",) else ""
    return f"{subjects}{rule.decision} {' and '.join(rule.operations)} of {', '.join(rule.paths)}"


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _program(program: ProgramSpec) -> str:
    notes = [f"one process per {program.per}"]
    notes += [] if program.workspace == "none" else [f"may {program.workspace} the workspace"]
    notes += ["with network"] if program.network else []
    return f"by command {program.command[0]} ({', '.join(notes)})"


_COMPACTED = {"drop": "left out", "summarise": "summarised"}


def lacks_key(agent: AgentSpec, keys: Collection[str]) -> str:
    """The environment variables of which one should have a key, if the agent needs one and has none; else empty."""
    provider = agent.model.partition(":")[0]
    if provider in (*KEY_OPTIONAL, *keys) or agent.api_key or agent.base_url:
        return ""
    return " or ".join(KEY_VARIABLES.get(provider, ()))


def warnings(agent: AgentSpec, keys: Collection[str]) -> Iterator[str]:
    """Warnings for the author. ``keys``: the providers for which the operator's environment has a key."""
    provider = agent.model.partition(":")[0]
    if variables := lacks_key(agent, keys):
        yield f"there is no key for {provider}: neither api_key here nor {variables} in the environment of this command"
    if agent.compaction == "summarise" and not agent.context_tokens:
        yield "nothing is ever summarised: context_tokens is not set"
    elif not agent.context_tokens and provider not in ("demo", "python"):
        yield "context_tokens is not set: a conversation that outgrows the model's own limit ends with max_tokens"
    for tool in agent.tools:
        if not tool.description.strip():
            yield f"the tool {tool.name} has no description: a model can only guess what it is for"
    if (programs := _programs(agent)) and Policy(agent.access, "agent").decide("run", ()) == "ask":
        yield f"{', '.join(programs)}: programs open every file of a workspace, whatever the rules of access; each call asks"
    used = {name for text in _texts(agent) for name in options.places(text, {each.name: each for each in agent.options})}
    for option in agent.options:
        # A class of Agenthost's own interface receives every option.
        if option.name not in used and provider != "python":
            yield f"the option {option.name} is used nowhere: write {{{option.name}}} where its value belongs"


def _option(option: OptionSpec) -> str:
    if option.type == "select":
        return f"{option.name}: one of {', '.join(option.options)}; at first {option.default}"
    if option.type == "secret":
        return f"{option.name}: a secret" + ("; with a default" if option.default else "")
    return f"{option.name}: text" + (f"; at first {option.default!r}" if option.default else "")


def _tool(tool: ToolSpec) -> str:
    source = tool.source.partition(":")[2] if tool.source.startswith(("python:", "agent:")) else tool.source.replace(":", " ", 1)
    notes = [f"{tool.timeout:g} s" if tool.timeout else "", "may be run again" if tool.idempotent else ""]
    notes += ["" if tool.expose else "not shown to clients", "its result is confirmed" if tool.confirm_result else ""]
    return f"{tool.name} ({', '.join([source, *filter(None, notes)])})"


def _programs(agent: AgentSpec) -> list[str]:
    """The tools and servers that run programs in the workspace."""
    servers = [each.name for each in agent.mcp if each.program is not None and each.program.workspace != "none"]
    return [tool.name for tool in agent.tools if tool.source == "builtin:run_command"] + servers


def _texts(agent: AgentSpec) -> Iterator[str]:
    summary = agent.summary
    yield from (agent.model, agent.instructions, agent.api_key or "", agent.base_url or "", *agent.headers.values())
    yield from (summary.model or "", summary.api_key or "", summary.base_url or "", *summary.headers.values())
    for server in agent.mcp:
        yield from (server.url, *server.headers.values(), *(server.program.env.values() if server.program is not None else ()))
    yield from _strings(agent.settings)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
