"""AAP version 3: reads requests and builds answers.

Pure but for the core's value classes. Requests become arguments of core functions, and the core's values become JSON
objects. v3_types.py declares the JSON. Older versions are conversions to and from this one's JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from rest_framework.exceptions import ParseError

from agents_app import exact_json
from agents_app.runtime.messages import Content
from agents_app.spec import HISTORY_KINDS, IMAGE_KINDS, STREAM_MODES, AgentSpec, HistoryKind, OptionSpec, StreamMode, ToolSpec
from sessions_app.aap import stream
from sessions_app.aap.versions import v3_types
from sessions_app.core.base import content
from sessions_app.core.base.content import Faults, ToolMessage
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.base.shapes import members
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.sessions.listing import Page, SessionFacts
from sessions_app.core.turns import Answer, CancelReceipt, ClientResult, Overrides, Permission

VERSION = 3


# --- requests ---


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """POST /sessions/{id}/turns: either the user's ``content`` or ``answers``, never both (A49)."""

    mode: StreamMode
    content: Content | None
    answers: list[Answer]
    overrides: Overrides


def creation(body: Mapping[str, Any], spec_of: Callable[[str], AgentSpec]) -> SessionRequest:
    """``spec_of`` finds the agent of that name, or raises InvalidInput."""
    faults = Faults()
    request: v3_types.NewSession | None = faults.take(v3_types.NEW_SESSION.read, body)
    spec = agent(body, spec_of, faults)
    if request is not None:
        faults.found += content.seed_faults(request.get("messages", []), IMAGE_KINDS if spec is None else spec.images)
    faults.settle(members(v3_types.NewSession))
    assert request is not None, "settle has raised its faults"
    return session_request(request, request.get("messages", []))


def session_request(request: v3_types.Creation, seed: Sequence[Any]) -> SessionRequest:
    chosen = request["agent"]
    refs: Any = chosen.get("tools")
    tools: Any = request.get("tools", [])
    return SessionRequest(chosen["name"], refs, chosen.get("options", {}), tools, list(seed))


def agent(body: Mapping[str, Any], spec_of: Callable[[str], AgentSpec], faults: Faults) -> AgentSpec | None:
    """The agent that the body names; None if it names none, or after a fault."""
    name = _agent_name(body)
    return faults.take(spec_of, name) if name else None


def turn(body: Mapping[str, Any], agent_name: str, spec: AgentSpec) -> TurnRequest:
    """``agent_name`` is the session's, ``spec`` that agent as it is now."""
    faults = Faults()
    request: v3_types.TurnRequest | None = faults.take(v3_types.TURN_REQUEST.read, body)
    if _agent_name(body) not in (None, agent_name):
        faults.found.append(Fault(("agent", "name"), "a session's agent cannot be changed"))
    if request is not None:
        faults.take(stream_mode, request.get("stream", "none"), spec)
        for index, message in enumerate(request["messages"]):
            if message["role"] != "tool_permission":
                faults.found += content.image_faults(message["content"], spec.images, ("messages", index, "content"))
    faults.settle(members(v3_types.TurnRequest))
    assert request is not None, "settle has raised its faults"
    settings: Any = request.get("agent", {})
    tools: Any = request.get("tools")
    overrides = Overrides(settings.get("tools"), settings.get("options"), tools)
    first = request["messages"][0]
    text = first["content"] if first["role"] == "user" else None
    answers = [_answer(index, message) for index, message in enumerate(request["messages"]) if message["role"] != "user"]
    return TurnRequest(request.get("stream", "none"), text, answers, overrides)


def stream_mode(word: Any, spec: AgentSpec) -> StreamMode:
    """A80: one of the three modes, and one that the agent offers."""
    for mode in STREAM_MODES:
        if word == mode:
            if mode in spec.stream:
                return mode
            raise InvalidInput([Fault(("stream",), f"this agent does not offer the mode {mode}")])
    raise InvalidInput([Fault(("stream",), f"must be one of {', '.join(STREAM_MODES)}")])


def joining_mode(query: Mapping[str, str], spec: AgentSpec | None) -> stream.Mode:
    """The mode of a joined stream (A120). ``spec`` None: the agent was removed; its streams can still be read."""
    word = query.get("stream")
    if word is None:
        raise ParseError("The query `stream` must be delta or message.")
    for mode in get_args(stream.Mode):
        if word == mode:
            if spec is not None:
                stream_mode(mode, spec)
            return mode  # type: ignore[no-any-return]  # get_args loses the type
    raise InvalidInput([Fault(("stream",), "must be delta or message")])


def history_kind(query: Mapping[str, str]) -> HistoryKind:
    """The requested kind of history (A46)."""
    for kind in HISTORY_KINDS:
        if query.get("type") == kind:
            return kind
    raise ParseError("The query `type` must be compacted or full.")


def follows(query: Mapping[str, str]) -> bool:
    """Whether a joined stream stays open for later turns."""
    word = query.get("follow", "false")
    if word not in ("true", "false"):
        raise ParseError("The query `follow` must be true or false.")
    return word == "true"


def cancel_reason(body: Mapping[str, Any]) -> str:
    """A121; the body and its reason are optional."""
    request: v3_types.CancelRequest = v3_types.CANCEL_REQUEST.read(body)
    return request.get("reason", "")


def _agent_name(body: Mapping[str, Any]) -> str | None:
    """The agent's name, even if something else in the body is wrong."""
    agent = body.get("agent")
    name = agent.get("name") if isinstance(agent, dict) else None
    return name if isinstance(name, str) else None


def _answer(index: int, message: ToolMessage | v3_types.ToolPermission) -> Answer:
    if message["role"] == "tool":
        return ClientResult(index, message["toolCallId"], message["content"])
    return Permission(index, message["toolCallId"], message["granted"], message.get("reason", ""))


# --- answers ---


def meta(agents: Iterable[AgentSpec]) -> dict[str, Any]:
    return {"version": VERSION, "agents": [_agent(spec) for spec in agents]}


def session(facts: SessionFacts) -> dict[str, Any]:
    """Leaves out settings that were never made (A29)."""
    agent: dict[str, Any] = {"name": facts.agent_name}
    if facts.tool_refs is not None:
        agent["tools"] = facts.tool_refs
    if facts.options:
        agent["options"] = facts.options
    shown: dict[str, Any] = {"sessionId": facts.public_id, "agent": agent}
    if facts.client_tools:
        shown["tools"] = facts.client_tools
    return shown


def sessions(page: Page) -> dict[str, Any]:
    shown: dict[str, Any] = {"sessions": [session(facts) for facts in page.items]}
    if page.next is not None:
        shown["next"] = page.next
    return shown


def created(session_id: str) -> dict[str, Any]:
    return {"sessionId": session_id}


def history(kind: HistoryKind, lines: Sequence[Line]) -> dict[str, Any]:
    return {"history": {kind: [_message(line) for line in lines]}}


def turn_answer(stop_reason: str, lines: Sequence[Line]) -> dict[str, Any]:
    return {"stopReason": stop_reason, "messages": [_message(line) for line in lines]}


def cancelled(receipt: CancelReceipt) -> dict[str, Any]:
    if not receipt.cancelled:
        return {"cancelled": False}
    return {"cancelled": True, "providerClosed": receipt.provider_closed}


def _message(line: Line) -> dict[str, Any]:
    shown: dict[str, Any] = {"role": line.role}
    if line.tool_call_id is not None:
        shown["toolCallId"] = line.tool_call_id
    shown["content"] = exact_json.loads(line.content)
    return shown


def _agent(spec: AgentSpec) -> dict[str, Any]:
    return _present(
        {
            "name": spec.name,
            "title": spec.title,
            "version": spec.version,
            "description": spec.description,
            "tools": [_tool(tool) for tool in spec.exposed_tools] or None,
            "options": [_option(option) for option in spec.options] or None,
            "capabilities": _capabilities(spec) or None,
        }
    )


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return _present(
        {"name": tool.name, "title": tool.title, "description": tool.description, "parameters": dict(tool.parameters)}
    )


def _option(option: OptionSpec) -> dict[str, Any]:
    select = option.type == "select"
    return _present(
        {
            "type": option.type,
            "name": option.name,
            "title": option.title,
            "description": option.description,
            "options": list(option.options) if select else None,
            # A22: clients never get the operator's own secret.
            "default": "" if option.type == "secret" else option.default,
        }
    )


def _capabilities(spec: AgentSpec) -> dict[str, Any]:
    groups: dict[str, Sequence[str]] = {
        "history": spec.history,
        "stream": spec.stream,
        "application": ["tools"] if spec.client_tools else [],
        "image": spec.images,
    }
    return {group: {member: {} for member in members} for group, members in groups.items() if members}


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that have a value: the others are left out, never null (A20)."""
    return {name: value for name, value in members.items() if value is not None}
