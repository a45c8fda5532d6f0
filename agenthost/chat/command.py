"""The program ``agenthost-chat``: its arguments, what it connects to, how it ends."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import selectors
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agenthost.chat import agents, images, local_tools, options
from agenthost.chat.agents import Agent
from agenthost.chat.calls import Beforehand, Judge
from agenthost.chat.chat import Chat
from agenthost.chat.conversation import ASK, LEFT, OFF, STOPPED, TRUST, Conversation, Wishes
from agenthost.chat.errors import ChatError, Refused, WrongUse
from agenthost.chat.keyboard import Keyboard, storable
from agenthost.chat.safe_text import one_line
from agenthost.chat.screen import Screen, wants_colour
from agenthost.chat.server import DEFAULT_URL, Server, base_url, checked_key, is_exposed
from agenthost.chat.terminal_responder import Person

KEY_VARIABLE, URL_VARIABLE = "AGENTHOST_KEY", "AGENTHOST_URL"
CODES = """exit codes:
  0  answered, or left by the person at the terminal
  1  the turn failed at the server
  2  wrong use: an argument, a file, a name or a value that the server does not take
  3  no connection, no AAP there, or cut off for good
  4  the key is refused
  5  the server refused: a limit, or a turn is running in the session
  6  the answer is incomplete: a token limit, or the model declined
  130  stopped by Ctrl-C"""
_OF_STOP = {"end_turn": 0, "error": 1, "max_tokens": 6, "refusal": 6, LEFT: 3, STOPPED: 130}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the script and the management command take alike."""
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="whom to talk to; left out, the server's agents are listed")
    parser.add_argument("--url", metavar="URL", help=f"the server (default: {URL_VARIABLE} or the local one)")
    parser.add_argument(
        "--key", metavar="KEY", help=f"better: {KEY_VARIABLE}, for others can read a command line; else asked for"
    )
    parser.add_argument("--key-file", metavar="FILE", help="a file that holds the key")
    parser.add_argument("--once", metavar="TEXT", help="say this, print the answer alone to stdout, and end")
    parser.add_argument("--resume", metavar="SESSION", help="go on in a session")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME[=VALUE]", help="set an option; NAME alone is asked for"
    )
    parser.add_argument("--option-env", action="append", default=[], metavar="NAME=VARIABLE", help="set one from a variable")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="a Python module or file with tools to run here"
    )
    parser.add_argument("--tool-file", action="append", default=[], metavar="JSON", help="tools to declare and answer by hand")
    parser.add_argument("--image", action="append", default=[], metavar="FILE|URL", help="send an image with the first message")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="TOOL", help="let a tool of the server run unasked; all: every one"
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="TOOL", help="grant a tool's permissions where nobody can be asked"
    )
    parser.add_argument("--no-server-tools", action="store_true", help="switch the server's own tools off")
    parser.add_argument("--no-thinking", action="store_true", help="do not show what the agent thinks")
    parser.add_argument("--quiet", action="store_true", help="in a script: show nothing but the answer and errors")
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long a limit or a lost connection is waited out (default: 120)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("a number of seconds from 0 up")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="agenthost-chat",
        description="Talk to an agent on any server that speaks the Agent Application Protocol, version 3.",
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments), program="agenthost-chat", default_url=os.environ.get(URL_VARIABLE) or DEFAULT_URL)


def run(given: argparse.Namespace, *, program: str, default_url: str, key: str = "") -> int:
    """The whole program. ``key`` is used if neither the arguments nor the environment have one."""
    if sys.stdin is None:
        # Closed by whoever started this; nobody types anything then.
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    is_once = given.once is not None or not sys.stdin.isatty()
    asides = sys.stderr if is_once else sys.stdout
    # Whoever is asked about a call must have seen it.
    quiet = given.quiet and is_once and not _can_ask()
    screen = Screen(sys.stdout, asides, colour=wants_colour(asides), thinking=not given.no_thinking, quiet=quiet)
    keyboard = Keyboard(screen, sys.stdin, edits=not is_once)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            return _Program(given, screen, keyboard, runner, program, is_once=is_once).run(default_url, key)
    except ChatError as error:
        screen.fault(f"{program}: {error}")
        return error.code
    except (KeyboardInterrupt, EOFError):
        screen.line_was_begun()
        screen.end_line()
        return 130
    except BrokenPipeError:
        # Whoever read the answer has enough. Python would complain about what is left to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _piped() -> str:
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError:
        raise WrongUse("What came on stdin is no text in UTF-8") from None


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _loop() -> asyncio.AbstractEventLoop:
    """A loop that can watch a terminal wherever this runs: not every system's own way of waiting takes one."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class _Program:
    def __init__(
        self, given: argparse.Namespace, screen: Screen, keyboard: Keyboard, runner: asyncio.Runner, name: str, *, is_once: bool
    ) -> None:
        self._given, self._screen, self._keyboard, self._runner, self._name = given, screen, keyboard, runner, name
        self._is_once = is_once
        self._can_ask = _can_ask()

    def run(self, default_url: str, key: str) -> int:
        given = self._given
        if not self._is_once and not sys.stdout.isatty():
            raise WrongUse("The answers go to a file, so say what to ask: --once TEXT")
        url = base_url(given.url or default_url)
        # Read first: what is wrong here needs no server to be found.
        tools = local_tools.gathered(given.tools, given.tool_file)
        server = Server(url, self._key(key), waited=self._waited, patience=given.wait)
        if is_exposed(url):
            self._screen.note(f"The key goes to {url} unencrypted; anybody on the way can read it.")
        try:
            return self._talk(server, tools)
        finally:
            self._runner.run(server.close())

    def _key(self, otherwise: str) -> str:
        given = self._given
        if given.key_file is not None:
            try:
                return checked_key(Path(given.key_file).expanduser().read_text())
            except (OSError, ValueError) as error:
                raise WrongUse(
                    f"{given.key_file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}"
                ) from None
        written = given.key or os.environ.get(KEY_VARIABLE) or otherwise
        if written:
            return checked_key(written)
        if not self._can_ask:
            raise WrongUse(f"A key is needed: set {KEY_VARIABLE}, or give --key-file")
        return checked_key(self._keyboard.secret("Key (not shown): "))

    def _waited(self, seconds: float, refused: Refused) -> None:
        why = "The server is not ready" if refused.status == 503 else f"A limit is reached ({refused.detail.rstrip('.')})"
        self._screen.note(f"{why}. Trying again in {seconds:g} s; Ctrl-C gives up.")

    # --- what it begins with ---

    def _talk(self, server: Server, tools: dict[str, local_tools.ClientTool]) -> int:
        known = self._runner.run(server.agents())
        document: dict[str, Any] | None = None
        if self._given.resume is not None:
            document = self._resumed(server, self._given.resume)
        agent = self._agent(known, document)
        judge: Judge = Person(self._keyboard, self._screen) if self._can_ask else Beforehand(self._given.allow, self._screen)
        conversation = Conversation(
            server,
            agent,
            Wishes(client_tools=tools),
            judge=judge,
            screen=self._screen,
            keyboard=self._keyboard,
            runner=self._runner,
        )
        if document is not None:
            conversation.resume(self._given.resume, document)
        self._wish(conversation, is_new=document is None)
        return self._once(conversation) if self._is_once else self._chat(conversation, known)

    def _resumed(self, server: Server, session: str) -> dict[str, Any]:
        try:
            return self._runner.run(server.session(session))
        except Refused as refused:
            if refused.status != 404:
                raise
            raise WrongUse(f"There is no session {one_line(session)} that this key can see") from None

    def _agent(self, known: Sequence[Agent], document: dict[str, Any] | None) -> Agent:
        wanted: str | None = self._given.agent
        if document is not None:
            described = document.get("agent")
            its = str(described.get("name", "")) if isinstance(described, dict) else ""
            if wanted not in (None, its):
                raise WrongUse(f"The session {self._given.resume} is one of {its}, not of {wanted}")
            wanted = its
        if wanted is not None:
            return agents.named(known, wanted)
        if not known:
            raise WrongUse("This key may use no agent of the server")
        if self._is_once:
            listed = "".join(f"\n  {line}" for line in agents.lines(known))
            raise WrongUse(f"Say which agent. There are:{listed}")
        return self._chosen(known)

    def _chosen(self, known: Sequence[Agent]) -> Agent:
        for number, line in enumerate(agents.lines(known), 1):
            self._screen.line(f"  {number} {line}")
        while True:
            typed = self._keyboard.answer("Which agent? ")
            if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(known):
                return known[int(typed) - 1]
            try:
                return agents.named(known, typed)
            except WrongUse:
                self._screen.note("  A number, or a name of the list; Ctrl-D leaves.")

    def _wish(self, conversation: Conversation, *, is_new: bool) -> None:
        """What the arguments say about options and tools, over what a resumed session has."""
        given, agent, wishes = self._given, conversation.agent, conversation.wishes
        if is_new:
            wishes.server_tools = {name: OFF if name in wishes.client_tools else ASK for name in agent.tools}
            for name in wishes.client_tools.keys() & agent.tools.keys():
                self._screen.note(f"Your {name} stands in for the server's own tool of that name.")
        if given.no_server_tools:
            for name in agent.tools:
                conversation.set_tool(name, OFF)
        for name in agent.tools if "all" in given.trust else given.trust:
            if name not in wishes.client_tools:
                conversation.set_tool(name, TRUST)
        keyboard = self._keyboard if self._can_ask else None
        for name, value in options.given(agent, given.option, given.option_env, keyboard, self._screen).items():
            conversation.set_option(name, value)
        if wishes.client_tools:
            if "application.tools" not in agent.can:
                raise WrongUse(f"{agent.name} takes no tools of a client's")
            conversation.send_tools()

    # --- what it does ---

    def _chat(self, conversation: Conversation, known: Sequence[Agent]) -> int:
        chat = Chat(
            conversation,
            known,
            screen=self._screen,
            keyboard=self._keyboard,
            runner=self._runner,
            again=self._again(conversation.agent),
        )
        chat.greet()
        chat.attach(self._given.image)
        if conversation.session is not None:
            chat.guarded_resume(conversation.session)
        chat.run()
        return 0

    def _again(self, agent: Agent) -> str:
        words = [*shlex.split(self._name), agent.name]
        if getattr(self._given, "tenant", None):
            words += ["--tenant", self._given.tenant]
        if self._given.url:
            words += ["--url", self._given.url]
        return shlex.join(words)

    def _once(self, conversation: Conversation) -> int:
        text = storable(self._given.once) if self._given.once is not None else _piped()
        pictures = [images.block(conversation.agent, each) for each in self._given.image]
        images.check_together(pictures)
        if not text.strip() and not pictures:
            raise WrongUse("There is nothing to say: the text is empty")
        blocks = [{"type": "text", "text": text}] if text.strip() else []
        try:
            stopped = conversation.say([*blocks, *pictures] if pictures else text)
        except BrokenPipeError:
            # Nobody reads what would be paid for.
            conversation.cancel()
            raise
        self._screen.message_ends()
        if conversation.session is not None:
            self._screen.note(f"Session {conversation.session}")
        return _OF_STOP.get(stopped, 1)
