"""Reads deltas of a streamed answer where they are received, without waking the task that waits for them.

A token would wake that task through aiohttp's reader and all generators above it. Here a plain callback reads the answer, and
offers each list of events to the consumer; the task wakes up only for what the consumer does not take: another kind of event,
text that has to wait, errors, the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from agents_app.runtime.interface import ProviderEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    import aiohttp

    from agents_app.providers.read_timeout import ReadTimeout


class _Splitter(Protocol):
    def feed(self, chunk: bytes) -> list[Any]: ...


class _Answer(Protocol):
    finished: bool
    over: bool

    def read(self, events: Iterable[Any]) -> list[ProviderEvent]: ...

    def check(self) -> None: ...


class LiveReading:
    """The live part of one answer. ``at_once`` takes a list of events, or returns False; None: there is no such consumer."""

    __slots__ = ("_answer", "_at_once", "_between", "_content", "_error", "_loop", "_read", "_splitter", "_timeout", "_woken")

    def __init__(
        self,
        content: aiohttp.StreamReader,
        splitter: _Splitter,
        answer: _Answer,
        timeout: ReadTimeout,
        at_once: Callable[[Sequence[ProviderEvent]], bool] | None,
        between_outputs: float,
    ) -> None:
        self._content, self._splitter, self._answer, self._timeout = content, splitter, answer, timeout
        self._at_once, self._between = at_once, between_outputs
        self._loop = asyncio.get_running_loop()
        self._read: list[ProviderEvent] | None = None
        self._error: BaseException | None = None
        self._woken: asyncio.Future[None] | None = None

    async def next(self) -> list[ProviderEvent] | None:
        """Wait for events that the consumer has not taken. None: read ``content`` as usual, it has data, its end or an error."""
        content = self._content
        if self._at_once is None or self._answer.finished:
            return None
        if content._buffer or content.is_eof() or content.exception() is not None:
            return None
        self._woken = self._loop.create_future()
        # The reader's waiter is a future that it resolves when it has data; this object takes its place.
        content._waiter = cast("asyncio.Future[None]", self)
        try:
            await self._woken
        finally:
            self._woken = None
            if content._waiter is cast(Any, self):
                content._waiter = None
        self._timeout.stop()
        if self._error is not None:
            raise self._error
        read, self._read = self._read, None
        return read

    # What the reader calls in place of a future's methods. It has removed its waiter before.

    def done(self) -> bool:
        return self._woken is None or self._woken.done()

    def set_exception(self, _error: BaseException) -> None:
        self._wake()

    def set_result(self, _none: None) -> None:
        # Not here: this is called by the parser of HTTP, which reading enters again.
        self._loop.call_soon(self._arrived)

    def _arrived(self) -> None:
        if self.done():
            return
        content = self._content
        try:
            while content._buffer:
                if not self._take(content._read_nowait(-1)):
                    self._wake()
                    return
        except Exception as error:
            # It belongs to the task: here it would be nobody's.
            self._error = error
        if self._error is not None or content.is_eof() or content.exception() is not None:
            self._wake()
        else:
            content._waiter = cast("asyncio.Future[None]", self)

    def _take(self, chunk: bytes) -> bool:
        """Whether the task need not wake up for this chunk."""
        read = self._answer.read(self._splitter.feed(chunk))
        if self._answer.finished or self._answer.over:
            self._read = read
            return False
        if not read:
            return True
        if self._at_once is None or not self._at_once(read):
            self._read = read
            return False
        self._answer.check()
        self._timeout.start(self._loop.time() + self._between)
        return True

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
