"""The agents, the keys of their providers, and their MCP servers."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from agenthost.doctor.findings import Finding, fail, ok, warning
from agents_app import model_check, outline, providers, registry
from agents_app.errors import AgentError, AgentsFileError
from agents_app.mcp import doctor as mcp_doctor
from agents_app.spec import AgentSpec

_SHOWN = 10


def look(*, connect: bool) -> Iterator[Finding]:
    try:
        specs = list(registry.described().values())
    except AgentsFileError as error:
        for fault in error.faults:
            yield fail("agents", f"{error.path}: {fault}.", "Correct the file, then: python manage.py check_agents FILE")
        return
    except AgentError as error:
        yield fail("agents", f"{error}.", "Correct AGENTHOST_AGENTS_FILE.")
        return
    yield from of_agents(specs)
    yield from of_providers(specs, connect=connect)
    yield from of_servers(specs, connect=connect)


def of_agents(specs: list[AgentSpec]) -> Iterator[Finding]:
    names = ", ".join(spec.name for spec in specs[:_SHOWN]) + (", …" if len(specs) > _SHOWN else "")
    yield ok("agents", f"{settings.AGENTHOST_AGENTS_FILE or 'built in'}: {names}")
    for spec in specs if settings.AGENTHOST_AGENTS_FILE else ():
        # Keys have a check of their own.
        for line in outline.warnings(spec, providers.NAMES):
            yield warning("agents", f"{spec.name}: {line}.", "")


def of_providers(specs: list[AgentSpec], *, connect: bool) -> Iterator[Finding]:
    for found in model_check.look(specs) if connect else model_check.keys(specs):
        detail = f"{found.agent}: {found.words}"
        if found.usable:
            yield ok("provider", detail)
        elif found.missing:
            yield fail("provider", f"{detail}.", f"Set {found.missing}, or api_key in the agents file.")
        else:
            yield fail("provider", f"{detail}.", "Check the key, the model's name, base_url, and the way out of this network.")


def of_servers(specs: list[AgentSpec], *, connect: bool) -> Iterator[Finding]:
    named = [f"{spec.name}/{server.name}" for spec in specs for server in spec.mcp]
    if not named:
        return
    if not connect:
        yield ok("mcp", f"{len(named)} servers, not asked (--connect does): {', '.join(named[:_SHOWN])}")
        return
    for found in mcp_doctor.look(specs):
        detail = f"{found.agent}/{found.server}: {found.words}"
        fix = "Start the server, or correct its table in the agents file."
        yield ok("mcp", detail) if found.usable else fail("mcp", f"{detail}.", fix)
