"""Who asks: a tenant's key and what it may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sessions_app.core.base.errors import ScopeMissing

READ = "sessions:read"
WRITE = "sessions:write"
SCOPES = ("meta:read", READ, WRITE, "*")
"""A scope is a right, never a protocol: each holds in AAP and AHP alike."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be used; None: as much as there is."""

    turns_at_once: int | None = None
    turns_per_minute: int | None = None
    tokens_per_day: int | None = None
    sessions: int | None = None
    stored_bytes: int | None = None
    request_bytes: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Caller:
    """The outcome of authentication; every core function that acts for somebody takes one.

    ``agents`` None: every agent of the server; else the names this key may use (key and tenant both). ``key_agents`` is
    what the key alone says of them, which never changes. ``line``: the first of the keys that were rotated one into the
    next up to this one; what a key uses is counted for all of its line.
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
        """Whether sessions of this agent exist for the key.

        An agent that is taken from the whole tenant is another matter: what was said with it can still be read.
        """
        return self.key_agents is None or agent in self.key_agents

    def may_use(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


def allowed_by_both(first: Iterable[str] | None, second: Iterable[str] | None) -> frozenset[str] | None:
    """The agents that two lists allow together; None allows all."""
    if first is None:
        return None if second is None else frozenset(second)
    return frozenset(first) if second is None else frozenset(first) & frozenset(second)
