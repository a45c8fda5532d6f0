"""A session and its turns, as this client leads them.

Holds what the person wants of the session (options, trust, tools) and which calls are open; sends what has changed with the
next turn; shows what happens; has open calls answered until the turn is over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from agenthost.chat import calls
from agenthost.chat.agents import Agent
from agenthost.chat.calls import Call, Judge
from agenthost.chat.errors import ChatError, Refused
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.local_tools import ClientTool
from agenthost.chat.runs import CutOff, Happening, Run
from agenthost.chat.screen import Screen, text_of
from agenthost.chat.server import Server

STOPPED = "stopped"
"""Instead of a reason: this client has cancelled the turn."""
LEFT = "left"
"""Instead of a reason: this client does not listen any more, the turn may go on."""

OFF, ASK, TRUST = "off", "ask", "trust"

_STANDING = re.compile(r'"([^"]+)"[^,]*?;r=(\d+)[^,]*?;t=(\d+)')
STOP_WORDS = ("/cancel", "/stop")
LEAVE_WORDS = ("/detach",)


@dataclass
class Wishes:
    """What a session is to have, whether or not it is there yet."""

    options: dict[str, str] = field(default_factory=dict)
    server_tools: dict[str, str] = field(default_factory=dict)
    """Each exposed tool: OFF, ASK or TRUST."""
    client_tools: dict[str, ClientTool] = field(default_factory=dict)

    def references(self) -> list[dict[str, Any]]:
        named = [(name, state) for name, state in self.server_tools.items() if state != OFF]
        return [{"name": name, **({"trust": True} if state == TRUST else {})} for name, state in named]

    def specifications(self) -> list[dict[str, Any]]:
        return [tool.specification for tool in self.client_tools.values()]


class Conversation:
    def __init__(
        self,
        server: Server,
        agent: Agent,
        wishes: Wishes,
        *,
        judge: Judge,
        screen: Screen,
        keyboard: Keyboard,
        runner: asyncio.Runner,
    ) -> None:
        self.server, self.agent, self.wishes = server, agent, wishes
        self._judge, self._screen, self._keyboard, self._runner = judge, screen, keyboard, runner
        self.session: str | None = None
        self.turn_id = ""
        self.open: dict[str, Call] = {}
        """Calls of the last step that have no result."""
        self._unsent: set[str] = set()
        """What of the wishes the server has not been told: ``server_tools``, ``client_tools``, ``option NAME``."""
        self._step: dict[str, str] = {}
        """The calls of the step that is shown, with their tools: results of several at once say whose they are."""

    # --- what the session is to have ---

    def set_option(self, name: str, value: str) -> None:
        self.wishes.options[name] = self.agent.option(name).checked(value)
        self._unsent.add(f"option {name}")

    def set_tool(self, name: str, state: str) -> None:
        self.wishes.server_tools[self.agent.tool(name)] = state
        self._unsent.add("server_tools")

    def send_tools(self) -> None:
        """Tell the server about the client's tools with the next turn: the session may have others."""
        self._unsent.add("client_tools")

    # --- sessions ---

    def forget(self) -> None:
        """The next message begins a new session."""
        self.session = None
        self.open.clear()
        self._unsent.clear()

    def resume(self, session: str, document: Mapping[str, Any]) -> None:
        """Go on in a session of this agent, as the server describes it."""
        self.forget()
        self.session = session
        found = document.get("agent")
        described = found if isinstance(found, dict) else {}
        options = described.get("options")
        self.wishes.options = dict(options) if isinstance(options, dict) else {}
        references = [each for each in described.get("tools") or [] if isinstance(each, dict)]
        enabled = {str(each.get("name")): TRUST if each.get("trust") is True else ASK for each in references}
        self.wishes.server_tools = {name: enabled.get(name, OFF) for name in self.agent.tools}

    def history(self) -> list[dict[str, Any]] | None:
        """None if the agent shows none."""
        kind = self.agent.history_kind
        if self.session is None or kind is None:
            return None
        return self._runner.run(self.server.history(self.session, kind))

    def read_open_calls(self) -> None:
        """Take them from the history: this client has not seen them happen, or not to their end."""
        history = self.history()
        self.open = calls.pending(history) if history is not None else {}

    # --- turns ---

    def say(self, content: Any) -> str:
        """A user message, and the turn that comes of it. Why it stopped."""
        # Calls that are open still are closed by the server: their user has gone on.
        self.open.clear()
        return self._turn([{"role": "user", "content": content}])

    def go_on(self) -> str:
        """Answer the calls that are open, and the rest of the turn."""
        answers = self._answers()
        return STOPPED if answers is None else self._turn(answers)

    def watch(self) -> str | None:
        """Show the turn that runs there now, and take part in it. None if none runs."""
        assert self.session is not None
        run = Run(self.server, self.session, self.agent.stream_mode, self._screen.note)
        self.open.clear()
        stopped = self._runner.run(self._follow(run, run.joined()))
        if not run.accepted:
            return None
        return self._rest(stopped)

    def cancel(self) -> None:
        """Stop whatever runs or waits in the session."""
        if self.session is None:
            self._screen.note("Nothing is running.")
            return
        cancelled = self._runner.run(self._stop())
        if cancelled is not None:
            self._screen.note("Stopped." if cancelled.get("cancelled") is True else "Nothing is running.")
            self.open.clear()

    def _turn(self, messages: list[dict[str, Any]]) -> str:
        return self._rest(self._sent(messages))

    def _rest(self, stopped: str) -> str:
        """From the end of one request to the end of the turn."""
        while stopped == "tool_use":
            if not self.open:
                self.read_open_calls()
            if not self.open:
                self._screen.note("The agent waits for a tool, and the server does not say which.")
                break
            answers = self._answers()
            if answers is None:
                return STOPPED
            stopped = self._sent(answers)
        return stopped

    def _answers(self) -> list[dict[str, Any]] | None:
        """None: the person at the terminal would rather stop the turn."""
        client_tools = self.wishes.client_tools
        asking = {name for name, state in self.wishes.server_tools.items() if state != OFF}
        try:
            given = calls.answered(
                list(self.open.values()),
                judge=self._judge,
                client_tools=client_tools,
                server_tools=asking - client_tools.keys(),
                screen=self._screen,
                runner=self._runner,
            )
        except KeyboardInterrupt:
            self._screen.line_was_begun()
            self.cancel()
            return None
        for name in given.trusted:
            self.set_tool(name, TRUST)
            self._screen.note(f"  {name} is trusted from now on in this session.")
        return given.messages

    def _sent(self, messages: list[dict[str, Any]]) -> str:
        if self.session is None:
            self.session = self._runner.run(self.server.create(self._creation()))
            self._unsent.clear()
        body = {"messages": messages, **self._overrides()}
        unsent = set(self._unsent)
        run = Run(self.server, self.session, self.agent.stream_mode, self._screen.note)
        try:
            return self._runner.run(self._follow(run, run.sent(body), messages))
        finally:
            if run.accepted:
                self._unsent -= unsent

    def _creation(self) -> dict[str, Any]:
        agent: dict[str, Any] = {"name": self.agent.name}
        if self.wishes.options:
            agent["options"] = self.wishes.options
        if self.wishes.references():
            agent["tools"] = self.wishes.references()
        tools = self.wishes.specifications()
        return {"agent": agent, **({"tools": tools} if tools else {})}

    def _overrides(self) -> dict[str, Any]:
        agent: dict[str, Any] = {}
        if "server_tools" in self._unsent:
            agent["tools"] = self.wishes.references()
        options = {name: value for name, value in self.wishes.options.items() if f"option {name}" in self._unsent}
        if options:
            agent["options"] = options
        tools = {"tools": self.wishes.specifications()} if "client_tools" in self._unsent else {}
        return {**({"agent": agent} if agent else {}), **tools}

    # --- one request ---

    async def _follow(self, run: Run, happenings: AsyncGenerator[Happening], answers: Sequence[Mapping[str, Any]] = ()) -> str:
        """Show what happens, with Ctrl-C and typed words heard meanwhile. Why the run stopped."""
        stopping: asyncio.Task[Mapping[str, Any] | None] | None = None

        async def show() -> None:
            is_first = True
            async with aclosing(happenings):
                async for happening in happenings:
                    if is_first:
                        self._taken(answers)
                        is_first = False
                    self._show(happening)

        showing = asyncio.ensure_future(show())

        async def stop() -> Mapping[str, Any] | None:
            cancelled = await self._stop()
            if cancelled is None:
                showing.cancel()
            return cancelled

        def stop_it() -> None:
            nonlocal stopping
            if stopping is not None or not run.accepted:
                showing.cancel()
                return
            self._screen.note("Stopping …")
            stopping = asyncio.ensure_future(stop())

        def interrupted() -> None:
            self._screen.line_was_begun()
            stop_it()

        def typed(line: str) -> bool:
            word = line.strip().lower()
            if word in STOP_WORDS:
                stop_it()
            elif word in LEAVE_WORDS:
                showing.cancel()
            elif word and run.accepted:
                self._screen.note("(kept for when the turn is over)")
                return False
            else:
                return not word
            return True

        with self._keyboard.listening(typed, interrupted):
            try:
                await showing
            except asyncio.CancelledError:
                if not showing.cancelled():
                    raise
                return self._left(run)
            except CutOff as cut:
                self._screen.fault(str(cut))
                return LEFT
            finally:
                showing.cancel()
                self.turn_id = run.turn or self.turn_id
            if stopping is not None:
                cancelled = await stopping
                if cancelled is not None and cancelled.get("cancelled") is True:
                    self._screen.note(_words_of(cancelled))
                    self.open.clear()
                    return STOPPED
        return self._stopped(run)

    async def _stop(self) -> Mapping[str, Any] | None:
        """What the server says to a cancel; None if it cannot."""
        assert self.session is not None
        try:
            return await self.server.cancel(self.session)
        except Refused as refused:
            if refused.status in (404, 405):
                self._screen.note("This server cannot stop a turn.")
            else:
                self._screen.fault(str(refused))
        except ChatError as error:
            self._screen.fault(f"The turn could not be stopped. {error}")
        return None

    def _left(self, run: Run) -> str:
        if run.accepted:
            self._screen.note("Not listening any more; the turn goes on at the server. /watch joins it again.")
        else:
            self._screen.note("Given up; the server had not taken it.")
        return LEFT

    def _taken(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """The server has accepted the answers: those calls are not open any more, but for what it runs or tells itself."""
        for answer in answers:
            call = self.open.get(str(answer.get("toolCallId")))
            if call is not None and answer["role"] == "tool":
                del self.open[call.id]
            elif call is not None:
                call.was_granted = answer["granted"]

    def _show(self, happening: Happening) -> None:
        data = happening.data
        if happening.name in ("text_delta", "text", "thinking_delta", "thinking"):
            self._step.clear()
        match happening.name:
            case "text_delta":
                self._screen.text(str(data.get("delta", "")))
            case "text":
                self._screen.text(str(data.get("text", "")))
                self._screen.message_ends()
            case "thinking_delta":
                self._screen.thinking(str(data.get("delta", "")))
            case "thinking":
                self._screen.thinking(str(data.get("thinking", "")))
                self._screen.message_ends()
            case "tool_call":
                call = calls.of_happening(data)
                call.shown_whole = self._screen.call(call.name, call.input)
                self.open[call.id] = call
                self._step[call.id] = call.name
            case "tool_result":
                call_id = str(data.get("toolCallId"))
                self.open.pop(call_id, None)
                name = f"{self._step[call_id]}: " if call_id in self._step and len(self._step) > 1 else ""
                self._screen.result(name + text_of(data.get("content")))
            case "image":
                self._screen.note(text_of([data]))

    def _stopped(self, run: Run) -> str:
        self._screen.message_ends()
        if run.stopped is None:
            return LEFT
        reason = str(run.stopped.get("stopReason"))
        match reason:
            case "max_tokens":
                self._screen.note("(The answer ends here: a limit on its length, or on the conversation's, is reached.)")
            case "refusal":
                self._screen.note("(The model declined.)")
            case "error":
                named = f" It was turn {run.turn}." if run.turn else ""
                self._screen.fault(f"The turn failed at the server, whose log says why.{named}")
        usage = run.stopped.get("usage")
        if isinstance(usage, dict):
            counted = [f"{name} {value}" for name, value in usage.items() if isinstance(value, int | float)]
            if counted:
                self._screen.note(f"({', '.join(counted)})")
        for limit, left, seconds in _STANDING.findall(run.rate):
            if left == "0":
                self._screen.note(f"(That was the last one for now of {limit.replace('-', ' ')}; more in {seconds} s.)")
        return reason


def _words_of(cancelled: Mapping[str, Any]) -> str:
    if cancelled.get("providerClosed") is True:
        return "Stopped; the call to the model is closed."
    return "Stopped."
