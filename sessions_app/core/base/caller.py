"""The authenticated caller: a tenant's key, its scopes and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessions_app.core.base.errors import ScopeMissing

READ = "sessions:read"
WRITE = "sessions:write"
SCOPES = ("meta:read", READ, WRITE, "*")
"""Each scope means the same in AAP and AHP."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a tenant or key; None means no limit."""

    turns_at_once: int | None = None
    turns_per_minute: int | None = None
    tokens_per_day: int | None = None
    sessions: int | None = None
    stored_bytes: int | None = None
    request_bytes: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Caller:
    """The result of authentication; core functions that act for a client take one.

    ``agents``: the agents that both tenant and key allow; None: all agents of the server. ``key_agents``: the agents that the
    key alone allows, which never changes. ``line``: the first key of a chain of rotations; usage is counted for the whole
    chain.
    """

    tenant: int
    key: int
    key_prefix: str
    scopes: frozenset[str]
    agents: frozenset[str] | None = None
    tenant_limits: Limits = NO_LIMITS
    key_limits: Limits = NO_LIMITS
    key_agents: frozenset[str] | None = None
    line: int = 0

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "*" in self.scopes

    def require(self, scope: str) -> None:
        if not self.may(scope):
            raise ScopeMissing(scope)

    def may_see(self, agent: str) -> bool:
        """Whether the key sees sessions of this agent.

        When an agent is withdrawn from the whole tenant, its old sessions can still be read.
        """
        return self.key_agents is None or agent in self.key_agents

    def may_use(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


def allowed_by_both(first: Iterable[str] | None, second: Iterable[str] | None) -> frozenset[str] | None:
    """The intersection of two lists of allowed agents; None allows all."""
    if first is None:
        return None if second is None else frozenset(second)
    return frozenset(first) if second is None else frozenset(first) & frozenset(second)
