"""A session's settings for its runs: enabled and trusted server tools, client tools, options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json
from agents_app import options as agent_options
from agents_app.runtime.messages import ToolSchema
from agents_app.spec import AgentSpec
from agents_app.tools.source import READ_ONLY
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.base.raw_sql import Statement
from sessions_app.core.records import options as option_values
from sessions_app.core.tenancy import agents, definitions, usage_entries
from sessions_app.models import Measure, Session


@dataclass(frozen=True, slots=True)
class Overrides:
    """The settings that a turn's request changes permanently in its session (A50). None: unchanged."""

    tool_refs: list[dict[str, Any]] | None = None
    options: dict[str, str] | None = field(default=None, repr=False)
    client_tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """A session's choice of server tools, and its client tools."""

    tool_refs: list[dict[str, Any]] | None
    client_tools: list[dict[str, Any]]

    @property
    def enabled(self) -> frozenset[str]:
        return frozenset(ref["name"] for ref in self.tool_refs or [])

    @property
    def trusted(self) -> frozenset[str]:
        return frozenset(ref["name"] for ref in self.tool_refs or [] if ref.get("trust"))

    def client_schemas(self) -> list[ToolSchema]:
        return [
            ToolSchema(tool["name"], tool["description"], tool["parameters"], tool.get("title")) for tool in self.client_tools
        ]


def settings_of(session: Session) -> Settings:
    return parsed(session.tool_refs, session.client_tools)


def parsed(tool_refs: str | None, client_tools: str) -> Settings:
    """The settings from the session's columns."""
    # Most sessions have no client tools, and every turn calls this: skip the parser for them.
    return Settings(
        None if tool_refs is None else exact_json.loads(tool_refs), [] if client_tools == "[]" else exact_json.loads(client_tools)
    )


def faults(
    spec: AgentSpec,
    *,
    tool_refs: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, str],
    client_tools: Sequence[Mapping[str, Any]] | None,
    before: Settings | None,
) -> list[Fault]:
    """Validate changed settings together with the current ones (A81, A82, A83). ``before``: the current settings."""
    exposed = {tool.name for tool in spec.exposed_tools}
    found = [
        Fault(("agent", "tools", index, "name"), "the agent exposes no tool with this name")
        for index, ref in enumerate(tool_refs or [])
        if ref["name"] not in exposed
    ]
    found += [Fault(("agent", "options", name), detail) for name, detail in agent_options.faults(spec, options)]
    if client_tools and not spec.client_tools:
        found.append(Fault(("tools",), "this agent takes no client tools"))
    if found or (tool_refs is None and client_tools is None):
        # Name conflicts that come from a changed agent definition are not reported for this request.
        return found
    refs = tool_refs if tool_refs is not None else (before.tool_refs if before else None) or []
    tools = client_tools if client_tools is not None else (before.client_tools if before else [])
    taken = {ref["name"] for ref in refs if ref["name"] in exposed} | {tool.name for tool in spec.tools if not tool.expose}
    for index, tool in enumerate(tools):
        if tool["name"] in taken:
            found.append(
                Fault(("tools", index, "name"), "a server tool of this session has this name")
                if client_tools is not None
                else Fault(("agent", "tools"), f"a client tool of this session is also named {tool['name']}")
            )
    return found


def apply_overrides(session: Session, spec: AgentSpec, overrides: Overrides) -> int:
    """Validate and store the changes of a turn's request (A50), inside its transaction and with the session locked.

    Returns the agent definition that the turn will use.
    """
    found = faults(
        spec,
        tool_refs=overrides.tool_refs,
        options=overrides.options or {},
        client_tools=overrides.client_tools,
        before=settings_of(session),
    )
    if found:
        raise InvalidInput(found)
    changes = overrides != Overrides()
    before = usage_entries.bytes_of_settings(session) if changes else 0
    if overrides.tool_refs is not None:
        session.tool_refs = exact_json.dumps(overrides.tool_refs)
    if overrides.client_tools is not None:
        session.client_tools = exact_json.dumps(overrides.client_tools)
    if changes:
        session.save(update_fields=["tool_refs", "client_tools"])
        option_values.store(session, spec, overrides.options or {})
        usage_entries.record(session, Measure.BYTES, usage_entries.bytes_of_settings(session) - before)
    return definitions.resolve(spec)


def change_events(spec: AgentSpec, overrides: Overrides) -> list[Happening]:
    """The events for the changes of a turn's request."""
    found: list[Happening] = []
    if overrides.tool_refs is not None:
        enabled = {ref["name"] for ref in overrides.tool_refs}
        found.append(Happening(Kind.SERVER_TOOLS_CHANGED, {"tools": shown_tools(spec, enabled)}))
    values = dict(overrides.options or {})
    if agents.has_models(spec) and agents.MODEL in values:
        found.append(Happening(Kind.MODEL_CHANGED, {"model": values.pop(agents.MODEL)}))
    if values:
        payload = {"options": option_values.masked(spec, values), "approval": None, "replace": False}
        found.append(Happening(Kind.SETTINGS_CHANGED, payload))
    return found


def shown_tools(spec: AgentSpec, enabled: AbstractSet[str]) -> list[dict[str, Any]]:
    """The session's enabled server tools, as clients see them."""
    return [
        {
            "name": tool.name,
            **({} if tool.title is None else {"title": tool.title}),
            "description": tool.description,
            "parameters": tool.parameters,
            **({"annotations": {"readOnlyHint": True}} if tool.source in READ_ONLY else {}),
        }
        for tool in spec.exposed_tools
        if tool.name in enabled
    ]


def turn_started(session: Session, title: str | None) -> Statement:
    """The statement for a turn's start: the session becomes unread. ``title``: for a session without one."""
    return Statement(
        "update sessions_app_session set modified_at = {now}, read = false, chat_read = false, title = coalesce(title, %s)"
        " where id = %s",
        (title, session.pk),
    )


def mark_used(session: Session) -> Statement:
    """The statement that updates the time of last use, which retention is based on."""
    return Statement("update sessions_app_session set modified_at = {now} where id = %s", (session.pk,))
