"""The client for asyncio."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from agenthost.client import events, images, tools
from agenthost.client.agents import Agent
from agenthost.client.calls import pending
from agenthost.client.errors import ConnectionFailed, ConnectionLost, Refused, StreamLost, UsageError
from agenthost.client.events import Cancelled, Deny, Mode, Permission, SessionInfo, ToolCall
from agenthost.client.runs import RetryTimer
from agenthost.client.server import Server, base_url, check_key
from agenthost.client.tools import ClientTool, Invoke
from agenthost.client.turns import Answerers, AsyncTurn, Request

Tool = Callable[..., Any] | ClientTool
Content = str | Sequence[Mapping[str, Any]]
ImageSource = str | Path | bytes
"""A file, bytes, an ``https://`` URL or a ``data:`` URL."""

RETRY_SECONDS = 120.0

_T = TypeVar("_T")

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_HEADER = re.compile(r"[\x21-\x7e]{1,255}")
_MODES = ("delta", "message", "none")


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)


class AsyncClient:
    """A server and a key.

    ``retry_seconds`` limits the time for which lost connections and refusals with Retry-After (429, 503) are retried.
    ``on_wait`` is called before each wait for a limit, with the seconds and the refusal.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        retry_seconds: float = RETRY_SECONDS,
        on_wait: Callable[[float, Refused], None] | None = None,
        invoke: Invoke = _in_thread,
    ) -> None:
        """``invoke`` runs tools and callbacks that are not coroutines; by default in a thread."""
        self._server = Server(
            base_url(url), check_key(key), on_wait=on_wait or (lambda _seconds, _refused: None), retry_seconds=retry_seconds
        )
        self._invoke = invoke

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._server.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._server.close()

    async def agents(self) -> list[Agent]:
        """The agents that the key may use, with their tools, options and capabilities."""
        return await self._repeated(self._server.agents)

    async def create_session(
        self,
        agent: str,
        *,
        options: Mapping[str, str] | None = None,
        enable: Collection[str] = (),
        trust: Collection[str] = (),
        tools: Sequence[Tool] = (),
        permission: Permission | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        mode: Mode = "delta",
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> AsyncSession:
        """Create a session.

        ``enable`` names tools of the server that ask ``permission`` before they run, ``trust`` those that do not ask.
        ``tools`` are functions of this application. ``messages`` is a history to begin with.
        """
        checked = _checked_mode(mode)
        described: dict[str, Any] = {"name": agent}
        if options:
            described["options"] = dict(options)
        if enable or trust:
            described["tools"] = references(enable, trust)
        answerers = _answerers(tools, permission)
        body: dict[str, Any] = {"agent": described}
        if answerers.tools:
            body["tools"] = [each.specification for each in answerers.tools.values()]
        if messages:
            body["messages"] = [dict(each) for each in messages]
        # Without a key, a repeated request would make a second session.
        headers = {**_trace(traceparent), "Idempotency-Key": _checked_key(idempotency_key) or uuid.uuid4().hex}
        made = await self._repeated(lambda: self._server.create(body, headers))
        return AsyncSession(self._server, self._invoke, made, answerers, checked)

    def session(
        self, session_id: str, *, tools: Sequence[Tool] = (), permission: Permission | None = None, mode: Mode = "delta"
    ) -> AsyncSession:
        """An existing session. ``tools`` replace those that it has, with its next message."""
        answerers = _answerers(tools, permission)
        return AsyncSession(self._server, self._invoke, session_id, answerers, _checked_mode(mode), sends_tools=bool(tools))

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions of the key, the newest first. Reads a page of the list at a time."""
        after = ""
        while True:
            position = after
            page, after = await self._repeated(lambda position=position: self._server.sessions(position))  # type: ignore[misc]  # bound now
            for document in page:
                yield events.session_info(document)
            if not after:
                return

    async def delete_session(self, session_id: str) -> None:
        """Delete a session for ever, and stop its turn."""
        await self._server.delete(session_id)

    async def _repeated(self, request: Callable[[], Awaitable[_T]]) -> _T:
        return await repeated(self._server, request)


class AsyncSession:
    """A session of the server, and the tools and permissions that this client answers it with."""

    def __init__(
        self, server: Server, invoke: Invoke, session_id: str, answerers: Answerers, mode: Mode, *, sends_tools: bool = False
    ) -> None:
        self.id = session_id
        self._server, self._invoke, self._answerers, self._mode = server, invoke, answerers, mode
        self._sends_tools = sends_tools

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def info(self) -> SessionInfo:
        return events.session_info(await repeated(self._server, lambda: self._server.session(self.id)))

    def send(
        self,
        content: Content,
        *,
        images: Sequence[ImageSource] = (),
        options: Mapping[str, str] | None = None,
        enable: Collection[str] | None = None,
        trust: Collection[str] | None = None,
        mode: Mode | None = None,
        deadline: int | None = None,
        idempotency_key: str = "",
        traceparent: str = "",
    ) -> AsyncTurn:
        """Send a message. The request begins with the first event that is read.

        Options stay for later turns. ``enable`` and ``trust`` replace the enabled tools of the server. ``deadline`` is
        the number of seconds after which the server stops the turn. A repeated ``idempotency_key`` with the same
        message joins the first turn, for a day.
        """
        agent: dict[str, Any] = {}
        if options:
            agent["options"] = dict(options)
        if enable is not None or trust is not None:
            agent["tools"] = references(enable or (), trust or ())
        body: dict[str, Any] = {"messages": [{"role": "user", "content": _content(content, images)}]}
        if agent:
            body["agent"] = agent
        return self._turn(body, mode, deadline, idempotency_key, traceparent)

    def answer(
        self, answers: Mapping[str, Any], *, mode: Mode | None = None, idempotency_key: str = "", traceparent: str = ""
    ) -> AsyncTurn:
        """Answer open calls by their ids: with True, False or ``Deny`` for tools of the server, else with the result."""
        if not answers:
            raise UsageError("There is no answer: give at least one open call and its answer")
        messages = [
            events.permission(call, answer) if isinstance(answer, bool | Deny) else events.result(call, tools.content_of(answer))
            for call, answer in answers.items()
        ]
        return self._turn({"messages": messages}, mode, None, idempotency_key, traceparent)

    def join(self, *, after: str = "", mode: Mode | None = None, traceparent: str = "") -> AsyncTurn:
        """The running turn, from its start or after a position. It has no events if no turn runs."""
        headers = _trace(traceparent)
        return self._start(Request(self.id, _checked_mode(mode or self._mode), headers, after=after))

    async def open_calls(self) -> list[ToolCall]:
        """The calls at the end of the history that wait for an answer, from whichever client they came."""
        return [events.tool_call(call) for call in pending(await self.history()).values()]

    async def cancel(self, reason: str = "") -> Cancelled:
        """Stop the running or waiting turn."""
        answer = await self._server.cancel(self.id, reason)
        return Cancelled(answer.get("cancelled") is True, answer.get("providerClosed") is True)

    async def history(self, kind: str = "full") -> list[dict[str, Any]]:
        """The messages: ``full``, or ``compacted`` as the model would get them."""
        if kind not in ("full", "compacted"):
            raise UsageError(f"{kind!r} is not a kind of history; use full or compacted")
        return await repeated(self._server, lambda: self._server.history(self.id, kind))

    async def delete(self) -> None:
        """Delete the session for ever, and stop its turn."""
        await self._server.delete(self.id)

    def _turn(
        self, body: dict[str, Any], mode: Mode | None, deadline: int | None, idempotency_key: str, traceparent: str
    ) -> AsyncTurn:
        headers = _trace(traceparent)
        if deadline is not None:
            if deadline < 1:
                raise UsageError(f"deadline: {deadline!r} is not a whole number of seconds of at least 1")
            headers["X-Turn-Deadline"] = str(deadline)
        if self._sends_tools:
            body["tools"] = [each.specification for each in self._answerers.tools.values()]
        key = _checked_key(idempotency_key)
        return self._start(Request(self.id, _checked_mode(mode or self._mode), headers, body, key), self._mark_tools_sent)

    def _start(self, request: Request, on_accepted: Callable[[], None] | None = None) -> AsyncTurn:
        return AsyncTurn(self._server, request, self._answerers, self._invoke, on_accepted)

    def _mark_tools_sent(self) -> None:
        self._sends_tools = False


async def repeated(server: Server, request: Callable[[], Awaitable[_T]]) -> _T:
    """The answer to a request that changes nothing when it is repeated, across lost connections."""
    timer: RetryTimer | None = None
    while True:
        try:
            return await request()
        except ConnectionLost as lost:
            if timer is None and isinstance(lost, ConnectionFailed):
                # Nothing was ever there: a wrong URL, or a server that is not started.
                raise
            timer = timer or RetryTimer(server.retry_seconds)
            try:
                await timer.pause(lost)
            except StreamLost:
                raise lost from None


def references(enable: Collection[str], trust: Collection[str]) -> list[dict[str, Any]]:
    for name, given in (("enable", enable), ("trust", trust)):
        if isinstance(given, str):
            raise UsageError(f'{name}: a list of names is needed; write ["{given}"]')
    asking = [{"name": each} for each in enable if each not in trust]
    return [*asking, *({"name": each, "trust": True} for each in trust)]


def _answerers(given: Sequence[Tool], permission: Permission | None) -> Answerers:
    if permission is not None and not callable(permission):
        raise UsageError("permission: a function is needed that gets a ToolCall and returns True, False or Deny(reason)")
    return Answerers(tools.by_name(given), permission)


def _content(content: Content, sources: Sequence[ImageSource]) -> Any:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [dict(each) for each in content]
    if not sources and isinstance(content, str):
        if not content:
            raise UsageError("The message is empty")
        return content
    found = [
        images.data_block(each, "The image") if isinstance(each, bytes) else images.block(None, str(each)) for each in sources
    ]
    images.check_total_size(found)
    return [*(each for each in blocks if each.get("text") != ""), *found]


def _checked_mode(mode: str) -> Mode:
    if mode not in _MODES:
        raise UsageError(f"mode: {mode!r} is not one of {', '.join(_MODES)}")
    return mode  # type: ignore[return-value]  # one of the three


def _checked_key(key: str) -> str:
    if key and not _HEADER.fullmatch(key):
        raise UsageError("idempotency_key: 1 to 255 visible ASCII characters are needed")
    return key


def _trace(traceparent: str) -> dict[str, str]:
    if traceparent and not _TRACEPARENT.fullmatch(traceparent):
        raise UsageError("traceparent: not of the form that W3C Trace Context defines, 00-<32 hex>-<16 hex>-<2 hex>")
    return {"traceparent": traceparent} if traceparent else {}
