"""The shapes of AAP version 3's JSON, as schemas: messages, agents, sessions, turns, events."""

from __future__ import annotations

from typing import Any, get_args

from agents_app.spec import HISTORY_KINDS, IMAGE_KINDS, OPTION_TYPES, STREAM_MODES
from sessions_app.aap import stream
from sessions_app.aap.openapi.description import JSON
from sessions_app.aap.openapi.schemas import Schema, list_of, object_of, one_of, ref, string, whole
from sessions_app.aap.versions import v3
from sessions_app.core.base import content

# --- messages ---

_BLOCK_SHAPES = {"text": "TextBlock", "thinking": "ThinkingBlock", "tool_use": "ToolUseBlock", "image": "ImageBlock"}
_IMAGE = whole(f"{content.HTTP_IMAGE.pattern}|{content.DATA_IMAGE.pattern}[A-Za-z0-9+/]+={{0,2}}")
_CALL_ID = string("Names one tool call of the session.")
_FREE = {"type": "object", "additionalProperties": True}
STOP_REASONS = {
    "end_turn": "the agent is done",
    "tool_use": "at least one call waits for the client",
    "max_tokens": "a token limit was met",
    "refusal": "the model declined",
    "error": "something failed after the turn had begun",
}


def _content(role: str) -> Schema:
    """Text, or a list of the blocks that a message of this role may hold."""
    # Every branch is a shape with a name: generators of clients name the others themselves, and two get one name.
    return {"oneOf": [ref("UserText" if role == "user" else "Text"), ref(f"{role.capitalize()}Blocks")]}


def _blocks(role: str, **limits: Any) -> Schema:
    kinds = {kind: shape for kind, shape in _BLOCK_SHAPES.items() if kind in content.BLOCKS[role]}
    return list_of(one_of("type", kinds), f"The blocks that the content of a {role} message may have.", **limits)


def _message(role: str, members: Schema, text: str, optional: Schema | None = None) -> Schema:
    return object_of({"role": {"const": role}, **members}, optional, text)


_TOOL_REFERENCE = object_of(
    {"name": string("A tool that `/meta` lists for the agent.")},
    # No `default`: generators of clients take such a member for one that is always there.
    {"trust": {"type": "boolean", "description": "Run it without asking; left out: ask."}},
    "Enables one of the server's tools.",
)
_OPTIONS = {
    "type": "object",
    "additionalProperties": string(),
    "description": "Option values by name; `/meta` lists them.",
}
_TOOL_REFERENCES = list_of(ref("ToolReference"), "The server's tools that are on; all others are off.")
_CLIENT_TOOLS = list_of(ref("ToolSpecification"), "Tools that the client runs itself.")
_STREAM_MODE = string(
    "The form of the answer: `delta` sends text as it is written, `message` piece by piece when complete, "
    "`none`, which is meant if it is left out, answers with one JSON object at the end. An agent may offer fewer.",
    enum=list(STREAM_MODES),
)

_MESSAGES: dict[str, Schema] = {
    "TextBlock": object_of({"type": {"const": "text"}, "text": string()}),
    "ThinkingBlock": object_of(
        {"type": {"const": "thinking"}, "thinking": string()}, None, "What the model thought before it spoke."
    ),
    "ToolUseBlock": object_of(
        {"type": {"const": "tool_use"}, "toolCallId": _CALL_ID, "name": string(), "input": _FREE}, None, "The agent calls a tool."
    ),
    "ImageBlock": object_of(
        {
            "type": {"const": "image"},
            "url": string(
                "`https:`, which the server never fetches, or base64 of a PNG, JPEG, GIF or WebP in a `data:` address.",
                pattern=_IMAGE,
            ),
        }
    ),
    "Text": string("Content that is text alone."),
    "UserText": string("The same of a user: not only white space.", pattern=r"\S"),
    "UserBlocks": _blocks("user", minItems=1),
    "AssistantBlocks": _blocks("assistant"),
    "ToolBlocks": _blocks("tool"),
    "SystemMessage": _message("system", {"content": string()}, "An instruction of the application."),
    "UserMessage": _message("user", {"content": _content("user")}, "What the user says: not only white space, or an image."),
    "AssistantMessage": _message(
        "assistant", {"content": _content("assistant")}, "What the agent said and which tools it called."
    ),
    "ToolMessage": _message("tool", {"toolCallId": _CALL_ID, "content": _content("tool")}, "What a tool gave."),
    "ToolPermission": _message(
        "tool_permission",
        {"toolCallId": _CALL_ID, "granted": {"type": "boolean"}},
        "Whether a tool of the server may run. Sent by clients, never stored as a message.",
        {"reason": string("Shown to the model when the call is denied.")},
    ),
    "HistoryMessage": one_of(
        "role", {"system": "SystemMessage", "user": "UserMessage", "assistant": "AssistantMessage", "tool": "ToolMessage"}
    ),
    "AgentMessage": one_of("role", {"assistant": "AssistantMessage", "tool": "ToolMessage"}),
    "ToolSpecification": object_of(
        {
            "name": string(pattern=whole(content.TOOL_NAME.pattern)),
            "description": string("What it does, for the model; may be empty."),
            "parameters": {**_FREE, "description": "The JSON Schema of its arguments."},
        },
        {"title": string("Its name for people.")},
        "A tool: what the model has to know to call it.",
    ),
    "ToolReference": _TOOL_REFERENCE,
    "StopReason": string("; ".join(f"`{word}`: {text}" for word, text in STOP_REASONS.items()) + ".", enum=list(STOP_REASONS)),
}

_NO_FACTS: Schema = {"type": "object", "maxProperties": 0}


def _capability(members: tuple[str, ...], text: str) -> Schema:
    return object_of({}, dict.fromkeys(members, _NO_FACTS), text)


_AGENTS: dict[str, Schema] = {
    "Meta": object_of(
        {
            "version": {"const": v3.VERSION},
            "agents": list_of(ref("Agent"), "Those that this key may use, in the operator's order."),
        }
    ),
    "Agent": object_of(
        {"name": string("Unique on this server."), "version": string("A semantic version.")},
        {
            "title": string(),
            "description": string(),
            "tools": list_of(ref("ToolSpecification"), "The server's tools that a session may enable."),
            "options": list_of(ref("AgentOption")),
            "capabilities": ref("Capabilities"),
        },
    ),
    "AgentOption": object_of(
        {
            "type": string("A secret is stored sealed and never shown again.", enum=list(OPTION_TYPES)),
            "name": string(),
            "default": string("Always empty for a secret."),
        },
        {"title": string(), "description": string(), "options": list_of(string(), "What a select offers.")},
    ),
    "Capabilities": object_of(
        {},
        {
            "history": _capability(HISTORY_KINDS, "Which histories can be read."),
            "stream": _capability(STREAM_MODES, "Which forms a turn's answer can have."),
            "application": _capability(("tools",), "Whether clients may bring tools of their own."),
            "image": _capability(IMAGE_KINDS, "Which addresses images may have."),
        },
        "What is not named here is refused.",
    ),
}


def _history_shape(kind: str) -> str:
    return f"{kind.capitalize()}History"


HISTORY_SHAPES = ("History", *map(_history_shape, HISTORY_KINDS))

_SESSIONS: dict[str, Schema] = {
    "NewSession": object_of(
        {"agent": object_of({"name": string()}, {"tools": _TOOL_REFERENCES, "options": _OPTIONS})},
        {
            "messages": list_of(ref("HistoryMessage"), "How the history begins."),
            "tools": _CLIENT_TOOLS,
        },
    ),
    "SessionCreated": object_of({"sessionId": ref("SessionId")}),
    "SessionId": string("Opaque.", pattern="^[A-Za-z0-9_-]{1,128}$"),
    "Session": object_of(
        {
            "sessionId": ref("SessionId"),
            "agent": object_of(
                {"name": string()},
                {
                    "tools": _TOOL_REFERENCES,
                    "options": {**_OPTIONS, "description": "What the client has set; a secret reads `***`."},
                },
            ),
        },
        {"tools": _CLIENT_TOOLS},
        "What was set for a session; what was never set is left out.",
    ),
    "SessionList": object_of(
        {"sessions": list_of(ref("Session"), "Newest first, fifty a page.", maxItems=50)},
        {"next": string("Give it as `after` to get the next page. There is none on the last one.")},
    ),
    "History": {"oneOf": [ref(_history_shape(kind)) for kind in HISTORY_KINDS]},
    **{
        _history_shape(kind): object_of(
            {"history": {**object_of({kind: list_of(ref("HistoryMessage"))}), "additionalProperties": False}},
            None,
            f"The history that was asked for as `{kind}`.",
        )
        for kind in HISTORY_KINDS
    },
}

_TURNS: dict[str, Schema] = {
    "TurnRequest": object_of(
        {
            "messages": {
                "description": "One user message, or answers to the calls that are open: results and permissions, in any order.",
                "oneOf": [ref("UserTurn"), ref("CallAnswers")],
            }
        },
        {
            "stream": _STREAM_MODE,
            "agent": object_of(
                {},
                {
                    "name": string("The session's own agent, which cannot be changed."),
                    "tools": _TOOL_REFERENCES,
                    "options": {**_OPTIONS, "description": "Merged into those already set."},
                },
                "Left out: as before. What is given holds from this turn on.",
            ),
            "tools": {**_CLIENT_TOOLS, "description": "Takes the place of the client's tools so far. Left out: as before."},
        },
    ),
    "UserTurn": list_of(ref("UserMessage"), "What the user says.", minItems=1, maxItems=1),
    "CallAnswers": list_of(
        one_of("role", {"tool": "ToolMessage", "tool_permission": "ToolPermission"}), "Answers to open calls.", minItems=1
    ),
    "TurnAnswer": object_of(
        {
            "stopReason": ref("StopReason"),
            "messages": list_of(ref("AgentMessage"), "What the server made in this turn, in order."),
        }
    ),
    "CancelRequest": object_of({}, {"reason": string("For the record.")}),
    "Cancelled": {"oneOf": [ref("TurnCancelled"), ref("NothingCancelled")]},
    "TurnCancelled": object_of(
        {
            "cancelled": {"const": True},
            "providerClosed": {
                "type": "boolean",
                "description": "Whether the call to the model's provider is known to be closed.",
            },
        }
    ),
    "NothingCancelled": object_of({"cancelled": {"const": False}}, None, "Nothing was running or waiting."),
}

# --- events ---

_EVENT_DATA: dict[str, tuple[str, Schema]] = {
    "turn_start": ("The turn has begun. Always the first.", _NO_FACTS),
    "text_delta": ("The next piece of the answer.", object_of({"delta": string(minLength=1)})),
    "thinking_delta": ("The next piece of the model's thinking.", object_of({"delta": string(minLength=1)})),
    "text": ("The answer of one model message, complete.", object_of({"text": string(minLength=1)})),
    "thinking": ("The thinking of one model message, complete.", object_of({"thinking": string(minLength=1)})),
    "tool_call": ("The agent calls a tool.", object_of({"toolCallId": _CALL_ID, "name": string(), "input": _FREE})),
    "tool_result": ("A tool of the server gave this.", object_of({"toolCallId": _CALL_ID, "content": _content("tool")})),
    "turn_stop": ("The turn is over. Always the last.", object_of({"stopReason": ref("StopReason")})),
}


def event_shape(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Event"


def event_schema(name: str, text: str, data: Schema) -> Schema:
    """One event as a parser of server-sent events gives it; ``data`` is JSON inside a string."""
    inside = {"type": "string", "contentMediaType": JSON, "contentSchema": data}
    return object_of(
        {
            "id": string("The position in the session: give it as `Last-Event-ID` to go on after it."),
            "event": {"const": name},
            "data": inside,
        },
        None,
        text,
    )


def events_schema(names: list[str]) -> Schema:
    """What a stream is a sequence of: OpenAPI 3.1 has no word for a whole stream."""
    text = (
        "A stream of server-sent events is a sequence of these, each written as one `id`, one `event` and one `data` line; "
        "`data` is a JSON object. Comment lines keep a quiet connection open."
    )
    return {"description": text, **one_of("event", {name: event_shape(name) for name in names})}


def events_shown() -> list[str]:
    """What the encoder shows in any mode, in the order of this page."""
    shown = {name for mode in get_args(stream.Mode) for name in stream.event_names(mode)}
    assert shown <= _EVENT_DATA.keys(), "every event is described"
    return [name for name in _EVENT_DATA if name in shown]


def _event_schemas() -> dict[str, Schema]:
    modes = {name: [mode for mode in get_args(stream.Mode) if name in stream.event_names(mode)] for name in events_shown()}
    found: dict[str, Schema] = {}
    for name, (text, data) in _EVENT_DATA.items():
        alone = f" In mode `{modes[name][0]}` alone." if len(modes[name]) == 1 else ""
        found[event_shape(name)] = event_schema(name, text + alone, data)
    return {**found, "Event": events_schema(events_shown())}


def shapes() -> dict[str, Schema]:
    """All of them by name."""
    return {**_MESSAGES, **_AGENTS, **_SESSIONS, **_TURNS, **_event_schemas()}
