"""The tool set of one run: tools of MCP servers together with the agent's own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agents_app.errors import ToolFailed
from agents_app.mcp import elicitation, listing
from agents_app.mcp.access import Access
from agents_app.mcp.pool import pool
from agents_app.runtime.interface import Ask, FileEdit, FormAnswer, Limits
from agents_app.runtime.messages import Content, ToolSchema
from agents_app.spec import ToolSpec
from agents_app.tools import output
from agents_app.tools.cancelling import cancel_without_waiting
from agents_app.tools.toolset import ServerTools

if TYPE_CHECKING:
    import mcp_types

QUESTION_SECONDS = 900.0
"""Time limit of a server's question. The tool's own time limit does not run meanwhile."""
MOST_QUESTIONS = 20
"""Limit of questions in one call."""


class WithServers:
    """A run's tools (interface.ToolSet): ``own``, and those of MCP servers."""

    def __init__(self, own: ServerTools, specs: Sequence[ToolSpec], accesses: Mapping[str, Access], limits: Limits) -> None:
        self._own, self._accesses, self._limits = own, accesses, limits
        self._specs = {spec.name: spec for spec in specs}

    @property
    def schemas(self) -> Sequence[ToolSchema]:
        return [*self._own.schemas, *(spec.schema for spec in self._specs.values())]

    def has(self, name: str) -> bool:
        return name in self._specs or self._own.has(name)

    def idempotent(self, name: str) -> bool:
        return self._specs[name].idempotent if name in self._specs else self._own.idempotent(name)

    async def preview(self, name: str, arguments: Mapping[str, Any]) -> Sequence[FileEdit]:
        return () if name in self._specs else await self._own.preview(name, arguments)

    async def run(self, name: str, arguments: Mapping[str, Any], ask: Ask | None = None) -> Content:
        """See interface.ToolSet. The server checks the arguments, because it has its complete schema."""
        spec = self._specs.get(name)
        if spec is None:
            return await self._own.run(name, arguments)
        server, tool = listing.of_source(spec.source)
        access = self._accesses.get(server)
        if access is None:
            raise ToolFailed(f"the agent has no MCP server {server} any more")
        seconds = spec.timeout or self._limits.tool_seconds
        clock, call = _Clock(seconds), None
        try:
            async with asyncio.timeout(seconds) as limit:
                clock.limit = limit
                elicit = None if ask is None else _Elicit(ask, clock)
                call = asyncio.ensure_future(pool().call(access, tool, arguments, self._limits.tool_output_bytes, elicit))
                await asyncio.wait({call})
            return call.result()
        except TimeoutError:
            raise ToolFailed(
                "its question was not answered in time" if clock.open else f"timed out after {seconds:g} s"
            ) from None
        except ToolFailed as failed:
            raise ToolFailed(output.clean(failed.reason)) from None
        finally:
            # On timeout or cancellation the call is cancelled at the server, without waiting for it.
            if call is not None:
                cancel_without_waiting(call)


class _Clock:
    """The time limit of a call, paused while a question is open, which has a limit of its own."""

    limit: asyncio.Timeout

    def __init__(self, seconds: float) -> None:
        self._left, self._since = seconds, time.monotonic()
        self.open = 0

    def pause(self) -> None:
        if not self.open:
            self._left -= time.monotonic() - self._since
            self._reschedule(QUESTION_SECONDS)
        self.open += 1

    def resume(self) -> None:
        self.open -= 1
        if not self.open:
            self._since = time.monotonic()
            self._reschedule(max(self._left, 0))

    def _reschedule(self, seconds: float) -> None:
        # A question may end just after its call; the limit is gone then.
        with contextlib.suppress(RuntimeError):
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


class _Elicit:
    """Passes a server's question to the session's client."""

    def __init__(self, ask: Ask, clock: _Clock) -> None:
        self._ask, self._clock = ask, clock
        self._asked = 0
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        form = elicitation.form(params)
        self._asked += 1
        if form is None or self._asked > MOST_QUESTIONS:
            return elicitation.answer(FormAnswer("decline"))
        self._clock.pause()
        try:
            async with self._one_at_a_time:
                return elicitation.answer(await self._ask(form))
        finally:
            self._clock.resume()
