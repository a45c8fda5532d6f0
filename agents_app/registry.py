"""The agents this process serves: loaded once, in the operator's order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from django.conf import settings

from agents_app import loader
from agents_app.providers import credentials
from agents_app.spec import AgentSpec

BUILTIN_FILE = Path(__file__).with_name("builtin_agents.toml")

_lock = threading.Lock()
_agents: Mapping[str, AgentSpec] | None = None


def agents() -> Mapping[str, AgentSpec]:
    """All agents by name. The first call reads the file and may raise ``AgentsFileError``."""
    global _agents
    found = _agents
    if found is None:
        with _lock:
            if _agents is None:
                _agents = _by_name(_load())
            found = _agents
    return found


def find(name: str) -> AgentSpec | None:
    """The agent of that name, if there is one now."""
    return agents().get(name)


@contextmanager
def use(specs: Iterable[AgentSpec]) -> Iterator[None]:
    """For tests: serve these agents, in every thread, until the block ends."""
    global _agents
    before, _agents = _agents, _by_name(specs)
    try:
        yield
    finally:
        _agents = before


def _load() -> list[AgentSpec]:
    path: Path | None = getattr(settings, "AGENTHOST_AGENTS_FILE", None)
    if path is not None:
        return loader.load(Path(path))
    # An agent without a provider's key could only fail: the one that needs a key is there only with it.
    return [spec for spec in loader.load(BUILTIN_FILE) if _can_run(spec)]


def _can_run(spec: AgentSpec) -> bool:
    provider = spec.model.partition(":")[0]
    return provider == "demo" or credentials.default(provider) is not None


def _by_name(specs: Iterable[AgentSpec]) -> Mapping[str, AgentSpec]:
    return MappingProxyType({spec.name: spec for spec in specs})
