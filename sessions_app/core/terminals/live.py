"""A running terminal: its process, output into the journal, input from the journal, checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError

from agents_app import exact_json
from agents_app.fair.rates import Rates
from sessions_app.core.base import database, redaction, supervision
from sessions_app.core.base.content import UNSTORABLE
from sessions_app.core.base.errors import DomainError, NotReady, PositionPruned
from sessions_app.core.base.events import Happening, Kind
from sessions_app.core.log import feed, journal
from sessions_app.core.log.journal.types import Event, Unit
from sessions_app.core.terminals import boxes, checkpoints, ending
from sessions_app.core.terminals.services import Claimed
from sessions_app.core.terminals.types import LONGEST_TITLE
from sessions_app.workspace import pty
from sessions_app.workspace.errors import FileError
from sessions_app.workspace.sandbox import NoDirectory, NoSandbox
from sessions_app.workspace.shell_output import (
    CommandEnded,
    CommandsAvailable,
    CommandStarted,
    Cwd,
    Data,
    Output,
    ShellOutput,
    Title,
)

log = logging.getLogger(__name__)

FAILED = "\r\n[The terminal has failed; the server's log has the reason.]\r\n"
NOT_STARTED = "[The terminal could not be started; the server's log has the reason.]\r\n"
UNREAD_INPUT = 1024 * 1024
"""Bytes of input that the program has not read; more is discarded, as by a terminal's own queue."""
_SPACING = 0.015
"""Seconds between two reads: output of a busy program is joined, so that it makes at most 66 events a second."""
_MARK_SIZE = 4096
"""What a command's beginning or end counts against the rate of output: it is stored at once, so a program that makes many of
them is slowed down."""
_FACTS_PAUSE = 1.0
"""Seconds between two changes of title or directory by the program; the last one always counts."""
_CHECKPOINT_BYTES = 256 * 1024
_CHECKPOINT_SECONDS = 30.0
_TRY_AGAIN = 1.0
_LONGEST_LINE = 4096


@dataclass(slots=True)
class _Facts:
    """What the program has set and no transaction has stored yet."""

    title: str | None = None
    cwd: str | None = None


class LiveTerminal:
    """Drives one claimed terminal from its start to its end. All methods run in the service's loop."""

    def __init__(self, claimed: Claimed, writer: journal.Writer, rates: Rates) -> None:
        self.claimed = claimed
        self.active_at = time.monotonic()
        self._writer, self._rates = writer, rates
        self._process: pty.PtyProcess | None = None
        self._ended_by = ""
        """A last line, if the server ends the terminal."""
        self._killed = False
        self._input: deque[bytes] = deque()
        self._input_size = 0
        self._has_input = asyncio.Event()
        self._facts = _Facts()
        self._has_facts = asyncio.Event()
        self._uncovered = 0
        self._is_uncovered = asyncio.Event()
        self._full = asyncio.Event()
        self._started_commands: dict[str, float] = {}

    # --- for the service ---

    def kill(self, message: str = "") -> None:
        """End the process; ``message`` is its last line of output."""
        self._killed, self._ended_by = True, self._ended_by or message
        if self._process is not None:
            self._process.kill()

    async def drive(self) -> None:
        """Returns when the terminal's end is stored, or when it is not this service's any more."""
        code: int | None = None
        try:
            message = await self._start()
            if self._process is not None:
                code, message = await self._run(self._process)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("terminal_failed terminal=%s: %s", self.claimed.public_id, redaction.described(error))
            message = FAILED
        finally:
            if self._process is not None:
                await asyncio.shield(self._process.close())
        await self._until_stored(
            lambda: database.run_for(
                self.claimed.tenant, ending.exited, self.claimed.terminal, self.claimed.fence, code, message=message
            )
        )
        await self._until_stored(lambda: database.run(checkpoints.store, self.claimed.terminal))

    # --- start and end ---

    async def _start(self) -> str:
        """Start the shell; returns a line for the user if that failed."""
        claimed = self.claimed
        try:
            box = await database.run_for(claimed.tenant, boxes.prepare, claimed)
            self._output = ShellOutput(box.shell.nonce, prefix=f"{claimed.public_id[-8:]}-")
            self._process = await pty.start(box.box, box.shell.argv, box.environment, cols=claimed.cols, rows=claimed.rows)
        except (NoDirectory, FileError, DomainError) as error:
            # Its text may name a file of the tenant: it is for the client and not for the log.
            log.warning("terminal_not_started terminal=%s: %s", claimed.public_id, redaction.described(error))
            return f"[The terminal could not be started: {error}]\r\n"
        except NoSandbox as error:
            # Its text may name directories of the server.
            log.error("terminal_not_started terminal=%s: %s", claimed.public_id, error)
            return NOT_STARTED
        if claimed.command is not None:
            started = (CommandsAvailable(), CommandStarted(self._command, claimed.command))
            await self._writer.put(self._unit([*self._happenings(started)]))
        if self._killed:
            self._process.kill()
        return ""

    @property
    def _command(self) -> str:
        """The id of the command of a terminal that runs only one."""
        return f"{self.claimed.public_id[-8:]}-1"

    async def _run(self, process: pty.PtyProcess) -> tuple[int | None, str]:
        """Run until the process has ended and its output is stored. Returns its exit code and a last line."""
        background = [
            supervision.task(work, f"terminal {self.claimed.terminal}", instead=self._fail)
            for work in (self._follow(), self._type(process), self._store_facts(), self._make_checkpoints())
        ]
        try:
            await self._pump(process)
            code = await process.wait()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        await self._put_last(None if self._ended_by else code)
        await self._write_facts()
        if self._ended_by:
            return None, self._ended_by
        return code, f"\r\n[{process.killed_for}]\r\n" if process.killed_for else ""

    def _fail(self, error: BaseException | None) -> None:
        """One of the tasks has failed: this terminal ends, and no other."""
        log.error("terminal_failed terminal=%s: %s", self.claimed.public_id, "" if error is None else redaction.described(error))
        self.kill(FAILED)

    async def _put_last(self, code: int | None) -> None:
        happenings = [*self._happenings(self._output.end())]
        if self.claimed.command is not None:
            happenings += self._happenings([CommandEnded(self._command, code)])
        if happenings:
            await self._writer.submit(self._unit(happenings))
        else:
            # The exit comes after the last output.
            await self._writer.submit(self._unit([Happening(Kind.TERMINAL_DATA, {"delta": ""}, "output")]))

    async def _until_stored(self, store: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await store()
                return
            except Exception as error:
                if not database.is_away(error) and not database.is_lock_refused(error):
                    log.error("terminal_end_not_stored terminal=%s: %s", self.claimed.public_id, redaction.described(error))
                    return
            await asyncio.sleep(_TRY_AGAIN)

    # --- output ---

    async def _pump(self, process: pty.PtyProcess) -> None:
        loop = asyncio.get_running_loop()
        while data := await process.read():
            read_at = loop.time()
            self.active_at = time.monotonic()
            found = self._output.feed(data)
            if happenings := [*self._happenings(found)]:
                # While the journal is slow this waits, and then the program does.
                await self._writer.put(self._unit(happenings))
            marks = sum(1 for each in found if not isinstance(each, Data))
            await self._rates.take(self.claimed.tenant, len(data) + marks * _MARK_SIZE)
            left = read_at + _SPACING - loop.time()
            if left > 0:
                await asyncio.sleep(left)

    def _unit(self, happenings: Sequence[Happening]) -> Unit:
        claimed = self.claimed
        return Unit(claimed.tenant, claimed.key, claimed.terminal, claimed.fence, happenings)

    def _happenings(self, found: Iterable[Output]) -> Iterable[Happening]:
        for each in found:
            match each:
                case Data(text):
                    if text:
                        yield Happening(Kind.TERMINAL_DATA, {"delta": text}, "output")
                case Title(title):
                    self._facts.title = UNSTORABLE.sub("", title)[:LONGEST_TITLE]
                    self._has_facts.set()
                case Cwd(path) if len(path) <= _LONGEST_LINE:
                    self._facts.cwd = boxes.uri_of(path)
                    self._has_facts.set()
                case CommandsAvailable():
                    yield Happening(Kind.TERMINAL_COMMANDS_AVAILABLE, {})
                case CommandStarted(command, line):
                    self._started_commands = {command: time.monotonic()}
                    payload = {"command": command, "line": line[:_LONGEST_LINE], "at": time.time_ns() // 1_000_000}
                    yield Happening(Kind.TERMINAL_COMMAND_STARTED, payload)
                case CommandEnded(command, code):
                    ended: dict[str, Any] = {"command": command}
                    if code is not None:
                        ended["code"] = code
                    if (began := self._started_commands.pop(command, None)) is not None:
                        ended["ms"] = round((time.monotonic() - began) * 1000)
                    yield Happening(Kind.TERMINAL_COMMAND_ENDED, ended)

    # --- title and directory ---

    async def _store_facts(self) -> None:
        while True:
            await self._has_facts.wait()
            await self._write_facts()
            await asyncio.sleep(_FACTS_PAUSE)

    async def _write_facts(self) -> None:
        self._has_facts.clear()
        facts, self._facts = self._facts, _Facts()
        claimed = self.claimed
        try:
            if facts.title is not None:
                await database.run_for(claimed.tenant, ending.retitle, claimed.terminal, claimed.fence, facts.title)
            if facts.cwd is not None:
                await database.run_for(claimed.tenant, ending.change_directory, claimed.terminal, claimed.fence, facts.cwd)
        except Exception as error:
            log.warning("terminal_facts_not_stored terminal=%s: %s", claimed.public_id, redaction.described(error))
            self._facts = _Facts(self._facts.title or facts.title, self._facts.cwd or facts.cwd)
            self._has_facts.set()

    # --- input ---

    async def _follow(self) -> None:
        """Take the terminal's own events, in order: what clients send to it is among them."""
        after = self.claimed.seq
        while True:
            try:
                async with feed.follow(self.claimed.tenant, self.claimed.key, after) as reader:
                    while True:
                        events = await reader.next(None)
                        after = reader.delivered
                        self._take(events or ())
            except (DatabaseError, NotReady):
                await asyncio.sleep(_TRY_AGAIN)
            except PositionPruned:
                # The feed has failed, or this service was away for so long that input was deleted.
                await asyncio.sleep(_TRY_AGAIN)
                after = max(after, await self._tail())

    async def _tail(self) -> int:
        while True:
            with contextlib.suppress(Exception):
                return await database.run(_last_number, self.claimed.key)
            await asyncio.sleep(_TRY_AGAIN)

    def _take(self, events: Sequence[Event]) -> None:
        size: tuple[int, int] | None = None
        for event in events:
            match event.kind:
                case Kind.TERMINAL_INPUT:
                    self._take_input(exact_json.loads(event.data)["data"])
                case Kind.TERMINAL_RESIZED:
                    payload = exact_json.loads(event.data)
                    size = payload["cols"], payload["rows"]
                case Kind.TERMINAL_DISPOSED:
                    self.kill()
                case Kind.TERMINAL_EXITED:
                    # A sweep has ended the terminal, because this service did not renew its lease.
                    self.kill()
            self._note_uncovered(len(event.data))
        if size is not None and self._process is not None:
            self._process.resize(*size)

    def _take_input(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self.active_at = time.monotonic()
        if self._input_size + len(data) > UNREAD_INPUT:
            log.warning("terminal_input_discarded terminal=%s: its program reads nothing", self.claimed.public_id)
            return
        self._input.append(data)
        self._input_size += len(data)
        self._has_input.set()

    async def _type(self, process: pty.PtyProcess) -> None:
        while True:
            await self._has_input.wait()
            self._has_input.clear()
            while self._input:
                data = self._input.popleft()
                try:
                    await process.write(data)
                except ConnectionError:
                    # The program has ended; its terminal ends soon.
                    self._input.clear()
                    self._input_size = 0
                    break
                self._input_size -= len(data)

    # --- checkpoints ---

    def _note_uncovered(self, size: int) -> None:
        self._uncovered += size
        self._is_uncovered.set()
        if self._uncovered >= _CHECKPOINT_BYTES:
            self._full.set()

    async def _make_checkpoints(self) -> None:
        while True:
            await self._is_uncovered.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECKPOINT_SECONDS):
                    await self._full.wait()
            self._uncovered = 0
            self._is_uncovered.clear()
            self._full.clear()
            try:
                seq = await database.run(checkpoints.store, self.claimed.terminal)
                await database.run(checkpoints.prune, self.claimed.terminal, seq)
            except Exception as error:
                log.warning("checkpoint_failed terminal=%s: %s", self.claimed.public_id, redaction.described(error))
                self._is_uncovered.set()
            await asyncio.sleep(_TRY_AGAIN)


def _last_number(key: int) -> int:
    return journal.tail(key).seq
