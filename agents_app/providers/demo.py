"""The provider ``demo``: a scripted guide instead of a model, which shows what an agent can do without any account.

Its answers depend on the request only, and it tells users that it is not a model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents_app import exact_json
from agents_app.runtime.interface import Finish, ModelRequest, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta
from agents_app.runtime.messages import Message, ToolSchema, calls_of, text_of

OWN_TOOLS = ("calculator", "current_time")
MAX_COUNT = 1000

_WORD = re.compile(r"\s*\S+\s*")
_SPOKEN = {"times": "*", "multiplied by": "*", "plus": "+", "minus": "-", "divided by": "/"}
_SPOKEN_WORD = re.compile(r"\b(times|multiplied by|plus|minus|divided by)\b", re.IGNORECASE)
_EXPRESSION = re.compile(r"[-(\d][-+*/×÷^%().\d\s]*[\d)]")
_OPERATION = re.compile(r"\d\s*\)*\s*(\*\*|[-+*/×÷^%])\s*\(*\s*-?\d")
_TIME = re.compile(r"\b(time|clock|date|today|permission)\b", re.IGNORECASE)
_TOOLS = re.compile(r"\btools?\b", re.IGNORECASE)
_COUNT = re.compile(r"\bcount(?:\s+(?:up\s+)?to\s+(\d{1,6}))?\b", re.IGNORECASE)
_SAMPLES: dict[str, Any] = {
    "string": "hello",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


class Demo:
    """The provider ``demo`` (interface.Provider). Settings: ``delay`` (seconds per word), ``name``, ``manner``."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request)


@dataclass(slots=True)
class _Answer:
    thinking: str
    text: str
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


async def _stream(request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
    delay = request.settings.get("delay", 0)
    delay = min(max(float(delay), 0.0), 5.0) if isinstance(delay, int | float) else 0.0
    answer = _answer(request)
    for word in _WORD.findall(answer.thinking):
        yield [ThinkingDelta(word)]
        await asyncio.sleep(delay)
    for word in _WORD.findall(answer.text):
        yield [TextDelta(word)]
        await asyncio.sleep(delay)
    for number, (name, arguments) in enumerate(answer.calls):
        yield [ToolCallDelta(number, None, name, "")]
        await asyncio.sleep(delay)
        yield [ToolCallDelta(number, arguments=exact_json.dumps(arguments))]
    yield [Finish("tool_calls" if answer.calls else "stop")]


def _answer(request: ModelRequest) -> _Answer:
    results = _fresh_results(request.messages)
    answer = _about_results(results) if results else _about_message(request)
    if request.settings.get("manner") == "brief":
        answer.text = answer.text.split("\n\n")[0]
    return answer


def _fresh_results(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """(tool, result) for the results at the end of the conversation, if it ends with results."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.append(message)
            continue
        names = {call["toolCallId"]: call["name"] for call in calls_of(message)}
        return [(names.get(result.tool_call_id, "a tool"), text_of(result.content)) for result in reversed(results)]
    return []


def _about_results(results: list[tuple[str, str]]) -> _Answer:
    said: list[str] = []
    for name, text in results:
        if text.startswith("Tool call denied"):
            said.append(f"You did not allow `{name}`, so it did not run. That is how it should be: you decide.")
        elif text.startswith(("Tool execution failed", "Tool not found")):
            said.append(f"`{name}` gave no result ({_short(text)}). The conversation goes on all the same.")
        elif name == "calculator":
            said.append(f"The calculator says {_short(text)}.")
        elif name == "current_time":
            said.append(f"The clock says {_short(text)}.")
        else:
            said.append(f"Your application ran `{name}` and answered: {_short(text) or '(nothing)'}.")
    return _Answer(
        thinking="The results are here. I pass them on as they are.",
        text=" ".join(said) + '\n\nWhat next? Say "count to 30" and stop me halfway, or read this session\'s history.',
    )


def _about_message(request: ModelRequest) -> _Answer:
    message = next((message for message in reversed(request.messages) if message.role == "user"), None)
    text = text_of(message.content) if message else ""
    tools = {tool.name: tool for tool in request.tools}
    theirs = [tool for tool in request.tools if tool.name not in OWN_TOOLS]
    expression = _expression(text)
    if expression is not None:
        return _calculation(expression, "calculator" in tools)
    if _TOOLS.search(text):
        return _tool_round(theirs, tools)
    if _TIME.search(text):
        return _clock("current_time" in tools)
    if count := _COUNT.search(text):
        upto = min(int(count.group(1) or 20), MAX_COUNT)
        return _Answer(
            thinking="Counting is dull, but a good moment to try a cancel.",
            text=f"I count to {upto}; stop me whenever you like.\n\n" + " ".join(str(number) for number in range(1, upto + 1)),
        )
    images = 0 if message is None or isinstance(message.content, str) else sum(b["type"] == "image" for b in message.content)
    return _introduction(request, images, theirs)


def _calculation(expression: str, enabled: bool) -> _Answer:
    if not enabled:
        return _Answer(
            thinking=f"{expression} is a sum, but the calculator is off in this session.",
            text=f"I would give {expression} to my calculator, but this session has it switched off.\n\n"
            'Send the turn again with "agent": {"tools": [{"name": "calculator"}]} and I will ask you before I use it; '
            'with "trust": true in the entry I will not even ask.',
        )
    return _Answer(
        thinking=f"{expression} is a sum. I cannot calculate by myself, so I use the calculator.",
        text=f"Let me calculate {expression}.",
        calls=[("calculator", {"expression": expression})],
    )


def _clock(enabled: bool) -> _Answer:
    if not enabled:
        return _Answer(
            thinking="I have no clock of my own, and the tool for it is off.",
            text="I could look at the clock, but this session has that tool switched off.\n\n"
            'Send the turn again with "agent": {"tools": [{"name": "current_time"}]} in the request: '
            "I will then ask for your permission first.",
        )
    return _Answer(
        thinking="I have no clock of my own. The tool needs a permission unless this session trusts it.",
        text="I would like to look at the clock. Unless you have trusted this tool, your application is asking you now.",
        calls=[("current_time", {"timezone": "UTC"})],
    )


def _tool_round(theirs: list[ToolSchema], tools: Mapping[str, ToolSchema]) -> _Answer:
    calls: list[tuple[str, Mapping[str, Any]]] = []
    if theirs:
        calls.append((theirs[0].name, _sample(theirs[0].parameters)))
    if "calculator" in tools:
        calls.append(("calculator", {"expression": "6 * 7"}))
    if "current_time" in tools:
        calls.append(("current_time", {"timezone": "UTC"}))
    if not calls:
        return _Answer(
            thinking="There is no tool in this session, neither mine nor the application's.",
            text="There are two kinds of tools: mine, which you switch on, and your application's own, which it declares. "
            "This session has neither.\n\n"
            'To switch mine on, send "agent": {"tools": [{"name": "calculator"}, {"name": "current_time"}]}. '
            'To declare your own, send "tools": [{"name": ..., "description": ..., "parameters": {...}}]; '
            "I will call it, and you send back what it gave.",
        )
    names = " and ".join(f"`{name}`" for name, _ in calls)
    return _Answer(
        thinking=f"Tools are asked for. There is {names} here: I call each once, all at the same time.",
        text=f"I call {names} now. Your application runs its own tools; mine run here once you allow them.",
        calls=calls,
    )


def _introduction(request: ModelRequest, images: int, theirs: list[ToolSchema]) -> _Answer:
    name = request.settings.get("name")
    hello = f"Hello, {name}!" if isinstance(name, str) and name.strip() else "Hello!"
    seen = f" You sent {images} image{'s' if images > 1 else ''}: they arrived, but I have no eyes." if images else ""
    own = f' Say "use a tool" and I call your application\'s `{theirs[0].name}`.' if theirs else ""
    return _Answer(
        thinking="Somebody new. I say what I am, and what can be tried.",
        text=f"{hello} I am a scripted guide: no model is behind me, every word was written beforehand. "
        f"What you see is real all the same: this answer is streamed, stored and can be read again.{seen}\n\n"
        'Things to try: ask me "What is 17 * 23?" and I use a calculator. Ask for the time and I ask for your permission. '
        f'Say "tools" and I show how tools work.{own} Say "count to 50" and stop me while I talk.',
    )


def _expression(text: str) -> str | None:
    text = _SPOKEN_WORD.sub(lambda word: _SPOKEN[word.group().lower()], text)
    for candidate in _EXPRESSION.finditer(text):
        expression = candidate.group().strip()
        if _OPERATION.search(expression) and expression.count("(") == expression.count(")"):
            return expression
    return None


def _sample(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simple sample arguments for the required members of a schema."""
    properties = parameters.get("properties")
    required = parameters.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    return {name: _sample_value(properties.get(name)) for name in required if isinstance(name, str)}


def _sample_value(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return "hello"
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return _sample(schema)
    return _SAMPLES.get(kind, "hello") if isinstance(kind, str) else "hello"


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"
