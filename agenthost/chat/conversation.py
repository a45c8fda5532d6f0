"""A session and its turns, from the client's side.

Keeps the session's settings (options, tools, trust) and its open calls. Sends changed settings with the next turn, shows
the events, and answers open calls until the turn is over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from agenthost.chat import calls
from agenthost.chat.calls import Responder
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.screen import Screen, text_of
from agenthost.client.agents import Agent
from agenthost.client.calls import Call, call_of_event, pending
from agenthost.client.errors import ClientError, Refused, StreamLost
from agenthost.client.runs import Run, TurnEvent
from agenthost.client.server import Server
from agenthost.client.session_use import Use
from agenthost.client.tools import ClientTool

STOPPED = "stopped"
"""In place of a stop reason: this client has cancelled the turn."""
DETACHED = "detached"
"""In place of a stop reason: this client stopped reading the stream; the turn may still be running."""

OFF, ASK, TRUST = "off", "ask", "trust"

_RATE_LIMIT = re.compile(r'"([^"]+)"[^,]*?;r=(\d+)[^,]*?;t=(\d+)')
_FRAME_SECONDS = 0.1
CANCEL_COMMANDS = ("/cancel", "/stop")
DETACH_COMMANDS = ("/detach",)


@dataclass
class SessionSettings:
    """The settings that the user wants for the session, which may not exist yet."""

    options: dict[str, str] = field(default_factory=dict)
    server_tools: dict[str, str] = field(default_factory=dict)
    """The state of each exposed tool: OFF, ASK or TRUST."""
    client_tools: dict[str, ClientTool] = field(default_factory=dict)

    def references(self) -> list[dict[str, Any]]:
        enabled = [(name, state) for name, state in self.server_tools.items() if state != OFF]
        return [{"name": name, **({"trust": True} if state == TRUST else {})} for name, state in enabled]

    def specifications(self) -> list[dict[str, Any]]:
        return [tool.specification for tool in self.client_tools.values()]


class Conversation:
    def __init__(
        self,
        server: Server,
        agent: Agent,
        settings: SessionSettings,
        *,
        responder: Responder,
        screen: Screen,
        keyboard: Keyboard,
        runner: asyncio.Runner,
    ) -> None:
        self.server, self.agent, self.settings = server, agent, settings
        self._responder, self._screen, self._keyboard, self._runner = responder, screen, keyboard, runner
        self.session: str | None = None
        self.turn_id = ""
        self.open_calls: dict[str, Call] = {}
        """Calls of the last step without a result."""
        self.shows_use = False
        """Show after each answer what it has used, if the server reports it."""
        self._used: Use | None = None
        """What the session has used, as far as it was reported; None: not known."""
        self._unsent: set[str] = set()
        """Settings that were not sent yet: ``server_tools``, ``client_tools``, ``option NAME``."""
        self._step: dict[str, str] = {}
        """Tool names by call id of the step that is shown; used to label results of parallel calls."""

    # --- settings ---

    def set_option(self, name: str, value: str) -> None:
        self.settings.options[name] = self.agent.option(name).checked(value)
        self._unsent.add(f"option {name}")

    def set_tool(self, name: str, state: str) -> None:
        self.settings.server_tools[self.agent.tool(name)] = state
        self._unsent.add("server_tools")

    def send_tools(self) -> None:
        """Send the client's tools with the next turn, because the session may have others."""
        self._unsent.add("client_tools")

    # --- sessions ---

    def start_new(self) -> None:
        """Let the next message create a new session."""
        self.session = None
        self._used = None
        self.open_calls.clear()
        self._unsent.clear()

    def resume(self, session: str, document: Mapping[str, Any]) -> None:
        """Continue a session of this agent; ``document`` is the server's description of it."""
        self.start_new()
        self.session = session
        value = document.get("agent")
        agent = value if isinstance(value, dict) else {}
        options = agent.get("options")
        self.settings.options = dict(options) if isinstance(options, dict) else {}
        references = [each for each in agent.get("tools") or [] if isinstance(each, dict)]
        enabled = {str(each.get("name")): TRUST if each.get("trust") is True else ASK for each in references}
        self.settings.server_tools = {name: enabled.get(name, OFF) for name in self.agent.tools}

    def history(self) -> list[dict[str, Any]] | None:
        """The messages; None if there is no session yet or the agent offers no history."""
        kind = self.agent.history_kind
        if self.session is None or kind is None:
            return None
        return self._runner.run(self.server.history(self.session, kind))

    def load_open_calls(self) -> None:
        """Read the open calls from the history, because this client has not received all events."""
        history = self.history()
        self.open_calls = pending(history) if history is not None else {}

    # --- turns ---

    def send_message(self, content: Any) -> str:
        """Send a user message and run the turn; returns the stop reason."""
        # The server closes calls that are still open when a new message arrives.
        self.open_calls.clear()
        return self._turn([{"role": "user", "content": content}])

    def answer_open_calls(self) -> str:
        """Answer the open calls and run the rest of the turn; returns the stop reason."""
        answers = self._answers()
        return STOPPED if answers is None else self._turn(answers)

    def watch(self) -> str | None:
        """Join the session's running turn; returns the stop reason, or None if no turn runs."""
        assert self.session is not None
        run = Run(self.server, self.session, self.agent.stream_mode, self._screen.note)
        self.open_calls.clear()
        stopped = self._runner.run(self._follow(run, run.join()))
        if not run.accepted:
            return None
        return self._finish_turn(stopped)

    def cancel(self) -> None:
        """Cancel the session's running or waiting turn."""
        if self.session is None:
            self._screen.note("Nothing is running.")
            return
        cancelled = self._runner.run(self._stop())
        if cancelled is not None:
            self._screen.note("Stopped." if cancelled.get("cancelled") is True else "Nothing is running.")
            self.open_calls.clear()

    def _turn(self, messages: list[dict[str, Any]]) -> str:
        return self._finish_turn(self._send(messages))

    def _finish_turn(self, stopped: str) -> str:
        """Continue after one request until the turn is over."""
        while stopped == "tool_use":
            if not self.open_calls:
                self.load_open_calls()
            if not self.open_calls:
                self._screen.note("The agent waits for a tool call that is not in the history.")
                break
            answers = self._answers()
            if answers is None:
                return STOPPED
            stopped = self._send(answers)
        self._report_use()
        return stopped

    def _report_use(self) -> None:
        """Show the use of the turn. If that of before is not known, that of the session alone."""
        if not self.shows_use or self.session is None:
            return
        found = self._runner.run(self.server.use(self.session))
        if found is None:
            return
        before, self._used = self._used, found.use
        of_turn = found.use if before is None else found.use.since(before)
        if of_turn.is_nothing:
            return
        session = "" if of_turn == found.use and before is not None else f"the session {found.use}"
        self._screen.note(f"({'; '.join(filter(None, ['' if before is None else str(of_turn), session]))})")

    def _answers(self) -> list[dict[str, Any]] | None:
        """Answers to the open calls; None if the user stopped the turn instead (Ctrl-C)."""
        client_tools = self.settings.client_tools
        enabled = {name for name, state in self.settings.server_tools.items() if state != OFF}
        try:
            answers = calls.answer_calls(
                list(self.open_calls.values()),
                responder=self._responder,
                client_tools=client_tools,
                server_tools=enabled - client_tools.keys(),
                screen=self._screen,
                runner=self._runner,
            )
        except KeyboardInterrupt:
            self._screen.on_line_started()
            self.cancel()
            return None
        for name in answers.trusted:
            self.set_tool(name, TRUST)
            self._screen.note(f"  {name} is trusted for the rest of this session.")
        return answers.messages

    def _send(self, messages: list[dict[str, Any]]) -> str:
        if self.session is None:
            self.session = self._runner.run(self.server.create(self._creation()))
            self._used = Use()
            self._unsent.clear()
        body = {"messages": messages, **self._overrides()}
        unsent = set(self._unsent)
        run = Run(self.server, self.session, self.agent.stream_mode, self._screen.note)
        try:
            return self._runner.run(self._follow(run, run.send(body), messages))
        finally:
            if run.accepted:
                self._unsent -= unsent

    def _creation(self) -> dict[str, Any]:
        agent: dict[str, Any] = {"name": self.agent.name}
        if self.settings.options:
            agent["options"] = self.settings.options
        if self.settings.references():
            agent["tools"] = self.settings.references()
        tools = self.settings.specifications()
        return {"agent": agent, **({"tools": tools} if tools else {})}

    def _overrides(self) -> dict[str, Any]:
        agent: dict[str, Any] = {}
        if "server_tools" in self._unsent:
            agent["tools"] = self.settings.references()
        options = {name: value for name, value in self.settings.options.items() if f"option {name}" in self._unsent}
        if options:
            agent["options"] = options
        tools = {"tools": self.settings.specifications()} if "client_tools" in self._unsent else {}
        return {**({"agent": agent} if agent else {}), **tools}

    # --- one request ---

    async def _follow(self, run: Run, turn_events: AsyncGenerator[TurnEvent], answers: Sequence[Mapping[str, Any]] = ()) -> str:
        """Show the events while Ctrl-C and typed commands are handled; returns the stop reason."""
        stopping: asyncio.Task[Mapping[str, Any] | None] | None = None
        loop = asyncio.get_running_loop()
        began = latest = loop.time()

        async def show_waiting() -> None:
            while True:
                await asyncio.sleep(_FRAME_SECONDS)
                self._screen.wait(loop.time() - latest, loop.time() - began)

        async def show() -> None:
            nonlocal latest
            is_first = True
            async with aclosing(turn_events):
                async for turn_event in turn_events:
                    latest = loop.time()
                    if is_first:
                        self._mark_accepted(answers)
                        is_first = False
                    self._show(turn_event)

        showing = asyncio.ensure_future(show())
        waiting = asyncio.ensure_future(show_waiting())

        async def stop() -> Mapping[str, Any] | None:
            cancelled = await self._stop()
            if cancelled is None:
                showing.cancel()
            return cancelled

        def begin_stop() -> None:
            nonlocal stopping
            if stopping is not None or not run.accepted:
                showing.cancel()
                return
            self._screen.note("Stopping …")
            stopping = asyncio.ensure_future(stop())

        def on_interrupt() -> None:
            self._screen.on_line_started()
            begin_stop()

        def on_line(line: str) -> bool:
            word = line.strip().lower()
            if word in CANCEL_COMMANDS:
                begin_stop()
            elif word in DETACH_COMMANDS:
                showing.cancel()
            elif word and run.accepted:
                self._screen.note("(will be sent when the turn is over)")
                return False
            else:
                return not word
            return True

        with self._keyboard.listening(on_line, on_interrupt):
            try:
                await showing
            except asyncio.CancelledError:
                if not showing.cancelled():
                    raise
                return self._detached(run)
            except StreamLost as lost:
                self._screen.error(str(lost))
                return DETACHED
            finally:
                showing.cancel()
                waiting.cancel()
                self._screen.end_message()
                self.turn_id = run.turn or self.turn_id
            if stopping is not None:
                cancelled = await stopping
                if cancelled is not None and cancelled.get("cancelled") is True:
                    self._screen.note(_cancel_message(cancelled))
                    self.open_calls.clear()
                    return STOPPED
        return self._stopped(run)

    async def _stop(self) -> Mapping[str, Any] | None:
        """Cancel at the server; returns its response, or None if that failed."""
        assert self.session is not None
        try:
            return await self.server.cancel(self.session)
        except Refused as refused:
            if refused.status in (404, 405):
                self._screen.note("This server does not support cancelling turns.")
            else:
                self._screen.error(str(refused))
        except ClientError as error:
            self._screen.error(f"The turn could not be stopped. {error}")
        return None

    def _detached(self, run: Run) -> str:
        if run.accepted:
            self._screen.note("Detached; the turn continues at the server. /watch joins it again.")
        else:
            self._screen.note("Cancelled before the server accepted the request.")
        return DETACHED

    def _mark_accepted(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """The server has accepted the answers. Calls with a result are closed; allowed calls stay open until their result."""
        for answer in answers:
            call = self.open_calls.get(str(answer.get("toolCallId")))
            if call is not None and answer["role"] == "tool":
                del self.open_calls[call.id]
            elif call is not None:
                call.was_granted = answer["granted"]

    def _show(self, turn_event: TurnEvent) -> None:
        data = turn_event.data
        if turn_event.name in ("text_delta", "text", "thinking_delta", "thinking"):
            self._step.clear()
        match turn_event.name:
            case "text_delta":
                self._screen.text(str(data.get("delta", "")))
            case "text":
                self._screen.text(str(data.get("text", "")))
                self._screen.end_message()
            case "thinking_delta":
                self._screen.thinking(str(data.get("delta", "")))
            case "thinking":
                self._screen.thinking(str(data.get("thinking", "")))
                self._screen.end_message()
            case "tool_call":
                call = call_of_event(data)
                call.shown_whole = self._screen.call(call.name, call.input)
                self.open_calls[call.id] = call
                self._step[call.id] = call.name
            case "tool_result":
                call_id = str(data.get("toolCallId"))
                self.open_calls.pop(call_id, None)
                name = f"{self._step[call_id]}: " if call_id in self._step and len(self._step) > 1 else ""
                self._screen.result(name + text_of(data.get("content")))
            case "image":
                self._screen.note(text_of([data]))

    def _stopped(self, run: Run) -> str:
        self._screen.end_message()
        if run.stopped is None:
            return DETACHED
        reason = str(run.stopped.get("stopReason"))
        match reason:
            case "max_tokens":
                self._screen.note("(The answer is incomplete: a token limit is reached.)")
            case "refusal":
                self._screen.note("(The model declined.)")
            case "error":
                turn = f" Turn id: {run.turn}." if run.turn else ""
                self._screen.error(f"The turn failed at the server. The reason is in the server's log.{turn}")
        usage = run.stopped.get("usage")
        if isinstance(usage, dict):
            counts = [f"{name} {value}" for name, value in usage.items() if isinstance(value, int | float)]
            if counts:
                self._screen.note(f"({', '.join(counts)})")
        for limit, remaining, seconds in _RATE_LIMIT.findall(run.rate):
            if remaining == "0":
                self._screen.note(f"(Limit used up: {limit.replace('-', ' ')}; resets in {seconds} s.)")
        return reason


def _cancel_message(cancelled: Mapping[str, Any]) -> str:
    if cancelled.get("providerClosed") is True:
        return "Stopped; the request to the model is closed."
    return "Stopped."
