"""In-memory host of the agent loop: keeps one turn of a conversation without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from agents_app import compaction
from agents_app.runtime import content
from agents_app.runtime.interface import Call, Change, EndReason, FileEdit, FormAnswer, StepMessage
from agents_app.runtime.messages import Content, Message, ToolSchema

Decision = Literal["granted", "denied", "done"]


class MemoryHost:
    """interface.Host in memory. Records each call of the loop in ``said``, and keeps messages and the calls' states.

    ``turn``: the turn's number in its conversation. ``fits``: shortens a conversation to the model's limit. A subclass
    implements the clients (``attend``, ``ask``).
    """

    def __init__(
        self,
        messages: Sequence[Message] = (),
        turn: int = 1,
        fits: Callable[[Sequence[Message]], Sequence[Message]] = compaction.for_model,
    ) -> None:
        self.history = list(messages)
        self.said: list[tuple[Any, ...]] = []
        self.calls: dict[str, Call] = {}
        self.messages: list[StepMessage] = []
        self.results: dict[str, Content] = {}
        self.failed: set[str] = set()
        self.edits: list[FileEdit] = []
        self.ended: tuple[EndReason, str] | None = None
        self._turn, self._fits = turn, fits
        self._step = 0
        self._answered = asyncio.Event()
        self._heard: dict[str, asyncio.Event] = {}
        self._taken = {call["toolCallId"] for message in self.history for call in _calls_in(message)}

    # --- for tests ---

    @property
    def names(self) -> list[str]:
        """The methods that the loop called, in order, without ``look`` and ``answered``."""
        return [each[0] for each in self.said if each[0] not in ("look", "answered")]

    async def heard(self, name: str) -> None:
        """Wait until the loop has called the method."""
        await self._heard.setdefault(name, asyncio.Event()).wait()

    def note(self, name: str, *facts: Any) -> None:
        """Record a call of the loop. A subclass may raise ``RunLost`` here."""
        self.said.append((name, *facts))
        self._heard.setdefault(name, asyncio.Event()).set()

    # --- clients ---

    def decide(self, call_id: str, state: Decision, content: Content = "") -> None:
        """A client grants a call, denies it, or gives its result."""
        call = self.calls[call_id]
        if state != "granted":
            self.results.setdefault(call_id, content)
            self._remember("tool", content, call_id)
        call.state = state
        self._answered.set()

    async def attend(self) -> bool:
        """Answer open calls for the clients when the turn is about to wait; returns whether any was answered."""
        return False

    async def ask(self, call: Call, form: Mapping[str, Any]) -> FormAnswer:  # noqa: ARG002 - for a subclass
        return FormAnswer("decline")

    # --- interface.Host ---

    def _remember(
        self, role: Literal["assistant", "tool"], text: Content, call_id: str | None = None, data: str | None = None
    ) -> None:
        position = self.history[-1].position + 1 if self.history else 1
        self.history.append(Message(role, text, call_id, data, self._turn, self._step, position))

    async def step_started(self, step: int) -> None:
        self._step = step
        self.note("step_started", step)

    async def part_opened(self, step: int, part_id: str, kind: Literal["text", "thinking"], *, late: bool) -> None:  # noqa: ARG002
        self.note("part_opened", part_id, kind, late)

    async def delta(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> None:  # noqa: ARG002
        self.note("delta", part_id, text, late)

    def delta_at_once(self, step: int, part_id: str, kind: Literal["text", "thinking"], text: str, *, late: bool) -> bool:  # noqa: ARG002
        self.note("delta", part_id, text, late)
        return True

    async def call_opened(self, step: int, part_id: str, call_id: str, name: str) -> None:  # noqa: ARG002
        self.note("call_opened", part_id, call_id, name)

    async def call_arguments(self, step: int, call_id: str, text: str) -> None:  # noqa: ARG002
        self.note("call_arguments", call_id, text)

    async def free_call_id(self, wanted: str | None) -> str:
        number = len(self._taken) + 1
        found = wanted if wanted and wanted not in self._taken else f"call-{number}"
        while found in self._taken:
            number += 1
            found = f"call-{number}"
        self._taken.add(found)
        return found

    async def message_done(self, message: StepMessage, end: EndReason | None = None, error: str = "") -> None:
        self.note("message_done", end, error)
        self.messages.append(message)
        shown = content.of_assistant(message.text, message.thinking, message.calls)
        if shown is not None:
            self._remember("assistant", shown, data=message.provider_data)
        for call in message.calls:
            self.calls[call.call_id] = replace(call)
        if end is not None:
            self.ended = (end, error)

    async def call_running(self, call: Call) -> None:
        self.note("call_running", call.call_id)
        self.calls[call.call_id].state = "running"

    async def call_finished(self, call: Call, content: Content, *, failed: bool, edits: Sequence[FileEdit] = ()) -> None:
        self.edits += edits
        self.results[call.call_id] = content
        if failed:
            self.failed.add(call.call_id)
        self._remember("tool", content, call.call_id)
        self.note("call_finished", call.call_id, failed)
        self.calls[call.call_id].state = "done"

    async def show_terminal(self, call: Call, resource: str, title: str, *, stays: bool, result: Any) -> None:  # noqa: ARG002
        self.note("show_terminal", call.call_id, resource, stays)

    async def look(self) -> list[Call]:
        self.note("look")
        self._answered.clear()
        return [replace(call) for call in self.calls.values() if call.state not in ("done", "denied")]

    async def next_step(self) -> Change | None:
        return None

    async def model_messages(self) -> Sequence[Message]:
        return self._fits(self.history)

    async def answered(self) -> None:
        await self._answered.wait()

    async def wait(self) -> bool:
        if await self.attend():
            return False
        self.note("wait")
        return any(call.state == "pending" for call in self.calls.values())

    async def end(self, reason: EndReason, error: str = "") -> None:
        self.note("end", reason, error)
        self.ended = (reason, error)


def fitting(
    instructions: str, schemas: Sequence[ToolSchema], limit: int | None, turn: int
) -> Callable[[Sequence[Message]], Sequence[Message]]:
    """A function that shortens a conversation to ``limit`` tokens by dropping turns, as the server does without a summary."""

    def fits(messages: Sequence[Message]) -> Sequence[Message]:
        return compaction.compact(compaction.for_model(messages), instructions, schemas, limit, turn).messages

    return fits


def _calls_in(message: Message) -> Sequence[Mapping[str, Any]]:
    if message.role != "assistant" or isinstance(message.content, str):
        return []
    return [block for block in message.content if block["type"] == "tool_use"]
