"""A turn that this client follows to its end, over as many requests as its tools and permissions need."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from agenthost.client import events, tools
from agenthost.client.calls import pending
from agenthost.client.errors import NotFound, StreamLost, UsageError
from agenthost.client.events import (
    Answered,
    Deny,
    Event,
    Mode,
    Permission,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    TurnResult,
    TurnStart,
    TurnStop,
)
from agenthost.client.runs import Run, TurnEvent
from agenthost.client.server import Server
from agenthost.client.tools import ClientTool, Invoke

ASKS_USER = "ask_user"
"""The server's tool that asks the user questions: its calls need answers, not a permission."""


@dataclass(slots=True)
class Answerers:
    """What a session answers calls with."""

    tools: dict[str, ClientTool] = field(default_factory=dict)
    permission: Permission | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """How a turn begins: with messages, or by joining the running turn after a position."""

    session: str
    mode: Mode
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    idempotency_key: str = ""
    after: str = ""


class AsyncTurn:
    """A turn's events, to iterate over. The turn continues at the server if the iteration is given up."""

    def __init__(
        self,
        server: Server,
        request: Request,
        answerers: Answerers,
        invoke: Invoke,
        on_accepted: Callable[[], None] | None = None,
    ) -> None:
        self._server, self._request, self._answerers, self._invoke = server, request, answerers, invoke
        self._on_accepted = on_accepted
        self._run = self._new_run(request.after)
        self._open: dict[str, ToolCall] = {}
        self._reads_history = request.body is None or bool(request.idempotency_key)
        """The open calls are in the history alone: events were missed, or the request may repeat an old one."""
        self._pieces: list[str] = []
        self._continues_piece = False
        self._events = self._follow()
        self.stop_reason = ""
        """Empty until the turn has ended."""

    @property
    def id(self) -> str:
        """``X-Turn-Id``: the same after each permission and result. Empty for a turn that was joined."""
        return self._run.turn

    @property
    def position(self) -> str:
        """The position of the last event. ``session.join(after=position)`` continues there, in any process."""
        return self._run.position

    @property
    def text(self) -> str:
        """The answer so far. Pieces before and after tool calls are separated by an empty line."""
        return "\n\n".join(self._pieces)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return tuple(self._open.values())

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def __anext__(self) -> Event:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading. The turn continues; ``session.cancel()`` stops it."""
        await self._events.aclose()

    async def result(self) -> TurnResult:
        """Read the rest of the events and return the answer."""
        async with aclosing(self._events) as rest:
            async for _ in rest:
                pass
        return TurnResult(self.stop_reason, self.text, self.id, self.open_calls)

    # --- following ---

    def _new_run(self, after: str = "") -> Run:
        request = self._request
        return Run(self._server, request.session, request.mode, lambda _text: None, headers=request.headers, after=after)

    async def _follow(self) -> AsyncGenerator[Event]:
        request = self._request
        arriving = self._run.join() if request.body is None else self._run.send(request.body, request.idempotency_key)
        is_first = True
        while True:
            async with aclosing(self._typed(arriving)) as typed_events:
                async for event in typed_events:
                    if is_first or not isinstance(event, TurnStart):
                        yield event
            if self._run.stopped is None and is_first:
                # There was no running turn to join.
                return
            if self._run.stopped is None:
                raise StreamLost("Another request has continued this turn, and it is over. Its end is in the history.")
            is_first = False
            reason = str(self._run.stopped.get("stopReason"))
            if reason == "tool_use":
                if self._reads_history:
                    await self._read_open_calls()
                if not self._open and self._reads_history:
                    # Another request has answered them, and the turn runs or is over.
                    self._run = self._new_run()
                    arriving = self._run.join()
                    continue
                answers = await self._answers()
                for answered in answers:
                    yield answered
                if answers:
                    self._run = self._new_run()
                    arriving = self._run.send({"messages": [_message(each) for each in answers]}, is_first=False)
                    continue
            self.stop_reason = reason
            yield TurnStop(reason)
            return

    async def _typed(self, arriving: AsyncGenerator[TurnEvent]) -> AsyncGenerator[Event]:
        """The run's events, without its end, while the text and the open calls are kept up to date."""
        async with aclosing(arriving) as turn_events:
            async for turn_event in turn_events:
                if self._run.accepted and self._on_accepted is not None:
                    self._on_accepted()
                    self._on_accepted = None
                event = events.typed(turn_event)
                if event is None or isinstance(event, TurnStop):
                    continue
                self._note(event)
                yield event

    def _note(self, event: Event) -> None:
        match event:
            case TextDelta(text) | Text(text) if self._continues_piece and isinstance(event, TextDelta):
                self._pieces[-1] += text
            case TextDelta(text) | Text(text):
                self._pieces.append(text)
            case ToolCall():
                self._open[event.id] = event
            case ToolResult():
                self._open.pop(event.call_id, None)
        self._continues_piece = isinstance(event, TextDelta)

    async def _read_open_calls(self) -> None:
        for kind in ("full", "compacted"):
            try:
                history = await self._server.history(self._request.session, kind)
            except NotFound:
                # The agent offers only the other one, or none: then those of the events count.
                continue
            self._open = {call.id: events.tool_call(call) for call in pending(history).values()}
            return

    async def _answers(self) -> list[Answered]:
        """Answers to the open calls that this client can answer; the others stay open."""
        answers = []
        for call in self.open_calls:
            tool = self._answerers.tools.get(call.name)
            if tool is not None:
                if tool.function is not None:
                    outcome = await tools.run(tool.function, call.input, self._invoke)
                    del self._open[call.id]
                    answers.append(Answered(call, content=outcome.content, error=outcome.error))
            elif self._answerers.permission is not None and call.name != ASKS_USER:
                answers.append(await self._decided(call, self._answerers.permission))
        return answers

    async def _decided(self, call: ToolCall, decide: Permission) -> Answered:
        decision = decide(call) if inspect.iscoroutinefunction(decide) else await self._invoke(lambda: decide(call))
        if inspect.isawaitable(decision):
            decision = await decision
        if not isinstance(decision, bool | Deny):
            raise UsageError(f"permission() must return True, False or Deny(reason), not {type(decision).__name__}")
        return Answered(call, granted=decision is True, content=decision.reason if isinstance(decision, Deny) else None)


def _message(answered: Answered) -> dict[str, Any]:
    if answered.granted is None:
        return events.result(answered.call.id, answered.content)
    return events.permission(answered.call.id, answered.granted or Deny(answered.content or ""))
