"""The operator's rules of access for the tools of a session's agent (``agents_app.runtime.interface.Access``).

A call is checked twice: its path, as the model wrote it, before a client is asked and before it runs; and every file that it
opens, at its real place (``agent_files``). What a client has permitted is one path: a link at this path that leads to another
path for which a rule says ``ask`` or ``deny`` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F

from agents_app import exact_json
from agents_app.access_rules import Decision, Policy, strictest
from agents_app.errors import ToolFailed
from agents_app.spec import AgentSpec
from agents_app.tools.files import naming
from agents_app.tools.files.host import Path
from agents_app.tools.files.uses import Use, permitted_path, use_of
from sessions_app.core.base.errors import DomainError
from sessions_app.core.turns import call_options
from sessions_app.core.workspaces import directories, threads
from sessions_app.core.workspaces.places import Place
from sessions_app.models import CallState, Session, ToolCall

_DENIED = "the operator's rules of access do not permit this: {given}"
_NOT_ASKED = "the operator's rules of access want the user to be asked first: {given}; call the tool again"
_MOST_REMEMBERED = 200
"""Calls with a permission for the session that are looked at, the last ones."""


class SessionAccess:
    """The rules of one agent in the workspace of one session, for one run."""

    def __init__(self, session: Session, spec: AgentSpec, policy: Policy) -> None:
        self._session, self._spec, self._policy = session, spec, policy

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        use = use_of(self._spec, tool)
        if use is None:
            return False
        decision, path = await self._decided(use, arguments)
        return decision == "ask" and not await self._remembers(tool, use, path)

    async def admit(self, tool: str, arguments: Mapping[str, Any], *, permitted: bool) -> None:
        use = use_of(self._spec, tool)
        if use is None:
            return
        decision, path = await self._decided(use, arguments)
        if decision == "deny":
            raise ToolFailed(_DENIED.format(given=use.path(arguments)))
        if decision != "ask":
            return
        if not permitted and not await self._remembers(tool, use, path):
            raise ToolFailed(_NOT_ASKED.format(given=use.path(arguments)))
        permitted_path.set(path)

    async def _decided(self, use: Use, arguments: Mapping[str, Any]) -> tuple[Decision, Path]:
        """The decision, and the path in the workspace. What is outside of it, or cannot be found, is left to the tool."""
        place = await self._place()
        path = None if place is None else _inside(place, use.path(arguments))
        if path is None:
            return "allow", ()
        return strictest(self._policy.decide(operation, path) for operation in use.operations), path

    async def _place(self) -> Place | None:
        try:
            return await threads.run(self._session.tenant_id, directories.of_session, self._session)
        except DomainError:
            # The tool reports it.
            return None

    async def _remembers(self, tool: str, use: Use, path: Path) -> bool:
        """Whether a client has permitted the tool to use this path for as long as the session exists (R166)."""
        place = await self._place()
        if place is None:
            return False
        earlier = await threads.run(self._session.tenant_id, _permitted_calls, self._session.pk, tool)
        return any(_inside(place, use.path(_arguments(text))) == path for text in earlier)


def _inside(place: Place, given: str) -> Path | None:
    """The path in the workspace; None if it is outside, or is no path."""
    try:
        path = naming.resolve(place.root + place.path, given)
    except ToolFailed:
        return None
    return path[len(place.root) :] if path[: len(place.root)] == place.root else None


def _permitted_calls(session: int, tool: str) -> list[str]:
    """The arguments of the session's calls of a tool that were permitted for the whole session."""
    # A fork has copies of its source's calls, but not what was permitted there.
    own = ToolCall.objects.filter(session_id=session, decided_at__gte=F("session__created_at"))
    rows = own.filter(name=tool, option=call_options.SESSION).exclude(state=CallState.DENIED)
    return list(rows.order_by("-pk").values_list("arguments", flat=True)[:_MOST_REMEMBERED])


def _arguments(text: str) -> Mapping[str, Any]:
    value = exact_json.loads(text.strip() or "{}")
    return value if isinstance(value, dict) else {}
