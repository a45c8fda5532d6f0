"""Checks agents, provider keys and MCP servers."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from agenthost.doctor.findings import Finding, fail, ok, warning
from agents_app import agent_report, installation, model_check, providers, registry
from agents_app.errors import AgentError, AgentsFileError
from agents_app.mcp import doctor as mcp_doctor
from agents_app.mcp import programs
from agents_app.spec import AgentSpec

_MOST_NAMES = 10
_CORRECT = f"Correct the file or install the missing extra, then run: {installation.manage('check_agents FILE')}"


def check(*, connect: bool) -> Iterator[Finding]:
    try:
        specs = list(registry.described().values())
    except AgentsFileError as error:
        for fault in error.faults:
            yield fail("agents", f"{error.path}: {fault}.", _CORRECT)
        return
    except AgentError as error:
        yield fail("agents", f"{error}.", "Correct AGENTHOST_AGENTS_FILE.")
        return
    yield from check_agents(specs)
    yield from check_providers(specs, connect=connect)
    yield from check_mcp_servers(specs, connect=connect)


def check_agents(specs: list[AgentSpec]) -> Iterator[Finding]:
    names = ", ".join(spec.name for spec in specs[:_MOST_NAMES]) + (", …" if len(specs) > _MOST_NAMES else "")
    yield ok("agents", f"{settings.AGENTHOST_AGENTS_FILE or 'built in'}: {names}")
    for spec in specs if settings.AGENTHOST_AGENTS_FILE else ():
        # Provider keys are checked separately.
        for line in agent_report.warnings(spec, providers.NAMES):
            yield warning("agents", f"{spec.name}: {line}.", "")


def check_providers(specs: list[AgentSpec], *, connect: bool) -> Iterator[Finding]:
    for result in model_check.look(specs) if connect else model_check.keys(specs):
        detail = f"{result.agent}: {result.words}"
        if result.usable:
            yield ok("provider", detail)
        elif result.missing:
            yield fail("provider", f"{detail}.", f"Set {result.missing}, or api_key in the agents file.")
        else:
            yield fail("provider", f"{detail}.", "Check the key, the model's name, base_url, and this machine's network access.")


def check_mcp_servers(specs: list[AgentSpec], *, connect: bool) -> Iterator[Finding]:
    named = [f"{spec.name}/{server.name}" for spec in specs for server in spec.mcp]
    if not named:
        return
    if any(server.program is not None for spec in specs for server in spec.mcp) and (why := programs.fault()) is not None:
        fix = "See docs/mcp.md, servers that are started as programs."
        yield warning("mcp", f"no MCP server is started as a program: {why}.", fix)
    if not connect:
        yield ok("mcp", f"{len(named)} servers, not contacted (use --connect): {', '.join(named[:_MOST_NAMES])}")
        return
    for result in mcp_doctor.look(specs):
        detail = f"{result.agent}/{result.server}: {result.words}"
        fix = "Start the server, or correct its settings in the agents file."
        yield ok("mcp", detail) if result.usable else fail("mcp", f"{detail}.", fix)
