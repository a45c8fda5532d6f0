"""The program ``agenthost-chat``: arguments, start and exit codes."""

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

from agenthost.chat import local_tools, options
from agenthost.chat.calls import Responder, ScriptResponder
from agenthost.chat.chat import Chat
from agenthost.chat.conversation import ASK, DETACHED, OFF, STOPPED, TRUST, Conversation, SessionSettings
from agenthost.chat.errors import exit_code
from agenthost.chat.keyboard import Keyboard, without_surrogates
from agenthost.chat.screen import Screen, uses_colour
from agenthost.chat.terminal_responder import TerminalResponder
from agenthost.client import agents, images
from agenthost.client.agents import Agent
from agenthost.client.errors import ClientError, Refused, UsageError
from agenthost.client.safe_text import one_line
from agenthost.client.server import DEFAULT_URL, Server, base_url, check_key, is_unencrypted
from agenthost.client.tools import ClientTool

KEY_VARIABLE, URL_VARIABLE = "AGENTHOST_KEY", "AGENTHOST_URL"
EXIT_CODES = """exit codes:
  0  success, or the user left the chat
  1  the turn failed at the server
  2  usage error: an argument, a file, a name, or a value that the server rejects
  3  no connection, not an AAP server, or connection lost for good
  4  the server refused the key
  5  the server refused the request: a limit, or a turn is already running in the session
  6  the answer is incomplete: a token limit, or the model declined
  130  stopped by Ctrl-C"""
_EXIT_CODES = {"end_turn": 0, "error": 1, "max_tokens": 6, "refusal": 6, DETACHED: 3, STOPPED: 130}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that the script and the management command share."""
    parser.add_argument("agent", nargs="?", metavar="AGENT", help="the agent to chat with; without it, choose from a list")
    parser.add_argument("--url", metavar="URL", help=f"the server (default: {URL_VARIABLE} or the local server)")
    parser.add_argument(
        "--key", metavar="KEY", help=f"the key; prefer {KEY_VARIABLE}, because other users can read command lines"
    )
    parser.add_argument("--key-file", metavar="FILE", help="a file that contains the key")
    parser.add_argument("--once", metavar="TEXT", help="send this message, print only the answer to stdout, and exit")
    parser.add_argument("--resume", metavar="SESSION", help="continue a session")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME[=VALUE]", help="set an option; without a value, asks for it"
    )
    parser.add_argument(
        "--option-env", action="append", default=[], metavar="NAME=VARIABLE", help="set an option from an environment variable"
    )
    parser.add_argument(
        "--tools", action="append", default=[], metavar="MODULE", help="a Python module or file with tools that run locally"
    )
    parser.add_argument(
        "--tool-file", action="append", default=[], metavar="JSON", help="declarations of tools whose results you type"
    )
    parser.add_argument("--image", action="append", default=[], metavar="FILE|URL", help="send an image with the first message")
    parser.add_argument(
        "--trust", action="append", default=[], metavar="TOOL", help="let a server tool run without asking; all: every tool"
    )
    parser.add_argument(
        "--allow", action="append", default=[], metavar="TOOL", help="in a script: allow a server tool to run; all: every tool"
    )
    parser.add_argument("--no-server-tools", action="store_true", help="switch off the server's tools")
    parser.add_argument("--no-thinking", action="store_true", help="do not show the agent's thinking")
    parser.add_argument("--quiet", action="store_true", help="in a script: show only the answer and errors")
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long to retry after a limit or a lost connection (default: 120)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError("must be a number of seconds, at least 0")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="agenthost-chat",
        description="Chat with an agent on any server that speaks the Agent Application Protocol, version 3.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return run(parser.parse_args(arguments), program="agenthost-chat", default_url=os.environ.get(URL_VARIABLE) or DEFAULT_URL)


def run(arguments: argparse.Namespace, *, program: str, default_url: str, key: str = "") -> int:
    """Run the chat; returns the exit code. ``key`` is used if neither the arguments nor the environment contain one."""
    if sys.stdin is None:
        # stdin was closed by the parent process, so there is no input.
        sys.stdin = io.TextIOWrapper(io.BytesIO())
    is_script = arguments.once is not None or not sys.stdin.isatty()
    notes = sys.stderr if is_script else sys.stdout
    # Not quiet if the user is asked about calls, which must be shown then.
    quiet = arguments.quiet and is_script and not _can_ask()
    screen = Screen(
        sys.stdout,
        notes,
        colour=uses_colour(notes),
        thinking=not arguments.no_thinking,
        quiet=quiet,
        renders=uses_colour(sys.stdout),
    )
    keyboard = Keyboard(screen, sys.stdin, edits=not is_script)
    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            return _Program(arguments, screen, keyboard, runner, program, is_script=is_script).run(default_url, key)
    except ClientError as error:
        screen.error(f"{program}: {error}")
        return exit_code(error)
    except (KeyboardInterrupt, EOFError):
        screen.on_line_started()
        screen.end_line()
        return 130
    except BrokenPipeError:
        # The reader of stdout has gone. Without this, the flush at exit would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode().strip()
    except UnicodeDecodeError:
        raise UsageError("The input on stdin is not UTF-8 text") from None


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _loop() -> asyncio.AbstractEventLoop:
    """An event loop based on select, because not every system's default selector supports terminals."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class _Program:
    def __init__(
        self,
        arguments: argparse.Namespace,
        screen: Screen,
        keyboard: Keyboard,
        runner: asyncio.Runner,
        name: str,
        *,
        is_script: bool,
    ) -> None:
        self._arguments, self._screen, self._keyboard, self._runner, self._name = arguments, screen, keyboard, runner, name
        self._is_script = is_script
        self._can_ask = _can_ask()

    def run(self, default_url: str, key: str) -> int:
        arguments = self._arguments
        if not self._is_script and not sys.stdout.isatty():
            raise UsageError("stdout is not a terminal; use --once TEXT")
        url = base_url(arguments.url or default_url)
        # Before connecting, so that errors in these files are reported first.
        tools = local_tools.load_all(arguments.tools, arguments.tool_file)
        server = Server(url, self._key(key), on_wait=self._report_wait, retry_seconds=arguments.wait)
        if is_unencrypted(url):
            self._screen.note(f"Warning: the key is sent to {url} unencrypted; others on the network can read it.")
        try:
            return self._start(server, tools)
        finally:
            self._runner.run(server.close())

    def _key(self, default: str) -> str:
        arguments = self._arguments
        if arguments.key_file is not None:
            try:
                return check_key(Path(arguments.key_file).expanduser().read_text())
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"{arguments.key_file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
                ) from None
        key = arguments.key or os.environ.get(KEY_VARIABLE) or default
        if key:
            return check_key(key)
        if not self._can_ask:
            raise UsageError(f"No key: set {KEY_VARIABLE}, or use --key-file")
        return check_key(self._keyboard.secret("Key (not shown): "))

    def _report_wait(self, seconds: float, refused: Refused) -> None:
        reason = "The server is not ready" if refused.status == 503 else f"Limit reached ({refused.detail.rstrip('.')})"
        self._screen.note(f"{reason}. Retrying in {seconds:g} s; Ctrl-C cancels.")

    # --- start ---

    def _start(self, server: Server, tools: dict[str, ClientTool]) -> int:
        known = self._runner.run(server.agents())
        document: dict[str, Any] | None = None
        if self._arguments.resume is not None:
            document = self._resumed(server, self._arguments.resume)
        agent = self._agent(known, document)
        responder: Responder = (
            TerminalResponder(self._keyboard, self._screen)
            if self._can_ask
            else ScriptResponder(self._arguments.allow, self._screen)
        )
        conversation = Conversation(
            server,
            agent,
            SessionSettings(client_tools=tools),
            responder=responder,
            screen=self._screen,
            keyboard=self._keyboard,
            runner=self._runner,
        )
        if document is not None:
            conversation.resume(self._arguments.resume, document)
        self._apply_arguments(conversation, is_new=document is None)
        return self._run_once(conversation) if self._is_script else self._run_chat(conversation, known)

    def _resumed(self, server: Server, session: str) -> dict[str, Any]:
        try:
            return self._runner.run(server.session(session))
        except Refused as refused:
            if refused.status != 404:
                raise
            raise UsageError(f"There is no session {one_line(session)}, or this key has no access to it") from None

    def _agent(self, known: Sequence[Agent], document: dict[str, Any] | None) -> Agent:
        wanted: str | None = self._arguments.agent
        if document is not None:
            described = document.get("agent")
            name = str(described.get("name", "")) if isinstance(described, dict) else ""
            if wanted not in (None, name):
                raise UsageError(f"The session {self._arguments.resume} belongs to the agent {name}, not to {wanted}")
            wanted = name
        if wanted is not None:
            return agents.find(known, wanted)
        if not known:
            raise UsageError("The server has no agent that this key may use")
        if self._is_script:
            names = "".join(f"\n  {line}" for line in agents.listing(known))
            raise UsageError(f"No agent given. Available:{names}")
        return self._choose_agent(known)

    def _choose_agent(self, known: Sequence[Agent]) -> Agent:
        for number, line in enumerate(agents.listing(known), 1):
            self._screen.line(f"  {number} {line}")
        while True:
            typed = self._keyboard.answer("Which agent? ")
            if typed.isascii() and typed.isdigit() and 1 <= int(typed) <= len(known):
                return known[int(typed) - 1]
            try:
                return agents.find(known, typed)
            except UsageError:
                self._screen.note("  Type a number or a name from the list; Ctrl-D exits.")

    def _apply_arguments(self, conversation: Conversation, *, is_new: bool) -> None:
        """Apply the options and tools of the command line, in addition to those of a resumed session."""
        arguments, agent, settings = self._arguments, conversation.agent, conversation.settings
        if is_new:
            settings.server_tools = {name: OFF if name in settings.client_tools else ASK for name in agent.tools}
            for name in settings.client_tools.keys() & agent.tools.keys():
                self._screen.note(f"Your tool {name} replaces the server's tool of the same name.")
        if arguments.no_server_tools:
            for name in agent.tools:
                conversation.set_tool(name, OFF)
        for name in agent.tools if "all" in arguments.trust else arguments.trust:
            if name not in settings.client_tools:
                conversation.set_tool(name, TRUST)
        keyboard = self._keyboard if self._can_ask else None
        for name, value in options.from_arguments(agent, arguments.option, arguments.option_env, keyboard, self._screen).items():
            conversation.set_option(name, value)
        if settings.client_tools:
            if "application.tools" not in agent.capabilities:
                raise UsageError(f"{agent.name} does not accept client tools")
            conversation.send_tools()

    # --- the two modes ---

    def _run_chat(self, conversation: Conversation, known: Sequence[Agent]) -> int:
        chat = Chat(
            conversation,
            known,
            screen=self._screen,
            keyboard=self._keyboard,
            runner=self._runner,
            resume_command=self._resume_command(conversation.agent),
        )
        conversation.shows_use = True
        chat.greet()
        chat.attach(self._arguments.image)
        if conversation.session is not None:
            chat.try_resume(conversation.session)
        chat.run()
        return 0

    def _resume_command(self, agent: Agent) -> str:
        command = [*shlex.split(self._name), agent.name]
        if getattr(self._arguments, "tenant", None):
            command += ["--tenant", self._arguments.tenant]
        if self._arguments.url:
            command += ["--url", self._arguments.url]
        return shlex.join(command)

    def _run_once(self, conversation: Conversation) -> int:
        text = without_surrogates(self._arguments.once) if self._arguments.once is not None else _read_stdin()
        image_blocks = [images.block(conversation.agent, each) for each in self._arguments.image]
        images.check_total_size(image_blocks)
        if not text.strip() and not image_blocks:
            raise UsageError("The message is empty")
        blocks = [{"type": "text", "text": text}] if text.strip() else []
        try:
            stopped = conversation.send_message([*blocks, *image_blocks] if image_blocks else text)
        except BrokenPipeError:
            # Nobody reads the answer, so do not pay for the rest of it.
            conversation.cancel()
            raise
        self._screen.end_message()
        if conversation.session is not None:
            self._screen.note(f"Session {conversation.session}")
        return _EXIT_CODES.get(stopped, 1)
