"""Runs the server tools of one run: checks arguments, calls functions, limits time and output."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from agents_app import redaction
from agents_app.errors import RunLost, ToolFailed
from agents_app.fair.threads import Pool
from agents_app.runtime.interface import FileEdit, Limits
from agents_app.runtime.messages import Content, ToolSchema
from agents_app.spec import ToolSpec
from agents_app.tools import output
from agents_app.tools.arguments import checked
from agents_app.tools.caller import Allowance, allowance, fair_key
from agents_app.tools.cancelling import cancel_without_waiting
from agents_app.tools.commands.host import Commands, commands
from agents_app.tools.files.host import FileProblem, Workspace, workspace
from agents_app.tools.source import PREVIEWS, NoFunction, known, resolve

logger = logging.getLogger(__name__)

MAX_REASON = 500
MAX_BUILTIN_REASON = 5_000
"""Builtin tools show the lines that a model has to know for a second attempt."""
_GRACE_SECONDS = 90.0
"""A tool that keeps the time itself gets this much more before it is cancelled: its command may wait for a terminal service."""


class ServerTools:
    """A run's own tools (interface.ToolSet). Coroutines run in the loop, everything else in ``pool``."""

    def __init__(
        self,
        specs: Sequence[ToolSpec],
        pool: Pool,
        fair_key: Hashable,
        limits: Limits,
        files: Workspace | None = None,
        running: Commands | None = None,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._pool, self._fair_key, self._limits, self._files, self._commands = pool, fair_key, limits, files, running

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        return [spec.schema for spec in self._specs.values()]

    def has(self, name: str) -> bool:
        return name in self._specs

    def idempotent(self, name: str) -> bool:
        return name in self._specs and self._specs[name].idempotent

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        spec = self._specs.get(name)
        make = None if spec is None else PREVIEWS.get(spec.source)
        if spec is None or make is None or self._files is None:
            return ()
        try:
            fair_key.set(self._fair_key)
            given = checked(arguments, spec.parameters)
            return [await self._files.look(lambda files: make(files, given))]
        except (ToolFailed, FileProblem):
            # The call will fail with the same reason when it runs.
            return ()

    async def run(self, name: str, arguments: Mapping[str, Any]) -> Content:
        """The tool's output; ``ToolFailed`` with a reason that reveals nothing of the tool's code."""
        spec = self._specs[name]
        try:
            # An import runs a module's code and may block: not in the loop.
            function = known(spec.source)
            if function is None:
                function = await self._pool.run(self._fair_key, lambda: resolve(spec.source))
        except NoFunction as error:
            logger.warning("tool %s cannot be used here: %s", name, error)
            raise ToolFailed("the tool is not available") from None
        fair_key.set(self._fair_key)
        workspace.set(self._files)
        commands.set(self._commands)
        seconds = spec.timeout or self._limits.tool_seconds
        limit = self._limits.tool_output_bytes
        allowance.set(Allowance(seconds, limit))
        if getattr(function, "keeps_time", False):
            seconds += _GRACE_SECONDS
        # A library that describes its own tools also validates their arguments.
        given = dict(arguments) if getattr(function, "checks_arguments", False) else checked(arguments, spec.parameters)
        try:
            if _is_async(function):
                value = await _bounded(lambda: _called(function, given, limit), seconds)
            else:
                value = await self._pool.run(self._fair_key, lambda: _call(function, given, limit), timeout=seconds)
                if inspect.isawaitable(value):
                    value = await _bounded(lambda: _awaited(value), seconds)
            return output.as_content(value, limit)
        except TimeoutError:
            raise ToolFailed(f"timed out after {seconds:g} s") from None
        except ToolFailed as error:
            most = MAX_BUILTIN_REASON if spec.source.startswith("builtin:") else MAX_REASON
            raise ToolFailed(output.clean(error.reason)[:most]) from None
        except RunLost:
            raise
        # The tool's code may raise anything.
        except Exception as error:
            # Class and stack frames only: the message may quote a user.
            cause = error.__cause__ if isinstance(error, _Raised) and error.__cause__ is not None else error
            logger.warning("tool %s raised %s\n%s", name, type(error).__name__, redaction.without_source(cause))
            raise ToolFailed("the tool raised an error") from None


def _is_async(function: Callable[..., Any]) -> bool:
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


class _Raised(Exception):
    """Wraps an exception of a tool that would otherwise end more than the tool: SystemExit, its own TimeoutError."""


def _call(function: Callable[..., Any], arguments: Mapping[str, Any], limit: int) -> Any:
    try:
        value = function(**arguments)
        return output.collect(value, limit) if isinstance(value, Iterator) else value
    except (TimeoutError, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        raise _Raised from error


async def _called(function: Callable[..., Any], arguments: Mapping[str, Any], limit: int) -> Any:
    try:
        value = function(**arguments)
        if isinstance(value, AsyncIterator):
            return await output.collect_async(value, limit)
        return await value
    except (TimeoutError, SystemExit, KeyboardInterrupt) as error:
        raise _Raised from error


async def _awaited(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except (TimeoutError, SystemExit, KeyboardInterrupt) as error:
        raise _Raised from error


async def _bounded(start: Callable[[], Any], seconds: float) -> Any:
    """A coroutine's result. On timeout or cancellation it is cancelled without waiting, because it may ignore that."""
    task: asyncio.Task[Any] = asyncio.ensure_future(start())
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise _Raised
        return task.result()
    finally:
        if not task.done():
            cancel_without_waiting(task)
