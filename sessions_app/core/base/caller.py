"""The authenticated caller: a tenant's key, its scopes and its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sessions_app.core.base.errors import ScopeMissing, TokenLimited

READ = "sessions:read"
WRITE = "sessions:write"
WEBHOOKS = "webhooks"
KEYS = "keys"
USE = "use"
MEMBERS = "members"
EXPORT = "export"
AUDIT = "audit"
SCOPES = ("meta:read", READ, WRITE, WEBHOOKS, KEYS, USE, MEMBERS, EXPORT, AUDIT, "*")
"""Each scope means the same in AAP and AHP."""
OF_OWNERS = frozenset({MEMBERS, AUDIT})
"""Not in ``*``: whoever may make keys, which are developers too, must not become an owner by one."""


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
class Sight:
    """What a caller sees of its tenant's sessions and terminals.

    ``agents``: of these agents only; None: of all. ``line``: the key line whose terminals a caller that is limited to agents
    sees as well. ``session``: the row of the only session; its terminals are those that it has.
    """

    agents: frozenset[str] | None = None
    line: int = 0
    session: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the caller sees everything of its tenant."""
        return self.agents is None and self.session is None

    def may_see(self, agent: str, session: int) -> bool:
        return (self.agents is None or agent in self.agents) and (self.session is None or session == self.session)

    def may_see_terminal(self, agent: str, line: int, session: int | None) -> bool:
        """``agent`` and ``session``: of the session that has the terminal; ``line``: of the key that created it."""
        if self.session is not None:
            return session == self.session
        return self.agents is None or line == self.line or (agent != "" and agent in self.agents)


EVERYTHING = Sight()


@dataclass(frozen=True, slots=True)
class Caller:
    """The result of authentication; core functions that act for a client take one.

    ``agents``: the agents that both tenant and key allow; None: all agents of the server. ``key_agents``: the agents that the
    key alone allows, which never changes. ``line``: the first key of a chain of rotations; usage is counted for the whole
    chain. ``token``: the row of the short-lived token with which the caller came; 0: with the key itself. ``session``: the row of
    the only session that the token is for. ``origin``: the only web origin from which the token is accepted; empty: any.
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
    token: int = 0
    session: int | None = None
    origin: str = ""

    @property
    def sight(self) -> Sight:
        if self.key_agents is None and self.session is None:
            return EVERYTHING
        return Sight(self.key_agents, self.line, self.session)

    def seeing_everything(self) -> Caller:
        """The same caller without limits on what it sees, to find out what exists in its tenant."""
        return replace(self, key_agents=None, session=None)

    def may(self, scope: str) -> bool:
        return scope in self.scopes or ("*" in self.scopes and scope not in OF_OWNERS)

    def require(self, scope: str) -> None:
        if not self.may(scope):
            raise ScopeMissing(scope)

    def require_whole_tenant(self, action: str) -> None:
        """TokenLimited for a token that is limited to one session. ``action``: what it may not do, for people."""
        if self.session is not None:
            raise TokenLimited(action)

    def may_see(self, agent: str, session: int) -> bool:
        """Whether the caller sees this session, which is of this agent.

        When an agent is withdrawn from the whole tenant, its old sessions can still be read.
        """
        return (self.key_agents is None or agent in self.key_agents) and (self.session is None or session == self.session)

    def may_use(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents


def allowed_by_both(first: Iterable[str] | None, second: Iterable[str] | None) -> frozenset[str] | None:
    """The intersection of two lists of allowed agents; None allows all."""
    if first is None:
        return None if second is None else frozenset(second)
    return frozenset(first) if second is None else frozenset(first) & frozenset(second)
