"""The conversation at a terminal: a prompt, messages, and commands that begin with a slash."""

from __future__ import annotations

import asyncio
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agenthost.chat import agents, images, options
from agenthost.chat.agents import Agent
from agenthost.chat.conversation import ASK, LEFT, OFF, TRUST, Conversation
from agenthost.chat.errors import ChatError, Refused, WrongUse
from agenthost.chat.keyboard import Keyboard
from agenthost.chat.runs import of_message
from agenthost.chat.safe_text import one_line
from agenthost.chat.screen import Screen, text_of

PROMPT = "> "
_SHOWN_AT_RESUME = 6
_LISTED = 10


class Chat:
    """``again`` is the command line that comes back to a session, without its id."""

    def __init__(
        self,
        conversation: Conversation,
        known: Sequence[Agent],
        *,
        screen: Screen,
        keyboard: Keyboard,
        runner: asyncio.Runner,
        again: str,
    ) -> None:
        self._conversation, self._known = conversation, known
        self._screen, self._keyboard, self._runner = screen, keyboard, runner
        self._again = again
        self._images: list[dict[str, Any]] = []
        self._listed: list[str] = []
        """Sessions that were listed last, to be named by their number."""
        self._over = False
        keyboard.completes(self._completions)

    # --- the loop ---

    def run(self) -> None:
        """Until the person at the terminal has enough."""
        while not self._over:
            self._screen.line()
            try:
                text = self._keyboard.message(PROMPT)
            except EOFError:
                self._screen.line_was_begun()
                break
            except KeyboardInterrupt:
                self._screen.line_was_begun()
                break
            self._guarded(lambda text=text: self._take(text))  # type: ignore[misc]  # bound now, called now
        self.farewell()

    def greet(self) -> None:
        agent = self._conversation.agent
        version = f" {agent.version}" if agent.version else ""
        self._screen.heading(f"{agent.title or agent.name} ({agent.name}{version})")
        if agent.description:
            self._screen.note(one_line(agent.description))
        self._screen.note(
            "Enter sends, \\ at a line's end goes on. Ctrl-C stops a turn, Ctrl-D leaves. /help lists the commands."
        )

    def farewell(self) -> None:
        session = self._conversation.session
        if session is not None:
            self._screen.note(f"To go on: {self._again} --resume {session}")
        self._screen.end_line()

    def attach(self, references: Sequence[str]) -> None:
        for reference in references:
            self._attach(reference)

    def resume(self, session: str) -> None:
        """Go on in a session: what was said last, and whatever runs or waits there."""
        conversation = self._conversation
        conversation.open.clear()
        history = conversation.history()
        if history is None:
            self._screen.note("This agent shows no history; the session goes on where it was.")
        else:
            if len(history) > _SHOWN_AT_RESUME:
                self._screen.note(f"… {len(history) - _SHOWN_AT_RESUME} earlier messages (/history shows them)")
            self._show(history[-_SHOWN_AT_RESUME:])
        self._screen.note(f"Session {session}")
        self._go_on()

    def _go_on(self) -> None:
        """Join the turn that runs, or answer the calls that wait."""
        conversation = self._conversation
        stopped = conversation.watch()
        if stopped is None:
            conversation.read_open_calls()
            if conversation.open:
                self._screen.note("The agent waits for an answer:")
                for call in conversation.open.values():
                    call.shown_whole = self._screen.call(call.name, call.input)
                conversation.go_on()

    def _guarded(self, act: Callable[[], None]) -> None:
        """What goes wrong is said, and the conversation goes on."""
        try:
            act()
        except ChatError as error:
            self._screen.fault(str(error))
        except KeyboardInterrupt:
            self._screen.line_was_begun()
            self._screen.note("Given up.")
        except EOFError:
            # At a question. What waits for an answer waits on, here or for whoever resumes.
            self._over = True

    def guarded_resume(self, session: str) -> None:
        self._guarded(lambda: self.resume(session))

    # --- messages ---

    def _take(self, text: str) -> None:
        if text.startswith("//"):
            self._say(text[1:])
        elif text.startswith("/"):
            self._command(text[1:])
        elif text.strip() or self._images:
            self._say(text)

    def _say(self, text: str) -> None:
        blocks = [{"type": "text", "text": text}] if text.strip() else []
        content: Any = [*blocks, *self._images] if self._images else text
        try:
            self._conversation.say(content)
        except Refused as refused:
            if refused.status != 409 or not self._wants("A turn is running in this session already. Watch it?"):
                # What was attached stays for the next try.
                raise
            watched = self._conversation.watch()
            if watched is None:
                self._screen.note("It is over already.")
            if watched == LEFT or not self._wants("Send your message now?"):
                return
            self._conversation.say(content)
        self._images.clear()

    def _wants(self, question: str) -> bool:
        while True:
            typed = self._keyboard.answer(f"{question} [Y/n] ").lower()
            if typed in ("", "y", "yes", "n", "no"):
                return typed in ("", "y", "yes")

    # --- commands ---

    def _command(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        act = COMMANDS.get(name.lower())
        if act is None:
            meant = agents.meant(name, COMMANDS, "/")
            raise WrongUse(f"There is no command /{one_line(name)}{meant} /help lists them; // begins a message")
        act(self, rest.strip())

    def help(self, _rest: str) -> None:
        """/help: this list"""
        rows = []
        for name, act in COMMANDS.items():
            usage, _, text = (inspect.getdoc(act) or "").partition(": ")
            if usage.partition(" ")[0] == f"/{name}":
                rows.append((usage, text))
        self._screen.rows(rows)
        self._screen.note(
            "  While a turn runs: Ctrl-C or /cancel stops it, /detach leaves it running. Write // to begin a message with /."
        )

    def options(self, rest: str) -> None:
        """/options [NAME[=VALUE]]: the agent's options; change one"""
        conversation = self._conversation
        agent, values = conversation.agent, conversation.wishes.options
        name, equals, value = rest.partition("=")
        if name:
            option = agent.option(name.strip())
            if equals and option.is_secret and value.strip():
                raise WrongUse(f"{option.name} is a secret: type /options {option.name} and it is asked for without being shown")
            conversation.set_option(option.name, value.strip() if equals else options.asked(option, self._keyboard, self._screen))
            self._screen.note(f"  {option.name} = {options.shown(option, values)}, from the next message on")
            return
        if not agent.options:
            self._screen.note("  This agent has no options.")
        self._screen.rows(
            [
                (each.name, options.shown(each, values), ", ".join(each.choices) or each.description or each.title)
                for each in agent.options.values()
            ]
        )

    def tools(self, rest: str) -> None:
        """/tools [NAME on|off|ask|trust]: the tools there are; allow, trust or switch off one of the server's"""
        wishes, agent = self._conversation.wishes, self._conversation.agent
        if rest:
            name, _, state = rest.partition(" ")
            states = {"on": ASK, "ask": ASK, "off": OFF, "trust": TRUST}
            if state.strip() not in states:
                raise WrongUse("/tools NAME takes on, off, ask or trust behind the name")
            self._conversation.set_tool(name, states[state.strip()])
            self._screen.note(f"  {name}: {states[state.strip()]}, from the next message on")
            return
        rows = [(name, wishes.server_tools.get(name, OFF), one_line(text)) for name, text in agent.tools.items()]
        rows += [
            (name, "runs here" if tool.function is not None else "by hand", one_line(tool.description))
            for name, tool in wishes.client_tools.items()
        ]
        if not rows:
            self._screen.note("  There are none.")
        self._screen.rows(rows)

    def trust(self, rest: str) -> None:
        """/trust NAME: let a tool of the server run without asking"""
        self.tools(f"{rest} trust")

    def image(self, rest: str) -> None:
        """/image FILE|ADDRESS: send an image with the next message"""
        if not rest:
            raise WrongUse("/image takes a file or an https:// address")
        for reference in _words(rest):
            self._attach(reference)

    def _attach(self, reference: str) -> None:
        block = images.block(self._conversation.agent, reference)
        images.check_together([*self._images, block])
        self._images.append(block)
        self._screen.note(f"  {text_of([block])} goes with the next message")

    def history(self, _rest: str) -> None:
        """/history: the conversation so far"""
        messages = self._conversation.history()
        if messages is None:
            kind = self._conversation.agent.history_kind
            self._screen.note("  Nothing was said yet." if kind is not None else "  This agent shows no history.")
            return
        self._show(messages)

    def sessions(self, _rest: str) -> None:
        """/sessions: your sessions, the newest first"""
        found, more = self._runner.run(self._conversation.server.sessions())
        self._listed = [str(each.get("sessionId", "")) for each in found[:_LISTED]]
        about = self._runner.run(self._about(found[:_LISTED]))
        marks = ["*" if each == self._conversation.session else " " for each in self._listed]
        rows = [
            (f"{mark}{number}", session, _agent_of(each), words)
            for number, (mark, session, each, words) in enumerate(zip(marks, self._listed, found, about, strict=False), 1)
        ]
        self._screen.rows(rows, cuts=True)
        if not rows:
            self._screen.note("  There are none.")
        elif more or len(found) > _LISTED:
            self._screen.note("  … and older ones")
        if rows:
            self._screen.note("  /resume NUMBER goes on in one of them.")

    async def _about(self, found: Sequence[Mapping[str, Any]]) -> list[str]:
        """What somebody said first in each session: nobody knows one by its id."""
        few = asyncio.Semaphore(4)

        async def words(document: Mapping[str, Any]) -> str:
            agent = next((each for each in self._known if each.name == _agent_of(document)), None)
            if agent is None or agent.history_kind is None:
                return ""
            try:
                async with few:
                    history = await self._conversation.server.glimpse(str(document.get("sessionId")), agent.history_kind)
            except ChatError:
                # Gone meanwhile, say; the list is the better for the others.
                return ""
            return next((text_of(each.get("content")) for each in history if each.get("role") == "user"), "")

        return list(await asyncio.gather(*map(words, found)))

    def switch(self, rest: str) -> None:
        """/resume NUMBER|ID: go on in another session"""
        if not rest:
            raise WrongUse("/resume takes a number of /sessions, or a session's id")
        if rest.isascii() and rest.isdigit() and self._listed:
            if not 1 <= int(rest) <= len(self._listed):
                raise WrongUse(f"/sessions listed {len(self._listed)} of them")
            rest = self._listed[int(rest) - 1]
        document = self._runner.run(self._conversation.server.session(rest))
        agent = agents.named(self._known, _agent_of(document))
        tools = self._conversation.wishes.client_tools
        self._conversation.agent = agent
        self._conversation.resume(rest, document)
        if tools and "application.tools" in agent.can:
            self._conversation.send_tools()
        self.resume(rest)

    def new(self, _rest: str) -> None:
        """/new: begin a new session, with the same options and tools"""
        self.farewell()
        wishes = self._conversation.wishes
        # What a server shows as *** it has not told us.
        unknown = [name for name, value in wishes.options.items() if value == options.REDACTED]
        for name in unknown:
            del wishes.options[name]
        if unknown:
            self._screen.note(f"  {', '.join(unknown)} must be set again: /options NAME")
        self._conversation.forget()
        self._screen.note("A new session begins with your next message.")

    def session(self, _rest: str) -> None:
        """/session: where you are"""
        conversation = self._conversation
        self._screen.line(f"  {conversation.server.url}  {conversation.agent.name}  {conversation.session or '(no session yet)'}")
        if conversation.turn_id:
            self._screen.note(f"  last turn: {conversation.turn_id}")

    def cancel(self, _rest: str) -> None:
        """/cancel: stop what runs, or waits, in this session"""
        self._conversation.cancel()

    def watch(self, _rest: str) -> None:
        """/watch: join the turn that runs in this session, or answer what it waits for"""
        if self._conversation.session is None:
            raise WrongUse("There is no session yet")
        self._go_on()

    def thinking(self, rest: str) -> None:
        """/thinking [on|off]: show what the agent thinks, or not"""
        if rest not in ("", "on", "off"):
            raise WrongUse("/thinking takes on or off")
        self._screen.shows_thinking = rest == "on" if rest else not self._screen.shows_thinking
        self._screen.note(f"  Thinking is {'shown' if self._screen.shows_thinking else 'hidden'}.")

    def quit(self, _rest: str) -> None:
        """/quit: leave"""
        self._over = True

    # --- showing ---

    def _show(self, messages: Sequence[Mapping[str, Any]]) -> None:
        for message in messages:
            if message.get("role") in ("user", "system"):
                self._screen.line()
                prefix = PROMPT if message["role"] == "user" else "(system) "
                self._screen.line(prefix + text_of(message.get("content")), "bold")
                continue
            for happening in of_message(message):
                match happening.name:
                    case "text":
                        self._screen.line(str(happening.data.get("text", "")))
                    case "thinking" if self._screen.shows_thinking:
                        self._screen.note(str(happening.data.get("thinking", "")))
                    case "tool_call":
                        given = happening.data.get("input")
                        self._screen.call(str(happening.data.get("name")), given if isinstance(given, dict) else {})
                    case "tool_result":
                        self._screen.result(text_of(happening.data.get("content")))

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


def _agent_of(document: Mapping[str, Any]) -> str:
    agent = document.get("agent")
    return str(agent.get("name", "")) if isinstance(agent, dict) else ""


def _words(text: str) -> list[str]:
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
