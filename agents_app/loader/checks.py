"""Checks of an agent across several values: templates, models, hosts and secrets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from agents_app import extras, options, providers
from agents_app.loader.table import CONTROL, Table
from agents_app.providers import python
from agents_app.runtime import summarising
from agents_app.spec import AgentSpec

# Limit of combinations of choices that are checked at the start; the others are checked when a turn runs.
MAX_COMBINATIONS = 1_000


def check(agent: AgentSpec, table: Table) -> None:
    """Record all faults across the values of an agent."""
    _check_templates(agent, table)
    _check_model(agent, table)
    _check_base_url(agent, table)
    _check_access(agent, table)
    _check_prices(agent, table)
    _check_summary(agent, table)


def _templates(agent: AgentSpec) -> Iterator[tuple[str, str]]:
    """(key, template) of all templates of the agent."""
    yield "model", agent.model
    yield "base_url", agent.base_url or ""
    yield "api_key", agent.api_key or ""
    yield "instructions", agent.instructions
    for value in agent.headers.values():
        yield "headers", value
    for text in _strings(agent.settings):
        yield "settings", text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _check_templates(agent: AgentSpec, table: Table) -> None:
    by_name = {option.name: option for option in agent.options}
    for key, template in _templates(agent):
        for name in options.places(template, by_name):
            option = by_name.get(name)
            if option is None:
                table.fault(key, f"there is no option {name} (for the plain text write {{{{{name}}}}})")
            elif option.type == "secret" and key not in ("api_key", "headers"):
                table.fault(key, f"the option {name} is a secret; secrets are allowed only in api_key and headers")
            elif option.type == "text" and key in ("model", "base_url"):
                table.fault(key, f"the option {name} is free text; only select options are allowed here")


def _check_summary(agent: AgentSpec, table: Table) -> None:
    """Apply the rules for models, hosts and secrets to the summary model."""
    if agent.compaction == "summarise" and agent.summary.model is None and python.is_agent(agent.model):
        table.fault("compaction", "an agent class with respond cannot summarise; set model in [agents.summary]")
    if not table.has("summary"):
        return
    if agent.compaction != "summarise":
        table.fault("summary", 'has no effect without compaction = "summarise"')
    summariser, own = summarising.described(agent), table.table("summary")
    _check_templates(summariser, own)
    if agent.summary.model is not None:
        if not agent.summary.model:
            own.fault("model", "must not be empty")
        _check_model(summariser, own)
    _check_base_url(summariser, own)


def _check_model(agent: AgentSpec, table: Table) -> None:
    if not agent.model:
        return
    seen: set[str] = set()
    for model in fillings(agent, agent.model):
        provider, colon, name = model.partition(":")
        if not colon:
            reason = f"{model!r} must be written as provider:model"
        elif provider not in providers.NAMES:
            reason = f"there is no provider {provider!r}; there are {', '.join(providers.NAMES)}"
        elif (missing := extras.missing_for_provider(provider)) is not None:
            reason = missing
        elif not name.strip() and provider != "demo":
            reason = f"{model!r} names no model"
        elif provider == python.NAME and name != agent.python and (fault := python.fault(name)) is not None:
            reason = fault
        elif provider in providers.ADDRESS_REQUIRED and agent.base_url is None:
            reason = f"{provider} has no default address; set base_url"
        else:
            continue
        if reason not in seen:
            table.fault("model", reason)
        seen.add(reason)


def _check_prices(agent: AgentSpec, table: Table) -> None:
    """Report prices of models that the agent cannot use: they are mistakes."""
    models = [model for template in (agent.model, agent.summary.model) if template for model in fillings(agent, template)]
    names = {name for model in models for name in (model, model.partition(":")[2])}
    if len(models) >= MAX_COMBINATIONS or agent.python is not None:
        return
    for model in agent.prices:
        if model not in names:
            table.fault(f'price."{model}"', f"the agent has no model with this name; it has {', '.join(models)}")


def _check_base_url(agent: AgentSpec, table: Table) -> None:
    if agent.base_url is None:
        return
    if any(not is_address(url) for url in fillings(agent, agent.base_url)):
        table.fault("base_url", "must be an http or https address without user, password or fragment")
    chosen = _placed(agent, agent.base_url)
    if not chosen:
        return
    if agent.api_key and not _placed(agent, agent.api_key):
        table.fault("api_key", f"the operator's key would be sent to a host that the client chooses ({', '.join(chosen)})")
    used = {name for key, template in _templates(agent) if key in ("api_key", "headers") for name in _placed(agent, template)}
    for option in agent.options:
        if option.type == "secret" and option.default and option.name in used:
            table.fault("base_url", f"the default of the secret {option.name} would be sent to a host that the client chooses")


def _check_access(agent: AgentSpec, table: Table) -> None:
    """Report access settings that have no effect."""
    if not agent.model.startswith(f"{python.NAME}:"):
        return
    for key, value in (("api_key", agent.api_key), ("base_url", agent.base_url), ("headers", agent.headers)):
        if value:
            table.fault(key, "the model is a Python object with its own credentials and address; this setting has no effect")


def _placed(agent: AgentSpec, template: str) -> list[str]:
    return options.places(template, {option.name: option for option in agent.options})


def is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if CONTROL.search(url) or " " in url or port == 0:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment


def fillings(agent: AgentSpec, template: str) -> Iterator[str]:
    """All texts that a template's selects can produce; empty if the template has another fault already."""
    by_name = {option.name: option for option in agent.options}
    names = options.places(template, by_name)
    if any(name not in by_name or by_name[name].type != "select" for name in names):
        return
    choices = itertools.product(*(by_name[name].options for name in names))
    for combination in itertools.islice(choices, MAX_COMBINATIONS):
        yield options.fill(template, dict(zip(names, combination, strict=True)))
