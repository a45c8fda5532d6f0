"""The interactive chat: a prompt for messages and slash commands."""

from __future__ import annotations

import asyncio
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agenthost.chat import options, session_list
from agenthost.chat.conversation import ASK, DETACHED, OFF, TRUST, Conversation
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.screen import Screen, text_of
from agenthost.client import agents, images
from agenthost.client.agents import Agent
from agenthost.client.errors import ClientError, Refused, UsageError
from agenthost.client.runs import events_of_message
from agenthost.client.safe_text import one_line

PROMPT = "> "
_MESSAGES_AT_RESUME = 6
_LISTED = 10


class Chat:
    """``resume_command`` is the command line that continues a session, without its id."""

    def __init__(
        self,
        conversation: Conversation,
        known: Sequence[Agent],
        *,
        screen: Screen,
        keyboard: Keyboard,
        runner: asyncio.Runner,
        resume_command: str,
    ) -> None:
        self._conversation, self._known = conversation, known
        self._screen, self._keyboard, self._runner = screen, keyboard, runner
        self._resume_command = resume_command
        self._images: list[dict[str, Any]] = []
        self._listed: list[str] = []
        """Ids of the sessions in the last list, so that they can be chosen by number."""
        self._is_done = False
        keyboard.set_completions(self._completions)

    # --- the loop ---

    def run(self) -> None:
        """Read and handle input until the user leaves."""
        while not self._is_done:
            self._screen.line()
            try:
                text = self._keyboard.message(PROMPT)
            except EOFError:
                self._screen.on_line_started()
                break
            except KeyboardInterrupt:
                self._screen.on_line_started()
                break
            self._report_errors(lambda text=text: self._handle_input(text))  # type: ignore[misc]  # bound now, called now
        self.farewell()

    def greet(self) -> None:
        agent = self._conversation.agent
        version = f" {agent.version}" if agent.version else ""
        self._screen.heading(f"{agent.title or agent.name} ({agent.name}{version})")
        if agent.description:
            self._screen.note(one_line(agent.description))
        self._screen.note(
            "Enter sends; \\ at the end of a line continues it. Ctrl-C stops a turn, Ctrl-D exits. /help lists the commands."
        )

    def farewell(self) -> None:
        session = self._conversation.session
        if session is not None:
            self._screen.note(f"To continue: {self._resume_command} --resume {session}")
        self._screen.end_line()

    def attach(self, references: Sequence[str]) -> None:
        for reference in references:
            self._attach(reference)

    def resume(self, session: str) -> None:
        """Continue a session: show its last messages, and join a running or waiting turn."""
        conversation = self._conversation
        conversation.open_calls.clear()
        history = conversation.history()
        if history is None:
            self._screen.note("This agent offers no history; earlier messages cannot be shown.")
        else:
            if len(history) > _MESSAGES_AT_RESUME:
                self._screen.note(f"… {len(history) - _MESSAGES_AT_RESUME} earlier messages (/history shows them)")
            self._show(history[-_MESSAGES_AT_RESUME:])
        self._screen.note(f"Session {session}")
        self._join_or_answer()

    def _join_or_answer(self) -> None:
        """Join the running turn, or answer the open calls."""
        conversation = self._conversation
        stopped = conversation.watch()
        if stopped is None:
            conversation.load_open_calls()
            if conversation.open_calls:
                self._screen.note("The agent waits for an answer:")
                for call in conversation.open_calls.values():
                    call.shown_whole = self._screen.call(call.name, call.input)
                conversation.answer_open_calls()

    def _report_errors(self, act: Callable[[], None]) -> None:
        """Run a function and show its errors instead of raising them."""
        try:
            act()
        except ClientError as error:
            self._screen.error(str(error))
        except KeyboardInterrupt:
            self._screen.on_line_started()
            self._screen.note("Cancelled.")
        except EOFError:
            # Ctrl-D at a question. It stays open for any client that resumes the session.
            self._is_done = True

    def try_resume(self, session: str) -> None:
        self._report_errors(lambda: self.resume(session))

    # --- messages ---

    def _handle_input(self, text: str) -> None:
        if text.startswith("//"):
            self._send(text[1:])
        elif text.startswith("/"):
            self._command(text[1:])
        elif text.strip() or self._images:
            self._send(text)

    def _send(self, text: str) -> None:
        blocks = [{"type": "text", "text": text}] if text.strip() else []
        content: Any = [*blocks, *self._images] if self._images else text
        try:
            self._conversation.send_message(content)
        except Refused as refused:
            if refused.status != 409 or not self._confirm("A turn is already running in this session. Watch it?"):
                # Attached images stay for the next message.
                raise
            watched = self._conversation.watch()
            if watched is None:
                self._screen.note("The turn is already over.")
            if watched == DETACHED or not self._confirm("Send your message now?"):
                return
            self._conversation.send_message(content)
        self._images.clear()

    def _confirm(self, question: str) -> bool:
        while True:
            typed = self._keyboard.answer(f"{question} [Y/n] ").lower()
            if typed in ("", "y", "yes", "n", "no"):
                return typed in ("", "y", "yes")

    # --- commands ---

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        act = COMMANDS.get(name.lower())
        if act is None:
            suggestion = agents.suggestion(name, COMMANDS, "/")
            raise UsageError(
                f"There is no command /{one_line(name)}{suggestion} /help lists them; to send this as a message, type //"
            )
        act(self, rest.strip())

    def help(self, _rest: str) -> None:
        """/help: list the commands"""
        rows = []
        for name, act in COMMANDS.items():
            usage, _, text = (inspect.getdoc(act) or "").partition(": ")
            if usage.partition(" ")[0] == f"/{name}":
                rows.append((usage, text))
        self._screen.rows(rows)
        self._screen.note(
            "  While a turn runs: Ctrl-C or /cancel stops it, /detach leaves it running. // begins a message that starts with /."
        )

    def options(self, rest: str) -> None:
        """/options [NAME[=VALUE]]: show the agent's options, or change one"""
        conversation = self._conversation
        agent, values = conversation.agent, conversation.settings.options
        name, equals, value = rest.partition("=")
        if name:
            option = agent.option(name.strip())
            if equals and option.is_secret and value.strip():
                raise UsageError(
                    f"{option.name} is a secret: type /options {option.name}, which asks for the value without showing it"
                )
            conversation.set_option(option.name, value.strip() if equals else options.ask(option, self._keyboard, self._screen))
            self._screen.note(f"  {option.name} = {options.display(option, values)} (from the next message on)")
            return
        if not agent.options:
            self._screen.note("  This agent has no options.")
        self._screen.rows(
            [
                (each.name, options.display(each, values), ", ".join(each.choices) or each.description or each.title)
                for each in agent.options.values()
            ]
        )

    def tools(self, rest: str) -> None:
        """/tools [NAME on|off|ask|trust]: list the tools; allow, trust or switch off a server tool"""
        settings, agent = self._conversation.settings, self._conversation.agent
        if rest:
            name, _, state = rest.partition(" ")
            states = {"on": ASK, "ask": ASK, "off": OFF, "trust": TRUST}
            if state.strip() not in states:
                raise UsageError("Use /tools NAME with on, off, ask or trust")
            self._conversation.set_tool(name, states[state.strip()])
            self._screen.note(f"  {name}: {states[state.strip()]} (from the next message on)")
            return
        rows = [(name, settings.server_tools.get(name, OFF), one_line(text)) for name, text in agent.tools.items()]
        rows += [
            (name, "runs locally" if tool.function is not None else "manual", one_line(tool.description))
            for name, tool in settings.client_tools.items()
        ]
        if not rows:
            self._screen.note("  (none)")
        self._screen.rows(rows)

    def trust(self, rest: str) -> None:
        """/trust NAME: let a server tool run without asking"""
        self.tools(f"{rest} trust")

    def image(self, rest: str) -> None:
        """/image FILE|URL: send an image with the next message"""
        if not rest:
            raise UsageError("Use /image with a file or an https:// URL")
        for reference in _split(rest):
            self._attach(reference)

    def _attach(self, reference: str) -> None:
        block = images.block(self._conversation.agent, reference)
        images.check_total_size([*self._images, block])
        self._images.append(block)
        self._screen.note(f"  {text_of([block])} will be sent with the next message")

    def history(self, _rest: str) -> None:
        """/history: show the conversation so far"""
        messages = self._conversation.history()
        if messages is None:
            kind = self._conversation.agent.history_kind
            self._screen.note("  No messages yet." if kind is not None else "  This agent offers no history.")
            return
        self._show(messages)

    def sessions(self, _rest: str) -> None:
        """/sessions: list your sessions, the newest first"""
        found, more = self._runner.run(self._conversation.server.sessions())
        self._listed = [str(each.get("sessionId", "")) for each in found[:_LISTED]]
        summaries, dates = self._runner.run(session_list.about(self._conversation.server, self._known, found[:_LISTED]))
        marks = ["*" if each == self._conversation.session else " " for each in self._listed]
        rows = [
            (f"{mark}{number}", session, session_list.agent_of(each), *([date] if any(dates) else []), summary)
            for number, (mark, session, each, date, summary) in enumerate(
                zip(marks, self._listed, found, dates, summaries, strict=False), 1
            )
        ]
        self._screen.rows(rows, truncate_last=True)
        if not rows:
            self._screen.note("  (none)")
        elif more or len(found) > _LISTED:
            self._screen.note("  … and older sessions")
        if rows:
            self._screen.note("  /resume NUMBER continues one of them.")

    def switch(self, rest: str) -> None:
        """/resume NUMBER|ID: continue another session"""
        if not rest:
            raise UsageError("Use /resume with a number from /sessions, or with a session id")
        if rest.isascii() and rest.isdigit() and self._listed:
            if not 1 <= int(rest) <= len(self._listed):
                raise UsageError(f"The last list has {len(self._listed)} sessions")
            rest = self._listed[int(rest) - 1]
        document = self._runner.run(self._conversation.server.session(rest))
        agent = agents.find(self._known, session_list.agent_of(document))
        tools = self._conversation.settings.client_tools
        self._conversation.agent = agent
        self._conversation.resume(rest, document)
        if tools and "application.tools" in agent.capabilities:
            self._conversation.send_tools()
        self.resume(rest)

    def new(self, _rest: str) -> None:
        """/new: start a new session with the same options and tools"""
        self.farewell()
        settings = self._conversation.settings
        # The server returns secrets as ***, so their values are unknown here.
        unknown = [name for name, value in settings.options.items() if value == options.REDACTED]
        for name in unknown:
            del settings.options[name]
        if unknown:
            self._screen.note(f"  {', '.join(unknown)} must be set again with /options NAME")
        self._conversation.start_new()
        self._screen.note("Your next message starts a new session.")

    def session(self, _rest: str) -> None:
        """/session: show server, agent, session and last turn"""
        conversation = self._conversation
        self._screen.line(f"  {conversation.server.url}  {conversation.agent.name}  {conversation.session or '(no session yet)'}")
        if conversation.turn_id:
            self._screen.note(f"  last turn: {conversation.turn_id}")

    def cancel(self, _rest: str) -> None:
        """/cancel: stop the running or waiting turn of this session"""
        self._conversation.cancel()

    def watch(self, _rest: str) -> None:
        """/watch: join the running turn of this session, or answer its open calls"""
        if self._conversation.session is None:
            raise UsageError("There is no session yet")
        self._join_or_answer()

    def thinking(self, rest: str) -> None:
        """/thinking [on|off]: show or hide the agent's thinking"""
        if rest not in ("", "on", "off"):
            raise UsageError("Use /thinking with on or off")
        self._screen.shows_thinking = rest == "on" if rest else not self._screen.shows_thinking
        self._screen.note(f"  Thinking is {'shown' if self._screen.shows_thinking else 'hidden'}.")

    def quit(self, _rest: str) -> None:
        """/quit: exit"""
        self._is_done = True

    # --- output ---

    def _show(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            if message.get("role") in ("user", "system"):
                self._screen.line()
                prefix = PROMPT if message["role"] == "user" else "(system) "
                self._screen.line(prefix + text_of(message.get("content")), "bold")
                continue
            for turn_event in events_of_message(message):
                match turn_event.name:
                    case "text":
                        self._screen.answer(str(turn_event.data.get("text", "")))
                    case "thinking" if self._screen.shows_thinking:
                        self._screen.note(str(turn_event.data.get("thinking", "")))
                    case "tool_call":
                        arguments = turn_event.data.get("input")
                        self._screen.call(str(turn_event.data.get("name")), arguments if isinstance(arguments, dict) else {})
                    case "tool_result":
                        self._screen.result(text_of(turn_event.data.get("content")))

    def _completions(self, text: str) -> list[str]:
        if not text.startswith("/"):
            return []
        name, blank, rest = text[1:].partition(" ")
        if not blank:
            return [f"/{each}" for each in COMMANDS if each.startswith(name)]
        known: Mapping[str, Sequence[str]] = {
            "options": list(self._conversation.agent.options),
            "tools": list(self._conversation.agent.tools),
            "trust": list(self._conversation.agent.tools),
            "resume": self._listed,
            "thinking": ["on", "off"],
        }
        return [f"/{name} {each}" for each in known.get(name, []) if each.startswith(rest)]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


COMMANDS: dict[str, Callable[[Chat, str], None]] = {
    "help": Chat.help,
    "options": Chat.options,
    "option": Chat.options,
    "tools": Chat.tools,
    "trust": Chat.trust,
    "image": Chat.image,
    "history": Chat.history,
    "sessions": Chat.sessions,
    "resume": Chat.switch,
    "new": Chat.new,
    "session": Chat.session,
    "cancel": Chat.cancel,
    "watch": Chat.watch,
    "thinking": Chat.thinking,
    "quit": Chat.quit,
    "exit": Chat.quit,
}
