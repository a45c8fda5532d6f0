"""The operator's rules of access in workspaces: guards of trees, and what clients were granted.

An agent's rules are in its definition, those of the server after its own. A client is subject to the rules of the agents with
sessions in the workspace, the strictest counts, or to the server's own rules if there is no such session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from agents_app import registry
from agents_app.access_rules import AccessRule, Decision, Operation, Policy, strictest
from sessions_app.core.base.caller import WRITE, Caller
from sessions_app.core.base.errors import AccessDenied, AccessNeeded
from sessions_app.core.workspaces import places
from sessions_app.core.workspaces.places import Place
from sessions_app.models import Session
from sessions_app.workspace import paths
from sessions_app.workspace.errors import Refused
from sessions_app.workspace.paths import Path

log = logging.getLogger(__name__)

MOST_GRANTS = 1_000
"""Of one connection; the oldest are dropped, and the client has to ask for them again."""


class GrantMissing(Refused):
    """A rule wants the client to ask for access to ``uri`` first."""

    def __init__(self, path: Path, uri: str, operations: Sequence[Operation]) -> None:
        super().__init__(path)
        self.uri, self.operations = uri, operations


class Guard:
    """Lets an operation use the paths of a tree that every policy allows (``sessions_app.workspace.guarding.Guard``).

    ``root``: of the workspace. ``granted``: whether a path in it may be used although a rule says ``ask``.
    """

    def __init__(
        self,
        policies: Sequence[Policy],
        operations: Collection[Operation],
        root: Path,
        granted: Callable[[Operation, Path], bool],
    ) -> None:
        self._policies, self._operations, self._root, self._granted = policies, operations, root, granted

    def check(self, path: Path) -> None:
        decisions = {each: _decided(self._policies, each, path) for each in self._operations}
        if "deny" in decisions.values():
            raise Refused(None)
        missing = [each for each, decision in decisions.items() if decision == "ask" and not self._granted(each, path)]
        if missing:
            raise GrantMissing(path, paths.uri_of(self._root + path), missing)

    def hides(self, path: Path) -> bool:
        return _decided(self._policies, "read", path) == "deny"


def _decided(policies: Sequence[Policy], operation: Operation, path: Path) -> Decision:
    return strictest(policy.decide(operation, path) for policy in policies)


class Grants:
    """What a client was granted: it ends with the client's connection, and no other connection has it."""

    def __init__(self) -> None:
        self._granted: dict[tuple[Operation, Path], None] = {}

    def add(self, operation: Operation, path: Path) -> None:
        """``path``: from the root of all URIs. What is below it is granted too."""
        self._granted[operation, path] = self._granted.pop((operation, path), None)
        while len(self._granted) > MOST_GRANTS:
            del self._granted[next(iter(self._granted))]

    def cover(self, operation: Operation, path: Path) -> bool:
        return any((operation, path[:end]) in self._granted for end in range(len(path), 0, -1))


def guard_of(caller: Caller, place: Place, grants: Grants | None, *operations: Operation) -> Guard | None:
    """The guard of a client's operation in the workspace of the place; None: no rule restricts clients there."""
    policies = _policies(caller, place)
    if not policies:
        return None
    held = grants or Grants()
    return Guard(policies, operations, place.root, lambda operation, path: held.cover(operation, place.root + path))


def require(guard: Guard | None, path: Path) -> None:
    """Check the path as it was requested, before the disk is used: the answer is the same whatever exists there."""
    if guard is not None:
        guard.check(path)


def refusal(refused: Refused) -> AccessDenied | AccessNeeded:
    """The core's error. It names the real path, so that a client that came through a link can ask for that."""
    return AccessNeeded(refused.uri, refused.operations) if isinstance(refused, GrantMissing) else AccessDenied()


def grant(caller: Caller, place: Place, grants: Grants, operations: Collection[Operation]) -> None:
    """Answer a client's request for access: AccessDenied, or it is granted now if a rule says ``ask`` (R337)."""
    if "write" in operations:
        caller.require(WRITE)
    policies = _policies(caller, place)
    decisions = {each: _decided(policies, each, place.path) for each in operations}
    if "deny" in decisions.values():
        raise AccessDenied
    for operation, decision in decisions.items():
        if decision == "ask":
            grants.add(operation, place.root + place.path)
            # Not the path: it is content of the tenant.
            log.info("file_access_granted operation=%s tenant=%d key=%s", operation, caller.tenant, caller.key_prefix)


def require_programs(caller: Caller, place: Place) -> None:
    """AccessDenied if clients may not run programs in this directory: a shell reads and writes all of the workspace."""
    if _decided(_policies(caller, place), "run", place.path) != "allow":
        raise AccessDenied


def restrict_clients() -> bool:
    """Whether any rule of the server or of an agent keeps clients from a file."""
    rules = {registry.server_access(), *(spec.access for spec in registry.described().values())}
    return any(Policy(each, "client").restricts for each in rules)


def _policies(caller: Caller, place: Place) -> list[Policy]:
    """The policies for clients in a workspace, without those that restrict nothing."""
    described = registry.described()
    of_server = registry.server_access()
    rules: dict[tuple[AccessRule, ...], None] = {of_server: None}
    if any(spec.access != of_server for spec in described.values()):
        names = _agents_in(caller, place)
        rules = {described[name].access: None for name in names if name in described} or rules
    return [policy for each in rules if (policy := Policy(each, "client")).restricts]


def _agents_in(caller: Caller, place: Place) -> list[str]:
    if place.workspace is not None:
        rows = Session.objects.filter(tenant_id=caller.tenant, workspace_id=place.workspace)
        return sorted(set(rows.values_list("agent_name", flat=True).distinct()))
    session = places.session_without_workspace(caller, place.root)
    return [] if session is None else [session.agent_name]
