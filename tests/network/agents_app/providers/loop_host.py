"""The agent loop with a real provider, and a history in memory as the core would keep it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agents_app import exact_json, providers
from agents_app.errors import ProviderError
from agents_app.runtime import loop
from agents_app.runtime.interface import Call, Change, EndReason, FileEdit, FormAnswer, Limits, StepMessage
from agents_app.runtime.messages import Content, Message, ToolSchema
from tests.fakes.scripted_server import ScriptedServer

Tool = Callable[..., Awaitable[Content]]
LIMITS = Limits(connect=60.0, first_output=90.0, between_outputs=90.0, max_steps=9, retries=1)


class Tools:
    """Tools by name: what they do."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        return [ToolSchema(name, f"Does {name}.", {"type": "object", "properties": {}}) for name in self._tools]

    def has(self, name: str) -> bool:
        return name in self._tools

    def idempotent(self, name: str) -> bool:
        return False

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        return ()

    async def run(self, name: str, arguments: Mapping[str, Any], ask: Any = None) -> Content:
        return await self._tools[name](**arguments)


class Conversation:
    """A session in memory: its turns, one after the other, each with whichever model is named."""

    def __init__(self, server: ScriptedServer, **tools: Tool) -> None:
        self.messages: list[Message] = []
        self.steps: list[StepMessage] = []
        self.ends: list[tuple[str, str]] = []
        self.faults: list[ProviderError] = []
        self.call_ids = itertools.count(1)
        self.known: set[str] = set()
        self._server = server
        self._tools = Tools(tools)

    async def turn(self, content: Content, model: str, **changes: Any) -> StepMessage:
        """Say something; the last message of the model's answer."""
        self.messages.append(Message("user", content))
        provider = providers.find(model.partition(":")[0])
        assert provider is not None
        fields: dict[str, Any] = {
            "provider": provider,
            "full_model": model,
            "model": model.partition(":")[2],
            "instructions": "Be brief.",
            "settings": {},
            "api_key": "sk-canary",
            "base_url": self._server.url,
            "headers": {},
            "limits": LIMITS,
            "tools": self._tools,
            "tool_schemas": self._tools.schemas,
            "why_free": lambda name: "setting",
            "client_tools": {},
            "provider_failed": self.faults.append,
        }
        async with asyncio.timeout(90):
            await loop.run(loop.Plan(**{**fields, **changes}), _Turn(self), 0)
        return self.steps[-1]


class _Turn:
    """The host of one turn (interface.Host)."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._calls: dict[str, Call] = {}
        self._results: dict[str, Content] = {}

    async def step_started(self, step: int) -> None:
        return

    async def part_opened(self, step: int, part_id: str, kind: str, *, late: bool) -> None:
        return

    async def delta(self, step: int, part_id: str, kind: str, text: str, *, late: bool) -> None:
        return

    def delta_at_once(self, step: int, part_id: str, kind: str, text: str, *, late: bool) -> bool:
        return True

    async def call_opened(self, step: int, part_id: str, call_id: str, name: str) -> None:
        return

    async def call_arguments(self, step: int, call_id: str, text: str) -> None:
        return

    async def free_call_id(self, wanted: str | None) -> str:
        known = self._conversation.known
        found = wanted if wanted and wanted not in known else f"made_{next(self._conversation.call_ids)}"
        known.add(found)
        return found

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        self._conversation.steps.append(message)
        for call in message.calls:
            self._calls[call.call_id] = call
        content: list[dict[str, Any]] = []
        if message.thinking:
            content.append({"type": "thinking", "thinking": message.thinking})
        if message.text:
            content.append({"type": "text", "text": message.text})
        for call in message.calls:
            given = exact_json.loads(call.arguments)
            content.append({"type": "tool_use", "toolCallId": call.call_id, "name": call.name, "input": given})
        if content:
            self._conversation.messages.append(Message("assistant", content, provider_data=message.provider_data))
        if end is not None:
            self._conversation.ends.append((end, error))

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: Any) -> None:
        return

    async def call_running(self, call: Call) -> None:
        self._calls[call.call_id].state = "running"

    async def call_finished(self, call: Call, content: Content, *, failed: bool, edits: Any = ()) -> None:
        self._calls[call.call_id].state = "done"
        self._results[call.call_id] = content

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:
        return FormAnswer("decline")

    async def look(self) -> list[Call]:
        return [call for call in self._calls.values() if call.state != "done"]

    async def next_step(self) -> Change | None:
        # As a history has them: in the order of the calls, whichever was done first.
        for call_id in self._calls:
            if call_id in self._results:
                result = self._results.pop(call_id)
                self._conversation.messages.append(Message("tool", result, tool_call_id=call_id))
        return None

    async def model_messages(self) -> Sequence[Message]:
        return list(self._conversation.messages)

    async def answered(self) -> None:
        await asyncio.Event().wait()

    async def wait(self) -> bool:
        raise AssertionError("there is no client")

    async def end(self, reason: EndReason, error: str = "") -> None:
        self._conversation.ends.append((reason, error))
