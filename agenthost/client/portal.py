"""Runs coroutines for callers without an event loop, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from agenthost.client.errors import UsageError

_T = TypeVar("_T")

_Calls = SimpleQueue[Callable[[], None] | None]
_calls: contextvars.ContextVar[_Calls] = contextvars.ContextVar("agenthost_client_calls")
"""The queue of the thread that waits for the coroutine."""


class Portal:
    """A loop in a thread. Works in any thread, also in one that runs another loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agenthost-client", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """The coroutine's result. The calling thread runs the functions that the coroutine gives to ``invoke`` meanwhile."""
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError("The client is closed" if self._loop.is_closed() else "Use AsyncClient inside of coroutines")
        calls: _Calls = SimpleQueue()
        token = _calls.set(calls)
        try:
            # The task inherits this context, and so the queue.
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        finally:
            _calls.reset(token)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    async def invoke(self, function: Callable[[], Any]) -> Any:
        """Run a blocking function in the thread that waits for this coroutine."""
        outcome = self._loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            if not outcome.done():
                if error is None:
                    outcome.set_result(value)
                else:
                    outcome.set_exception(error)

        def call() -> None:
            try:
                value, raised = function(), None
            except Exception as error:  # raised again in the coroutine that asked
                value, raised = None, error
            self._loop.call_soon_threadsafe(settle, value, raised)

        _calls.get().put(call)
        return await outcome

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
