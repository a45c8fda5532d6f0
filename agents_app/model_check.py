"""Checks that agents can reach their models: there is a key, and the provider answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace

from agents_app import agent_report, options
from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool
from agents_app.providers import credentials
from agents_app.runtime.assemble import assemble
from agents_app.runtime.interface import ModelRequest
from agents_app.runtime.loop import Plan
from agents_app.runtime.messages import Message
from agents_app.spec import AgentSpec

ANSWER_WITHIN_SECONDS = 30.0
_AT_ONCE = 8
_WITHOUT_PROVIDER = ("demo", "python")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one agent. ``usable`` False: its turns would fail."""

    agent: str
    words: str
    usable: bool
    missing: str = ""
    """The environment variables of which one is needed, if there is no key."""


def keys(specs: Iterable[AgentSpec]) -> list[Finding]:
    """Whether each agent has a key, without a request."""
    return [_key(spec) for spec in specs]


def look(specs: Iterable[AgentSpec]) -> list[Finding]:
    """Request the start of an answer from each model, concurrently, with the options' defaults.

    Each is a real call of a few tokens: a list of models would not show that this key may use this model.
    """
    return asyncio.run(_look(list(specs)))


def _key(spec: AgentSpec) -> Finding:
    provider = spec.model.partition(":")[0]
    if provider in _WITHOUT_PROVIDER:
        return Finding(spec.name, f"{provider}: needs no key here", usable=True)
    if wanted := _own_secrets(spec):
        return Finding(spec.name, f"{provider}: needs each session's own {', '.join(wanted)}", usable=True)
    if spec.api_key:
        return Finding(spec.name, f"{provider}: a key in the agents file", usable=True)
    known = [provider] if credentials.default(provider) is not None else []
    if missing := agent_report.lacks_key(spec, known):
        return Finding(spec.name, f"{provider}: no key", usable=False, missing=missing)
    return Finding(spec.name, f"{provider}: a key in the environment" if known else f"{provider}: no key needed", usable=True)


def _own_secrets(spec: AgentSpec) -> list[str]:
    return options.unset_secrets(spec, [spec.api_key or "", spec.base_url or "", *spec.headers.values()])


async def _look(specs: list[AgentSpec]) -> list[Finding]:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(spec: AgentSpec) -> Finding:
        async with slots:
            return await _ask(spec)

    return await asyncio.gather(*(one(spec) for spec in specs))


async def _ask(spec: AgentSpec) -> Finding:
    known = _key(spec)
    if not known.usable or _own_secrets(spec) or spec.model.partition(":")[0] in _WITHOUT_PROVIDER:
        return known
    try:
        found = assemble(spec, {}, frozenset(), FairPool(1), None, [])
        async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
            await _first_output(found)
    except TimeoutError:
        return Finding(spec.name, f"{_model(spec)}: no answer within {ANSWER_WITHIN_SECONDS:g} s", usable=False)
    except ProviderError as error:
        return Finding(spec.name, f"{_model(spec)}: {error}", usable=False)
    return Finding(spec.name, f"{found.full_model}: answers", usable=True)


def _model(spec: AgentSpec) -> str:
    return options.fill(spec.model, options.effective(spec, {}))


async def _first_output(plan: Plan) -> None:
    request = ModelRequest(
        model=plan.model,
        instructions="",
        messages=[Message("user", "Hello")],
        settings=plan.settings,
        api_key=plan.api_key,
        base_url=plan.base_url,
        headers=plan.headers,
        limits=replace(plan.limits, retries=0),
        full_model=plan.full_model,
    )
    async with aclosing(plan.provider.stream(request)) as stream:  # type: ignore[type-var]  # providers are async generators
        async for _ in stream:
            return
    raise ProviderError("broken_stream", "the stream ended before any output")
