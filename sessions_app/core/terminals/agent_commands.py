"""Runs the commands of a session's agent in terminals, for its tool ``run_command`` (``agents_app.tools.commands``).

A command is started at most once: a call whose worker dies ends as interrupted, and the sweep disposes of its terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.db import DatabaseError

from agents_app import exact_json, tracing
from agents_app.runtime.interface import CommandResult
from agents_app.tools.caller import CurrentCall
from agents_app.tools.commands.excerpt import Preview
from agents_app.tools.commands.host import Command, CommandsAway, Ended, Ending
from sessions_app.core.base import database, journal_keys
from sessions_app.core.base.errors import (
    DomainError,
    FilesAway,
    InvalidInput,
    NotPossible,
    NotReady,
    PositionPruned,
    TerminalsUnavailable,
)
from sessions_app.core.base.events import Kind
from sessions_app.core.log import feed, journal
from sessions_app.core.log.journal.types import Event
from sessions_app.core.terminals import creating, disposing, services
from sessions_app.core.terminals.creating import ForCall
from sessions_app.core.terminals.types import Claim
from sessions_app.core.workspaces import threads
from sessions_app.models import Terminal, TerminalState
from sessions_app.workspace import paths
from sessions_app.workspace.errors import FileError

MOST_PREVIEW = 1000
"""Characters of a command's output in the block of its terminal; the text of the result has more."""
_TRY_AGAIN = 1.0
_START_SECONDS = services.START_SECONDS + 15.0
"""The sweep ends a terminal that no service has taken; this is for a server without a sweep."""
_disposals: set[asyncio.Task[None]] = set()


class SessionCommands:
    """The commands of one session's turn, for one run (``agents_app.tools.commands.host.Commands``).

    ``network``: the hosts that they may reach, as the agent's definition lists them; empty: none.
    """

    def __init__(self, tenant: int, session: int, turn: int, network: tuple[str, ...] = ()) -> None:
        self._tenant, self._session, self._turn = tenant, session, turn
        self._network = network or None

    async def run(self, command: Command, call: CurrentCall, output: Callable[[str], None]) -> Ended:
        terminal = await self._create(command, call.call_id)
        try:
            await call.show_terminal(terminal.uri, terminal.title)
            preview = Preview(MOST_PREVIEW)

            def take(piece: str) -> None:
                preview.add(piece)
                output(piece)

            waiting = _Waiting(self._tenant, terminal.pk, command.seconds, take)
            ended = await waiting.until_end()
            if ended.how == "timed_out" and not await database.run_for(self._tenant, disposing.dispose_for_call, terminal.pk):
                ended = await self._at_the_last_moment(terminal.pk, ended)
            if ended.how == "background":
                await call.show_terminal(terminal.uri, terminal.title, stays=True)
            elif ended.how != "not_started":
                result = CommandResult(ended.code, *preview.end())
                await call.show_terminal(terminal.uri, terminal.title, result=result)
            return ended
        except BaseException:
            # Cancelled, or the turn is not this run's any more. Not awaited here; the sweep repeats it if it fails.
            self._dispose_soon(terminal.pk)
            raise

    async def _create(self, command: Command, call: str) -> Terminal:
        trace = tracing.context()
        traceparent = None if trace is None else trace.traceparent
        wanted = ForCall(self._session, self._turn, call, command.line, paths.uri_of(command.cwd), self._network, traceparent)
        try:
            return await threads.run(self._tenant, creating.create_for_call, wanted)
        except (TerminalsUnavailable, NotPossible) as error:
            raise CommandsAway(str(error)) from None
        except (FilesAway, NotReady):
            raise CommandsAway("the workspace cannot be used at the moment; try again later") from None
        except (DomainError, InvalidInput, FileError):
            raise CommandsAway("the session, its workspace or the directory is gone") from None

    async def _at_the_last_moment(self, terminal: int, ended: Ended) -> Ended:
        """A user has put the command into the background, or closed it, when its time was over."""
        exists = await database.run_for(self._tenant, Terminal.objects.filter(pk=terminal).exists)
        return Ended("background" if exists else "closed", seconds=ended.seconds)

    def _dispose_soon(self, terminal: int) -> None:
        async def dispose() -> None:
            await database.run_for(self._tenant, disposing.dispose_for_call, terminal)

        task = asyncio.get_running_loop().create_task(dispose(), name=f"dispose of terminal {terminal}")
        _disposals.add(task)
        task.add_done_callback(_disposed)


def _disposed(task: asyncio.Task[None]) -> None:
    _disposals.discard(task)
    if not task.cancelled():
        # Retrieved, so that asyncio does not report it.
        task.exception()


class _Waiting:
    """Follows a command's terminal until the command has ended, a user has put it into the background, or its time is over.

    Waits in the tenant's feed: it holds no thread and no connection.
    """

    def __init__(self, tenant: int, terminal: int, seconds: float, output: Callable[[str], None]) -> None:
        self._tenant, self._terminal, self._seconds, self._output = tenant, terminal, seconds, output
        self._key = journal_keys.of_terminal(terminal)
        self._clock = asyncio.get_running_loop().time
        self._until = self._clock() + _START_SECONDS
        self._started_at: float | None = None
        self._ran: float | None = None

    async def until_end(self) -> Ended:
        after = 0
        while True:
            try:
                async with feed.follow(self._tenant, self._key, after) as reader:
                    while (left := self._until - self._clock()) > 0:
                        events = await reader.next(left)
                        after = reader.delivered
                        for event in events or ():
                            if (ended := self._take(event)) is not None:
                                return ended
                    return self._ended("not_started" if self._started_at is None else "timed_out")
            except (DatabaseError, NotReady):
                await asyncio.sleep(_TRY_AGAIN)
            except PositionPruned:
                # The feed has failed, or output was deleted that this did not read in time.
                await asyncio.sleep(_TRY_AGAIN)
                state, after = await self._look(after)
                if state is not None:
                    return self._ended(state)

    async def _look(self, after: int) -> tuple[Ending | None, int]:
        """How the terminal is now, and the number of the last event that can be skipped."""
        try:
            return await database.run_for(self._tenant, _read, self._terminal, after)
        except (DatabaseError, NotReady):
            return None, after

    def _take(self, event: Event) -> Ended | None:
        match event.kind:
            case Kind.TERMINAL_DATA:
                self._output(exact_json.loads(event.data)["delta"])
            case Kind.TERMINAL_COMMAND_STARTED:
                self._started_at = self._clock()
                self._until = self._started_at + self._seconds
            case Kind.TERMINAL_COMMAND_ENDED:
                ms = exact_json.loads(event.data).get("ms")
                self._ran = None if ms is None else ms / 1000
            case Kind.TERMINAL_CLAIMED:
                if not Claim.of(exact_json.loads(event.data)["claim"]).is_for_call:
                    return self._ended("background")
            case Kind.TERMINAL_DISPOSED:
                return self._ended("closed")
            case Kind.TERMINAL_EXITED:
                payload = exact_json.loads(event.data)
                if payload.get("lost"):
                    return self._ended("unknown")
                if self._started_at is None:
                    return self._ended("not_started")
                code = payload.get("code")
                return self._ended("killed" if code is None else "exited", code)
        return None

    def _ended(self, how: Ending, code: int | None = None) -> Ended:
        ran = self._ran
        if ran is None:
            ran = 0.0 if self._started_at is None else self._clock() - self._started_at
        return Ended(how, code, ran)


def _read(terminal: int, after: int) -> tuple[Ending | None, int]:
    row = Terminal.objects.filter(pk=terminal).first()
    if row is None:
        return "closed", after
    if row.state == TerminalState.EXITED:
        return "unknown", after
    if row.claim_call is None:
        return "background", after
    return None, max(after, journal.tail(journal_keys.of_terminal(terminal)).seq)
