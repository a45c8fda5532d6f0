"""Example requests of AAP version 3 to the demo agent, with its answers.

Each example names the one that must come before it. Tests send all of them.
"""

from __future__ import annotations

from typing import Any

from agents_app import exact_json, loader, registry
from sessions_app.aap.openapi.description import Example
from sessions_app.aap.versions import v3

SESSION = "sess_q3Zt0Yw8cJmR5xVbN1dLkA7p"
CALL = "call_7Hf2sKpXw9QzT4eBn6vC1yMd"
_MARKS = ("5f1c9d03ab7e", "80b2f6c41e95", "c47d2a9e0f63", "19e8b05d7c42", "e2b6709af1d4", "37ac51d8f902")
_POSITIONS = tuple(f"{42 + 3 * number:016x}{mark}" for number, mark in enumerate(_MARKS))

ORDER_TOOL = {
    "name": "look_up_order",
    "title": "Order status",
    "description": "Finds an order by its number.",
    "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
}


def _stream(*events: tuple[str, dict[str, Any]]) -> str:
    numbered = zip(_POSITIONS, events, strict=False)
    return "".join(f"id: {at}\nevent: {name}\ndata: {exact_json.dumps(data)}\n\n" for at, (name, data) in numbered)


META = (
    Example(
        "agents",
        "The built-in demo agent",
        v3.meta(spec for spec in loader.load(registry.BUILTIN_FILE) if spec.name == "demo"),
    ),
)
CREATE = (
    Example("plain", "As little as possible", {"sessionId": SESSION}, 201, {"agent": {"name": "demo"}}),
    Example(
        "configured",
        "With a history, options, a trusted tool of the server and a tool of the client",
        {"sessionId": SESSION},
        201,
        {
            "agent": {
                "name": "demo",
                "tools": [{"name": "calculator", "trust": True}],
                "options": {"name": "Ada", "manner": "friendly"},
            },
            "messages": [
                {"role": "system", "content": "The user's name is Ada."},
                {"role": "user", "content": "Hello!"},
                {"role": "assistant", "content": "Hello, Ada. What can I do for you?"},
            ],
            "tools": [ORDER_TOOL],
        },
    ),
)
_SETTINGS = {
    "sessionId": SESSION,
    "agent": {
        "name": "demo",
        "tools": [{"name": "calculator", "trust": True}],
        "options": {"name": "Ada", "manner": "friendly"},
    },
    "tools": [ORDER_TOOL],
}
READ = (Example("settings", "A session with everything set", _SETTINGS, after="configured"),)
LIST = (Example("one_page", "One session, no further page", {"sessions": [_SETTINGS]}, after="configured"),)
DELETE = (Example("gone", "", None, 204, after="plain"),)
_CALCULATION: dict[str, Any] = {"expression": "17 * 23"}
_CALCULATING: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "17 * 23 is a sum. I cannot calculate by myself, so I use the calculator."},
    {"type": "text", "text": "Let me calculate 17 * 23."},
    {"type": "tool_use", "toolCallId": CALL, "name": "calculator", "input": _CALCULATION},
]
_PASSING_ON = {"type": "thinking", "thinking": "The results are here. I pass them on as they are."}
_CALCULATED = [
    {"role": "tool", "toolCallId": CALL, "content": "391"},
    {"role": "assistant", "content": [_PASSING_ON, {"type": "text", "text": "The calculator says 391."}]},
]
_ASKED = {"messages": [{"role": "user", "content": "What can you do?"}]}
_INTRODUCTION = (
    "Hello! I am a scripted guide: no model is behind me, every word was written beforehand. What you see is real all the same: "
    "this answer is streamed, stored and can be read again.\n\n"
    'Things to try: ask me "What is 17 * 23?" and I use a calculator. Ask for the time and I ask for your permission. '
    'Say "tools" and I show how tools work. Say "count to 50" and stop me while I talk.'
)
_CALLING = (
    "Tools are asked for. There is `look_up_order` here: I call each once, all at the same time.",
    "I call `look_up_order` now. Your application runs its own tools; mine run here once you allow them.",
)
TURNS = (
    Example(
        "ask",
        "Send a message, get one JSON object",
        {
            "stopReason": "end_turn",
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Somebody new. I say what I am, and what can be tried."},
                        {"type": "text", "text": _INTRODUCTION},
                    ],
                }
            ],
        },
        body=_ASKED,
        after="plain",
    ),
    Example(
        "streamed",
        "Send a message, get the answer as a stream",
        _stream(
            ("turn_start", {}),
            ("thinking_delta", {"delta": "Counting is dull, but a good moment "}),
            ("thinking_delta", {"delta": "to try a cancel."}),
            ("text_delta", {"delta": "I count to 3; stop me "}),
            ("text_delta", {"delta": "whenever you like.\n\n1 2 3"}),
            ("turn_stop", {"stopReason": "end_turn"}),
        ),
        body={"messages": [{"role": "user", "content": "Count to 3."}], "stream": "delta"},
        after="plain",
    ),
    Example(
        "calculate",
        "A tool of the server that needs a permission",
        _stream(
            ("turn_start", {}),
            ("thinking", {"thinking": _CALCULATING[0]["thinking"]}),
            ("text", {"text": _CALCULATING[1]["text"]}),
            ("tool_call", {"toolCallId": CALL, "name": "calculator", "input": _CALCULATION}),
            ("turn_stop", {"stopReason": "tool_use"}),
        ),
        body={
            "messages": [{"role": "user", "content": "What is 17 * 23?"}],
            "agent": {"tools": [{"name": "calculator"}], "options": {"manner": "brief"}},
            "stream": "message",
        },
        after="plain",
    ),
    Example(
        "allow",
        "Allow it",
        {"stopReason": "end_turn", "messages": _CALCULATED},
        body={"messages": [{"role": "tool_permission", "toolCallId": CALL, "granted": True}]},
        after="calculate",
    ),
    Example(
        "deny",
        "Deny it",
        {
            "stopReason": "end_turn",
            "messages": [
                {"role": "tool", "toolCallId": CALL, "content": "Tool call denied: do it in your head"},
                {
                    "role": "assistant",
                    "content": [
                        _PASSING_ON,
                        {
                            "type": "text",
                            "text": "You did not allow `calculator`, so it did not run. That is how it should be: you decide.",
                        },
                    ],
                },
            ],
        },
        body={"messages": [{"role": "tool_permission", "toolCallId": CALL, "granted": False, "reason": "do it in your head"}]},
        after="calculate",
    ),
    Example(
        "own_tool",
        "A tool of the client: the agent calls it",
        {
            "stopReason": "tool_use",
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": _CALLING[0]},
                        {"type": "text", "text": _CALLING[1]},
                        {"type": "tool_use", "toolCallId": CALL, "name": "look_up_order", "input": {"number": "hello"}},
                    ],
                }
            ],
        },
        body={
            "messages": [{"role": "user", "content": "Use a tool."}],
            "agent": {"options": {"manner": "brief"}},
            "tools": [ORDER_TOOL],
        },
        after="plain",
    ),
    Example(
        "own_result",
        "Send its result",
        {
            "stopReason": "end_turn",
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        _PASSING_ON,
                        {"type": "text", "text": "Your application ran `look_up_order` and answered: shipped yesterday."},
                    ],
                }
            ],
        },
        body={"messages": [{"role": "tool", "toolCallId": CALL, "content": "shipped yesterday"}]},
        after="own_tool",
    ),
)
HISTORY = (
    Example(
        "full",
        "After a tool was allowed",
        {
            "history": {
                "full": [
                    {"role": "user", "content": "What is 17 * 23?"},
                    {"role": "assistant", "content": _CALCULATING},
                    *_CALCULATED,
                ]
            }
        },
        query={"type": "full"},
        after="allow",
    ),
)
JOIN = (
    Example("nothing", "Nothing is running", None, 204, query={"stream": "delta"}, after="plain"),
    Example(
        "missed",
        "The events after the start of a turn",
        TURNS[2].answer.partition("\n\n")[2],
        query={"stream": "message", "after": _POSITIONS[0]},
        after="calculate",
    ),
)
CANCEL = (
    Example(
        "waiting",
        "A turn that waits for the client",
        {"cancelled": True, "providerClosed": True},
        body={"reason": "the user left"},
        after="own_tool",
    ),
    Example("idle", "Nothing in progress", {"cancelled": False}, body={}, after="plain"),
)
