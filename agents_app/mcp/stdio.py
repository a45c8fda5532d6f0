"""MCP over the input and output of a program: JSON-RPC messages, one a line.

The session is the library's; the program is started by the launcher of ``programs``. The program's output is limited:
the length of a line, the number of messages in a second, lines that are no messages, questions that are not answered yet. A
program that exceeds a limit is slowed down or ended, without an effect on others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

from agents_app import exact_json, supervision
from agents_app.mcp import programs
from agents_app.mcp.access import Access
from agents_app.mcp.faults import McpFault
from agents_app.mcp.lines import Lines, TooLong
from agents_app.mcp.programs import CannotStart, Program, Running
from agents_app.runtime.unicode import storable

log = logging.getLogger(__name__)

WRITE_SECONDS = 30.0
"""How long the program may not read its input while a message waits."""
LEAVE_SECONDS = 1.0
"""How long it may take to end after its input was closed."""
MOST_GARBAGE = 100
"""Lines without a message in between that are no messages."""
MOST_QUESTIONS = 100
"""Requests of the program that are not answered yet."""
MOST_MESSAGES, MOST_BYTES = 500, 32 * 1024 * 1024
"""In a second; more is read later."""
_YIELD_EVERY = 20
_MOST_MEMBERS, _MOST_LEVELS = 150_000, 100
_TOO_LARGE = types.ErrorData(code=types.INTERNAL_ERROR, message="the answer exceeds the byte limit")
_CODES = {
    126: ": the sandbox sees the command, and cannot execute it",
    127: ": the sandbox does not see the command (AGENTHOST_MCP_MOUNTS, AGENTHOST_SANDBOX_ROOT)",
}
_NOT_JSON = types.ErrorData(code=types.INVALID_PARAMS, message="the arguments cannot be sent as JSON")
_ERROR_LINE_BYTES, _LOGGED_CHARACTERS = 64 * 1024, 1_000
_LOGGED_LINES, _LOGGED_SECONDS = 20, 10.0
# The id of an answer whose middle is not kept: both usual orders of members.
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,15})\s*,\s*"result"')
_ID_NEXT = re.compile(rb'\s*\{\s*"result"\s*:')
_ID_LAST = re.compile(rb',\s*"id"\s*:\s*(\d{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class Stdio:
    """A transport of the library: an async context manager that starts the program and ends it.

    ``on_end`` is called once, when the program has ended without being asked to, or was ended for its ``fault``.
    """

    def __init__(self, access: Access, on_end: Callable[[], None]) -> None:
        assert access.program is not None
        self._access, self._program, self._on_end = access, access.program, on_end
        self.fault: McpFault | None = None
        self.ready = False
        """Set after the handshake: then a missing secret no longer explains an end."""
        self._running: Running | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._questions: set[str | int] = set()
        self._pace = _Pace()

    async def __aenter__(self) -> TransportStreams:
        self._running = await _started(self._program)
        self._to_session, from_program = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._to_program, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        work = {"output": self._read(self._running), "input": self._write(self._running), "errors": self._log(self._running)}
        self._tasks = [
            supervision.task(each, f"mcp {self._program.server} {name}", may_return=lambda: True, instead=self._failed)
            for name, each in work.items()
        ]
        return from_program, self._to_program

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        running = self._running
        assert running is not None
        try:
            if self.fault is None:
                await self._leave(running)
        finally:
            running.kill()
            for task in self._tasks:
                task.cancel()
            # Finished even if this task is cancelled again.
            closing = asyncio.ensure_future(self._close(running))
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            await asyncio.shield(closing)

    async def _leave(self, running: Running) -> None:
        """Ask the program to end, and wait a moment for it."""
        # Ends the task that writes.
        self._to_program.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await running.close_input()
                await running.wait()

    async def _close(self, running: Running) -> None:
        await asyncio.wait(self._tasks)
        self._to_session.close()
        self._from_session.close()
        await running.close()

    def _failed(self, error: BaseException | None) -> None:
        self._end(McpFault("failed", type(error).__name__))

    def _end(self, fault: McpFault) -> None:
        """End the program for a fault. Its calls fail with that."""
        if self.fault is not None:
            return
        if self._program.lacks_secrets and not self.ready and fault.kind == "ended":
            fault = McpFault("refused", f"{fault.detail}; a value of env that only a session has is missing")
        self.fault = fault
        if self._running is not None:
            self._running.kill()
        self._on_end()
        self._to_session.close()

    # --- its output ---

    async def _read(self, running: Running) -> None:
        lines, garbage, count = Lines(self._access.answer_bytes), 0, 0
        while chunk := await running.read():
            await self._pace.take(0, len(chunk))
            for line in lines.feed(chunk):
                count += 1
                if count % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                if isinstance(line, bytes) and not line.strip():
                    continue
                message = self._message(line)
                if message is None:
                    garbage += 1
                    self._report_garbage(line, garbage)
                    if garbage >= MOST_GARBAGE or self.fault is not None:
                        self._end(McpFault("not_mcp", f"{garbage} of its lines in a row are not MCP"))
                        return
                    continue
                garbage = 0
                await self._pace.take(1, 0)
                if not await self._deliver(message):
                    return
            # A stream that always has more would never let others run.
            await asyncio.sleep(0)
        self._end(await self._why_ended(running))

    def _message(self, line: bytes | TooLong) -> types.JSONRPCMessage | None:
        if isinstance(line, TooLong):
            return self._instead(line.head, line.tail)
        if exact_json.excess(line, members=_MOST_MEMBERS, levels=_MOST_LEVELS) is not None:
            return self._instead(line, line)
        try:
            return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return None

    def _instead(self, head: bytes, tail: bytes) -> types.JSONRPCMessage | None:
        """An error in place of an answer that is too large. Ends the session and returns None if its request is not known."""
        found = _ID_FIRST.match(head) or (_ID_LAST.search(tail) if _ID_NEXT.match(head) else None)
        if found is None:
            self._end(McpFault("too_large", "a message is too large"))
            return None
        return types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=_TOO_LARGE)

    async def _deliver(self, message: types.JSONRPCMessage) -> bool:
        """Hand a message to the session. False: the session is gone."""
        if isinstance(message, types.JSONRPCRequest):
            if len(self._questions) >= MOST_QUESTIONS:
                self._end(McpFault("failed", f"it asks more than {MOST_QUESTIONS} questions at the same time"))
                return False
            self._questions.add(message.id)
        try:
            await self._to_session.send(SessionMessage(message))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return False
        return True

    def _report_garbage(self, line: bytes | TooLong, garbage: int) -> None:
        if garbage == 1:
            text = self._readable(line if isinstance(line, bytes) else line.head)
            log.warning("mcp_program_prints server=%s reason=output_is_not_mcp: %s", self._program.server, text)

    async def _why_ended(self, running: Running) -> McpFault:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                code = await running.wait()
        except TimeoutError:
            return McpFault("ended", "it closed its output")
        if running.killed_for is not None:
            return McpFault("ended", f"it was killed: {running.killed_for}")
        if code is None:
            return McpFault("ended", "it was killed by a signal")
        why = _CODES.get(code, "") if not self.ready else ""
        return McpFault("ended", f"it ended with exit code {code}{why}")

    # --- its input ---

    async def _write(self, running: Running) -> None:
        async for each in self._from_session:
            message = each.message
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                self._questions.discard(message.id)
            try:
                data = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            except ValueError:
                # Arguments of a model may have text that is not valid Unicode.
                if isinstance(message, types.JSONRPCRequest):
                    await self._deliver(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=_NOT_JSON))
                continue
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await running.write(data)
            except ConnectionError:
                # The end of its output tells why.
                return
            except TimeoutError:
                self._end(McpFault("timeout", "it does not read its input"))
                return

    # --- its error output ---

    async def _log(self, running: Running) -> None:
        lines, left, since, dropped = Lines(_ERROR_LINE_BYTES), _LOGGED_LINES, time.monotonic(), 0
        while chunk := await running.read_errors():
            now = time.monotonic()
            if now - since >= _LOGGED_SECONDS:
                self._log_dropped(dropped)
                left, since, dropped = _LOGGED_LINES, now, 0
            for line in lines.feed(chunk):
                if left > 0:
                    left -= 1
                    self._log_line(line)
                else:
                    dropped += 1
            await self._pace.take(0, len(chunk))
            await asyncio.sleep(0)
        if left > 0 and (rest := lines.rest()) is not None:
            self._log_line(rest)
        self._log_dropped(dropped)

    def _log_line(self, line: bytes | TooLong) -> None:
        # Of a line whose end is not known, the last part could be a part of a secret.
        if isinstance(line, TooLong):
            log.info("mcp_program_errors server=%s: a line of more than %d bytes", self._program.server, _ERROR_LINE_BYTES)
        elif line.strip():
            log.info("mcp_program_errors server=%s: %s", self._program.server, self._readable(line))

    def _log_dropped(self, dropped: int) -> None:
        if dropped:
            log.info("mcp_program_errors server=%s: %d lines more", self._program.server, dropped)

    def _readable(self, line: bytes) -> str:
        text = self._access.masked(storable(line.decode("utf-8", "replace")))
        return "".join(each if each.isprintable() else " " for each in text[:_LOGGED_CHARACTERS])


class _Pace:
    """Slows the reading of a program's output down to the limits."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._messages = self._bytes = 0

    async def take(self, messages: int, size: int) -> None:
        self._messages += messages
        self._bytes += size
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._messages, self._bytes = now, messages, size
        elif self._messages > MOST_MESSAGES or self._bytes > MOST_BYTES:
            await asyncio.sleep(self._since + 1 - now)


_closing: set[asyncio.Future[Any]] = set()
"""Strong references."""


async def _started(program: Program) -> Running:
    try:
        return await programs.launcher().start(program)
    except CannotStart as error:
        raise McpFault("unavailable", str(error)) from None
