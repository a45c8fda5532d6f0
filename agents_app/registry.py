"""The agents that this process serves, in the operator's order: loaded once, and again by ``reload``.

Their tools include those of their MCP servers that are known so far (agents_app.mcp.catalogue). The same objects are
returned until a server's list changes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from django.conf import settings

from agents_app import loader, object_references, tool_lists
from agents_app.access_rules import AccessRule
from agents_app.mcp import listing
from agents_app.mcp.catalogue import catalogue
from agents_app.mcp.listing import Listed
from agents_app.providers import credentials
from agents_app.spec import AgentSpec

BUILTIN_FILE = Path(__file__).with_name("builtin_agents.toml")

log = logging.getLogger(__name__)

_lock = threading.Lock()
_reloading = threading.Lock()
_agents: Mapping[str, AgentSpec] | None = None
_server_access: tuple[AccessRule, ...] = ()
_merged: dict[str, tuple[AgentSpec, Mapping[str, Sequence[Listed]], AgentSpec]] = {}
"""By the agent's name: its description, the lists of its servers, and the agent merged from both."""
_all: Mapping[str, AgentSpec] = MappingProxyType({})


def described() -> Mapping[str, AgentSpec]:
    """All agents by name, as the file describes them. The first call reads it and may raise ``AgentsFileError``."""
    global _agents, _server_access
    found = _agents
    if found is None:
        with _lock:
            if _agents is None:
                specs, _server_access = _load()
                _agents = _by_name(specs)
            found = _agents
    return found


def reload() -> list[str]:
    """Read the agents file and the Python code beside it again, and serve what they describe now.

    Returns the names of the agents whose descriptions have changed. If the file or the code has a fault, it raises as the first
    call of ``described`` does, and everything stays as it was. A turn that is running keeps its agent.
    """
    global _agents, _server_access
    with _reloading:
        with object_references.imported_anew():
            specs, access = _load()
        read = _by_name(specs)
        before: Mapping[str, AgentSpec] = _agents or {}
        # The same object for the same description, on which caches rely.
        made = {name: before[name] if before.get(name) == spec else spec for name, spec in read.items()}
        changed = [name for name in {**before, **made} if before.get(name) is not made.get(name)]
        with _lock:
            _agents, _server_access = MappingProxyType(made), access
        if any(spec.mcp for spec in made.values()):
            look_ahead()
    return changed


def files() -> list[Path]:
    """The files whose change changes the agents: the agents file, and the modules beside it that are in use."""
    path: Path | None = getattr(settings, "AGENTHOST_AGENTS_FILE", None)
    return [] if path is None else [Path(path), *object_references.loaded_files()]


def agents() -> Mapping[str, AgentSpec]:
    """All agents by name, with the tools of their MCP servers. May raise as ``described`` does.

    The first call waits briefly for servers that are being asked, except in an event loop; later calls never wait.
    """
    global _all
    known = described()
    if not any(spec.mcp for spec in known.values()):
        return known
    made = {name: _with_servers(spec, known.values()) for name, spec in known.items()}
    with _lock:
        if _all.keys() != made.keys() or any(_all[name] is not made[name] for name in made):
            _all = MappingProxyType(made)
        return _all


def find(name: str) -> AgentSpec | None:
    """The agent of that name, if there is one; otherwise like ``agents``."""
    known = described()
    spec = known.get(name)
    return spec if spec is None or not spec.mcp else _with_servers(spec, known.values())


def server_access() -> tuple[AccessRule, ...]:
    """The rules of access for all workspaces, those that no agent has too. May raise as ``described`` does."""
    described()
    return _server_access


def look_ahead() -> None:
    """Start listing the tools of all MCP servers. Called when a process starts, so that no request waits later."""
    catalogue.watch(described().values())


def _with_servers(spec: AgentSpec, known: Iterable[AgentSpec]) -> AgentSpec:
    if not spec.mcp:
        return spec
    # All agents, so that the first wait is the only one.
    catalogue.watch(known)
    lists = catalogue.lists(spec, wait=not _in_a_loop())
    with _lock:
        made = _merged.get(spec.name)
        if made is None or made[0] is not spec or not _same(made[1], lists):
            made = _merged[spec.name] = (spec, lists, replace(spec, tools=(*spec.tools, *listing.tools(spec, lists))))
            _log_left_out(spec, lists)
    return made[2]


def _log_left_out(spec: AgentSpec, lists: Mapping[str, Sequence[Listed]]) -> None:
    for server, count in listing.left_out(spec, lists).items():
        log.warning(
            "agent %s: %d tools of the MCP server %s are left out: an agent takes %d of a server, and %d bytes of tools"
            " (AGENTHOST_TOOL_LIST_BYTES)",
            spec.name,
            count,
            server,
            listing.MOST_TOOLS,
            tool_lists.most_bytes(),
        )


def servers_cut() -> int:
    """The number of agents' MCP servers with tools that are left out because of a limit."""
    described = list(_merged.values())
    return sum(len(catalogue.cut(spec) | listing.left_out(spec, lists).keys()) for spec, lists, _ in described)


def _same(before: Mapping[str, Sequence[Listed]], now: Mapping[str, Sequence[Listed]]) -> bool:
    return before.keys() == now.keys() and all(before[name] is now[name] for name in now)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def use(specs: Iterable[AgentSpec], access: Sequence[AccessRule] = ()) -> Iterator[None]:
    """For tests: serve these agents in every thread until the block ends. ``access``: the rules of the server."""
    global _agents, _server_access
    before = _agents, _server_access
    _agents, _server_access = _by_name(specs), tuple(access)
    try:
        yield
    finally:
        _agents, _server_access = before


def _load() -> tuple[list[AgentSpec], tuple[AccessRule, ...]]:
    path: Path | None = getattr(settings, "AGENTHOST_AGENTS_FILE", None)
    if path is not None:
        return loader.load(Path(path)), loader.server_access(Path(path))
    # The agent that needs a key is served only with one: without it every turn would fail.
    return [spec for spec in loader.load(BUILTIN_FILE) if _can_run(spec)], ()


def _can_run(spec: AgentSpec) -> bool:
    provider = spec.model.partition(":")[0]
    return provider == "demo" or credentials.default(provider) is not None


def _by_name(specs: Iterable[AgentSpec]) -> Mapping[str, AgentSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})
