"""Imports what the agents of a process will use, before it serves.

The first turn then imports nothing, and processes that are forked afterwards share the memory. Opens no connection.
"""

from __future__ import annotations

import importlib

from agents_app import providers, registry
from agents_app.loader import checks
from agents_app.spec import AgentSpec

_MCP_CLIENT = "agents_app.mcp.connection"
_FETCHING = "agents_app.outbound.connector"


def load(*, runs: bool) -> None:
    """Import the libraries of this process's agents. ``runs``: the process runs turns; others only describe agents."""
    specs = registry.described().values()
    if any(spec.mcp for spec in specs):
        # Every process lists the tools of MCP servers.
        importlib.import_module(_MCP_CLIENT)
    if not runs:
        return
    for spec in specs:
        for model in _models(spec):
            providers.find(model.partition(":")[0])
        if any(tool.source == "builtin:fetch_url" for tool in spec.tools):
            importlib.import_module(_FETCHING)


def _models(spec: AgentSpec) -> set[str]:
    return {model for template in (spec.model, spec.summary.model) if template for model in checks.fillings(spec, template)}
