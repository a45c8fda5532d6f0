"""The provider ``python``: an object in the operator's code gives the answers.

``python:module:name`` names an agent of Agenthost's own interface (python_agent.py), a ``pydantic_ai.Agent``, whose model
is called, or one of that library's models. Agents of the own interface get the session's options and a pool for blocking
work from ``for_run``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from agents_app import exact_json, object_references, redaction
from agents_app.errors import ProviderError
from agents_app.fair.threads import FairPool, Pool
from agents_app.python_agent import STATE, Request, Said, State, ToolCall
from agents_app.runtime.interface import (
    Finish,
    Limits,
    ModelRequest,
    Opaque,
    Provider,
    ProviderEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from agents_app.tools import agent_tools

log = logging.getLogger(__name__)

NAME = "python"
MOST_WAITING = 256
"""Limit of events that the run has not consumed yet; the agent then waits."""
SECONDS_TO_CLOSE = 5.0
"""Time limit for an agent to stop when it is cancelled; its task is abandoned after it."""

_lock = threading.Lock()
_found: dict[str, Any] = object_references.cache()
_left_behind: set[asyncio.Task[None]] = set()


class NoAgent(Exception):
    """The named object is not an agent; the text gives the reason."""


def resolve(reference: str) -> Any:
    """The instance or model of ``module:name``, one per process. The first use imports its module."""
    with _lock:
        if reference not in _found:
            _found[reference] = _made(object_references.find(reference))
        return _found[reference]


def fault(reference: str) -> str | None:
    """The reason why the object is not an agent, or None."""
    try:
        resolve(reference)
    except object_references.ObjectNotFound as error:
        return str(error)
    except NoAgent as error:
        return f"{reference}: {error}"
    return None


def is_agent(full_model: str) -> bool:
    """Whether this names an agent of the own interface, which answers users only."""
    provider, _, reference = full_model.partition(":")
    return provider == NAME and fault(reference) is None and not _is_model(resolve(reference))


def _made(found: Any) -> Any:
    if agent_tools.is_pydantic(found):
        if found.model is None or isinstance(found.model, str):
            raise NoAgent("its agent has no model object")
        return found.model
    if _is_model(found):
        return found
    if not agent_tools.is_own(found):
        raise NoAgent("it is neither a pydantic_ai.Agent or Model nor a class with a method respond")
    if not inspect.isclass(found):
        _check(type(found))
        return found
    _check(found)
    try:
        return found()
    # Its constructor may raise anything.
    except Exception as error:
        raise NoAgent(f"making an instance of it, without arguments, raised {type(error).__name__}") from error


def _check(kind: type[Any]) -> None:
    respond = inspect.unwrap(getattr(kind, "respond"))  # noqa: B009 - is_own has checked that it exists
    if not (inspect.isasyncgenfunction(respond) or inspect.isgeneratorfunction(respond)):
        raise NoAgent("its method respond is not a generator; write it as async def or def with yield")


def _is_model(found: Any) -> bool:
    import sys

    library = sys.modules.get("pydantic_ai.models")
    return library is not None and isinstance(found, library.Model)


class Python:
    """interface.Provider for objects in code. A run calls ``for_run`` first; other requests need not."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request, {}, _own_pool(), None)

    def for_run(self, values: Mapping[str, str], pool: Pool, fair_key: Hashable) -> Provider:
        return _ForRun(values, pool, fair_key)


class _ForRun:
    def __init__(self, values: Mapping[str, str], pool: Pool, fair_key: Hashable) -> None:
        self._values, self._pool, self._fair_key = values, pool, fair_key

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request, self._values, self._pool, self._fair_key)


_pool: FairPool | None = None


def _own_pool() -> Pool:
    """The pool for requests outside a run, such as for a summary."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = FairPool(4)
        return _pool


async def _stream(
    request: ModelRequest, values: Mapping[str, str], pool: Pool, fair_key: Hashable
) -> AsyncGenerator[list[ProviderEvent]]:
    speaker: Any = _found.get(request.model)
    if speaker is None:
        try:
            # An import runs a module's code and may block: not in the loop.
            speaker = await pool.run(fair_key, lambda: resolve(request.model))
        except (object_references.ObjectNotFound, NoAgent) as error:
            raise ProviderError("configuration", f"{request.full_model or request.model}: {error}") from None
    if _is_model(speaker):
        # Imported when needed, because it is large.
        from agents_app.providers import pydantic_models

        async with aclosing(pydantic_models.stream(speaker, request)) as stream:
            async for batch in stream:
                yield batch
        return
    async with aclosing(_spoken(speaker, _asked(request, values), request.limits, pool, fair_key)) as said:
        async for batch in said:
            yield batch


def _asked(request: ModelRequest, values: Mapping[str, str]) -> Request:
    return Request(
        instructions=request.instructions,
        messages=request.messages,
        tools=request.tools,
        settings=request.settings,
        options=values,
        limits=request.limits,
        full_model=request.full_model,
    )


async def _spoken(
    agent: Any, request: Request, limits: Limits, pool: Pool, fair_key: Hashable
) -> AsyncGenerator[list[ProviderEvent]]:
    """The agent's events, in batches of those that have arrived; the last one is a finish.

    The agent runs in one task from beginning to end, so that its resources (a client, a timeout) are closed by the task
    that opened them, however the run ends.
    """
    queue: asyncio.Queue[Said | None] = asyncio.Queue(MOST_WAITING)
    name = type(agent).__name__

    async def speak() -> None:
        try:
            answer = agent.respond(request)
            heard = answer if isinstance(answer, AsyncIterator) else _in_threads(answer, pool, fair_key)
            async with aclosing(heard) as said:  # type: ignore[type-var]  # a generator, as _check has seen
                async for each in said:
                    await queue.put(each)
        except (SystemExit, KeyboardInterrupt) as error:
            # SystemExit or KeyboardInterrupt in a task would end the worker's loop.
            raise RuntimeError("the agent raised SystemExit or KeyboardInterrupt") from error
        finally:
            # A full queue has no consumer any more when this is cancelled.
            if not queue.full():
                queue.put_nowait(None)

    task = asyncio.create_task(speak())
    taken = _Taken(name)
    try:
        timeout = limits.first_output
        while True:
            batch = await _heard(queue, timeout)
            if events := taken.events(batch):
                yield events
                timeout = limits.between_outputs
            if None in batch or (task.done() and queue.empty()):
                break
        await _ended(task, name)
        yield [taken.finish()]
    finally:
        await _close(task, name)


async def _heard(queue: asyncio.Queue[Said | None], seconds: float) -> list[Said | None]:
    try:
        async with asyncio.timeout(seconds):
            batch = [await queue.get()]
    except TimeoutError:
        raise ProviderError("timeout", f"the agent yielded nothing for {seconds:g} s") from None
    while not queue.empty():
        batch.append(queue.get_nowait())
    return batch


async def _ended(task: asyncio.Task[None], name: str) -> None:
    await asyncio.wait({task})
    if task.cancelled():
        raise ProviderError("broken_stream", f"{name}: its task was cancelled from within")
    error = task.exception()
    if isinstance(error, ProviderError):
        raise error
    if error is not None:
        raise ProviderError("broken_stream", f"{name}.respond raised\n{redaction.without_source(error)}")


async def _close(task: asyncio.Task[None], name: str) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=SECONDS_TO_CLOSE)
    if not task.done():
        log.warning("agent_not_stopped agent=%s: its method respond did not stop within %g s", name, SECONDS_TO_CLOSE)
        _left_behind.add(task)
        task.add_done_callback(_forgotten)
    elif not task.cancelled():
        # Retrieved, so that the loop does not report it.
        task.exception()


def _forgotten(task: asyncio.Task[None]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


class _Taken:
    """Converts the values that an agent yields to provider events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = 0
        self._finish: Finish | None = None

    def events(self, batch: list[Said | None]) -> list[ProviderEvent]:
        return [event for each in batch if each is not None and (event := self._event(each)) is not None]

    def finish(self) -> Finish:
        return self._finish or Finish("tool_calls" if self._calls else "stop")

    def _event(self, said: object) -> ProviderEvent | None:
        match said:
            case str():
                return TextDelta(said)
            case TextDelta(str()) | ThinkingDelta(str()) | Usage():
                return said
            case ToolCall(str(), Mapping()):
                self._calls += 1
                return ToolCallDelta(self._calls - 1, None, said.name, self._json(dict(said.arguments)))
            case ToolCallDelta():
                self._calls = max(self._calls, said.index + 1)
                return said
            case State(data):
                return Opaque(STATE, self._value(data))
            case Opaque(part, data):
                return Opaque(part, self._value(data))
            case Finish():
                self._finish = said
                return None
        raise ProviderError("broken_stream", f"{self._name}.respond yielded a {type(said).__name__}, which is not supported")

    def _value(self, data: Any) -> Any:
        self._json(data)
        return data

    def _json(self, data: Any) -> str:
        try:
            return exact_json.dumps(data)
        except (TypeError, ValueError, RecursionError) as error:
            raise ProviderError("broken_stream", f"{self._name}.respond yielded a value without a JSON form") from error


_END = object()


async def _in_threads(said: Iterator[Said], pool: Pool, fair_key: Hashable) -> AsyncGenerator[Said]:
    """Run each step of a plain generator in a thread."""
    pulled = _Pulled(said)
    try:
        while (each := await pool.run(fair_key, pulled.next)) is not _END:
            yield each
    except (GeneratorExit, asyncio.CancelledError):
        if pulled.abandon():
            await pool.run(fair_key, pulled.close)
        raise


class _Pulled:
    """A plain generator that may be abandoned while a thread runs a step of it; that thread then closes it."""

    def __init__(self, said: Iterator[Said]) -> None:
        self._said = said
        self._lock = threading.Lock()
        self._at_work = self._abandoned = False

    def next(self) -> Any:
        with self._lock:
            if self._abandoned:
                return _END
            self._at_work = True
        try:
            return next(self._said, _END)
        # SystemExit and KeyboardInterrupt end the agent only.
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            raise RuntimeError("the agent raised SystemExit or KeyboardInterrupt") from error
        finally:
            if self._leave():
                self.close()

    def _leave(self) -> bool:
        """End a thread's step; returns whether the generator was abandoned meanwhile."""
        with self._lock:
            self._at_work = False
            return self._abandoned

    def abandon(self) -> bool:
        """Abandon the generator; returns True if no thread runs a step, so that the caller has to close it."""
        with self._lock:
            self._abandoned = True
            return not self._at_work

    def close(self) -> None:
        close = getattr(self._said, "close", None)
        if close is not None:
            close()
