"""AAP version 3: what its requests say, what its answers look like.

Pure but for the domain's value classes. Requests come in as JSON objects and leave as the arguments of
core functions; answers come in as the core's facts and leave as JSON values. Older versions are
conversions to and from this one's JSON.
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
from sessions_app.core.base import content
from sessions_app.core.base.content import Faults
from sessions_app.core.base.errors import Fault, InvalidInput
from sessions_app.core.records.stored_messages import Line
from sessions_app.core.sessions.creating import SessionRequest
from sessions_app.core.sessions.listing import Page, SessionFacts
from sessions_app.core.turns import Answer, CancelReceipt, ClientResult, Overrides, Permission

VERSION = 3


# --- requests ---


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """POST /sessions/{id}/turns: either a user's ``content`` or ``answers``, never both (A49)."""

    mode: StreamMode
    content: Content | None
    answers: list[Answer]
    overrides: Overrides


def creation(body: Mapping[str, Any], spec_of: Callable[[str], AgentSpec]) -> SessionRequest:
    """``spec_of`` finds the agent of that name, or raises InvalidInput."""
    faults = Faults()
    agent = _object(body, "agent", faults, required=True)
    name, spec = "", None
    if agent is not None:
        name = agent.get("name") or ""
        if not isinstance(name, str) or not name:
            faults.add(("agent", "name"), "must be a string" if name else "is required")
        else:
            spec = faults.take(spec_of, name)
    refs = _tool_refs(agent or {}, faults)
    options = faults.take(content.options, (agent or {}).get("options"))
    tools = faults.take(content.client_tools, body.get("tools"))
    seed = faults.take(content.seed_messages, body.get("messages"), IMAGE_KINDS if spec is None else spec.images)
    faults.settle()
    return SessionRequest(name, refs, options or {}, tools or [], seed or [])


def turn(body: Mapping[str, Any], agent_name: str, spec: AgentSpec) -> TurnRequest:
    """``agent_name`` is the session's, ``spec`` what that agent is now."""
    faults = Faults()
    said, answers = _turn_messages(body.get("messages"), spec, faults)
    word = body.get("stream")
    mode = faults.take(stream_mode, "none" if word is None else word, spec)
    agent = _object(body, "agent", faults) or {}
    if agent.get("name") is not None and agent["name"] != agent_name:
        faults.add(("agent", "name"), "a session's agent cannot be changed")
    refs = _tool_refs(agent, faults)
    options = None if agent.get("options") is None else faults.take(content.options, agent["options"])
    tools = None if body.get("tools") is None else faults.take(content.client_tools, body["tools"])
    faults.settle()
    assert mode is not None, "a mode that was refused has settled"
    return TurnRequest(mode, said, answers, Overrides(tool_refs=refs, options=options, client_tools=tools))


def stream_mode(word: Any, spec: AgentSpec) -> StreamMode:
    """A80: one of the three words, and one that the agent offers."""
    for mode in STREAM_MODES:
        if word == mode:
            if mode in spec.stream:
                return mode
            raise InvalidInput([Fault(("stream",), f"this agent does not offer the mode {mode}")])
    raise InvalidInput([Fault(("stream",), f"must be one of {', '.join(STREAM_MODES)}")])


def joining_mode(query: Mapping[str, str], spec: AgentSpec | None) -> stream.Mode:
    """The mode of a joined stream (A120). ``spec`` None: the agent is gone, its streams can still be read."""
    word = query.get("stream")
    if word is None:
        raise ParseError("The query `stream` must be delta or message.")
    for mode in get_args(stream.Mode):
        if word == mode:
            if spec is not None:
                stream_mode(mode, spec)
            return mode  # type: ignore[no-any-return]  # get_args forgets which words they are
    raise InvalidInput([Fault(("stream",), "must be delta or message")])


def history_kind(query: Mapping[str, str]) -> HistoryKind:
    """A46."""
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
    """A121; the body is optional, and so is what it says."""
    reason = body.get("reason")
    if reason is None:
        return ""
    if not isinstance(reason, str):
        raise InvalidInput([Fault(("reason",), "must be a string")])
    return reason


def _object(body: Mapping[str, Any], member: str, faults: Faults, *, required: bool = False) -> dict[str, Any] | None:
    value = body.get(member)
    if isinstance(value, dict):
        return value
    if value is not None or required:
        faults.add((member,), "is required" if value is None else "must be an object")
    return None


def _tool_refs(agent: Mapping[str, Any], faults: Faults) -> list[dict[str, Any]] | None:
    return None if agent.get("tools") is None else faults.take(content.tool_refs, agent["tools"])


def _turn_messages(value: Any, spec: AgentSpec, faults: Faults) -> tuple[Content | None, list[Answer]]:
    place = ("messages",)
    if not isinstance(value, list):
        faults.add(place, "is required" if value is None else "must be a list")
        return None, []
    if not value:
        faults.add(place, "must not be empty")
        return None, []
    said: list[Content | None] = []
    answers: list[Answer] = []
    for index, item in enumerate(value):
        where = (*place, index)
        if not isinstance(item, dict):
            faults.add(where, "must be an object")
            continue
        match item.get("role"):
            case "user":
                said.append(faults.take(content.user_content, item.get("content"), spec.images, (*where, "content")))
            case "tool":
                result = faults.take(content.result_content, item.get("content"), spec.images, (*where, "content"))
                answers.append(ClientResult(index, _call_id(item, where, faults), "" if result is None else result))
            case "tool_permission":
                answers.append(_permission(item, index, where, faults))
            case _:
                faults.add((*where, "role"), "must be user, tool or tool_permission")
    if len(said) > 1 or (said and answers):
        faults.add(place, "must be one user message, or tool and tool_permission messages alone")
    return said[0] if said else None, answers


def _call_id(item: Mapping[str, Any], where: tuple[str | int, ...], faults: Faults) -> str:
    call = item.get("toolCallId")
    if not isinstance(call, str):
        faults.add((*where, "toolCallId"), "is required" if call is None else "must be a string")
        return ""
    return call


def _permission(item: Mapping[str, Any], index: int, where: tuple[str | int, ...], faults: Faults) -> Permission:
    granted, reason = item.get("granted"), item.get("reason")
    if not isinstance(granted, bool):
        faults.add((*where, "granted"), "is required" if granted is None else "must be true or false")
    if reason is not None and not isinstance(reason, str):
        faults.add((*where, "reason"), "must be a string")
    return Permission(index, _call_id(item, where, faults), granted is True, reason if isinstance(reason, str) else "")


# --- answers ---


def meta(agents: Iterable[AgentSpec]) -> dict[str, Any]:
    return {"version": VERSION, "agents": [_agent(spec) for spec in agents]}


def session(facts: SessionFacts) -> dict[str, Any]:
    """A29: what was never set is left out."""
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
            # A22: the operator's own secret is shown to nobody.
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
    """A20: what has no value is left out, never null."""
    return {name: value for name, value in members.items() if value is not None}
