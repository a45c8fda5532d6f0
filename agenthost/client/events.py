"""What happens in a turn, as typed events, and what the application decides about it. No I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agenthost.client.calls import Call, call_of_event
from agenthost.client.runs import TurnEvent

Mode = Literal["delta", "message", "none"]


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The server has accepted the turn."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer, in mode ``delta``."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A whole piece of the answer, in the modes ``message`` and ``none``."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    url: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The agent calls a tool: one of the server's or of this application."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool of the server has run, or was denied."""

    call_id: str
    content: Any
    """Text or a list of blocks."""


@dataclass(frozen=True, slots=True)
class Answered:
    """This client has answered a call: with the result of a tool of its own, or with a permission."""

    call: ToolCall
    granted: bool | None = None
    """Of a permission; None for a result."""
    content: Any = None
    """Of a result."""
    error: str = ""
    """Why the tool of this application failed; empty if it did not."""


@dataclass(frozen=True, slots=True)
class TurnStop:
    """The end of the turn. ``reason``: end_turn, tool_use (calls are open), max_tokens, refusal or error."""

    reason: str


Event = TurnStart | TextDelta | Text | ThinkingDelta | Thinking | Image | ToolCall | ToolResult | Answered | TurnStop


@dataclass(frozen=True, slots=True)
class Deny:
    """A denied permission, with a reason for the model."""

    reason: str = ""


Permission = Callable[[ToolCall], "bool | Deny | Awaitable[bool | Deny]"]
"""Decides whether a tool of the server may run."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    stop_reason: str
    text: str
    """The answer. Pieces before and after tool calls are separated by an empty line."""
    turn_id: str
    open_calls: tuple[ToolCall, ...] = field(default=())
    """With ``tool_use``: the calls that wait for an answer."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    cancelled: bool
    """False: no turn was running or waiting."""
    provider_closed: bool
    """The request to the model is closed, so that it costs nothing more."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as the server describes it. Values of secret options are ``***``."""

    id: str
    agent: str
    options: Mapping[str, str]
    server_tools: Mapping[str, bool]
    """The enabled tools of the server, and whether each is trusted."""
    document: Mapping[str, Any]


def result(call_id: str, content: Any) -> dict[str, Any]:
    """The message that answers a call of a client tool."""
    return {"role": "tool", "toolCallId": call_id, "content": content}


def permission(call_id: str, decision: bool | Deny) -> dict[str, Any]:
    """The message that allows or denies a call of a server tool."""
    answer: dict[str, Any] = {"role": "tool_permission", "toolCallId": call_id, "granted": decision is True}
    if isinstance(decision, Deny) and decision.reason:
        answer["reason"] = decision.reason
    return answer


def typed(event: TurnEvent) -> Event | None:
    """The typed event; None for one that this version of the client does not know."""
    data = event.data
    match event.name:
        case "turn_start":
            return TurnStart()
        case "text_delta":
            return TextDelta(_text(data, "delta"))
        case "text":
            return Text(_text(data, "text"))
        case "thinking_delta":
            return ThinkingDelta(_text(data, "delta"))
        case "thinking":
            return Thinking(_text(data, "thinking"))
        case "image":
            return Image(_text(data, "url"))
        case "tool_call":
            return tool_call(call_of_event(data))
        case "tool_result":
            return ToolResult(_text(data, "toolCallId"), data.get("content"))
        case "turn_stop":
            return TurnStop(_text(data, "stopReason"))
    return None


def tool_call(call: Call) -> ToolCall:
    return ToolCall(call.id, call.name, call.input)


def session_info(document: Mapping[str, Any]) -> SessionInfo:
    value = document.get("agent")
    agent = value if isinstance(value, dict) else {}
    options, tools = agent.get("options"), agent.get("tools")
    enabled = [each for each in (tools if isinstance(tools, list) else []) if isinstance(each, dict)]
    return SessionInfo(
        _text(document, "sessionId"),
        _text(agent, "name"),
        dict(options) if isinstance(options, dict) else {},
        {_text(each, "name"): each.get("trust") is True for each in enabled},
        document,
    )


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""
