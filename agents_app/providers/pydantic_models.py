"""Adapts pydantic-ai's models to a provider. Imports that library.

A task of its own reads each stream, so that resources are closed by the task that opened them, and so that events that
arrived together are returned together: the task continues while there is data to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial

from pydantic_ai import exceptions as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model

from agents_app import exact_json
from agents_app.errors import Answered, ProviderError, ProviderFault
from agents_app.providers import exchange, pydantic_messages
from agents_app.providers.answer_reader import put_call
from agents_app.runtime import long_work
from agents_app.runtime.interface import Finish, ModelRequest, ProviderEvent, TextDelta, ThinkingDelta, ToolCallDelta, Usage

logger = logging.getLogger(__name__)

MOST_WAITING = 1_000
"""Limit of events that were read and not consumed yet; the reader then waits."""
STILL_ROUNDS = 10
"""Iterations of the loop without an event after which a reader counts as waiting for its server."""
SECONDS_TO_SETTLE = 2.0
SECONDS_TO_CLOSE = 5.0
"""Time limit for a model class to close its stream; the task is abandoned after it."""


async def stream(model: Model, request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
    """Stream one answer; see interface.Provider."""
    attempt = 0
    while True:
        reader = _Reader(model, request)
        begun = False
        try:
            while batch := await reader.read(begun=begun):
                begun = True
                yield batch
            return
        except Exception as problem:
            # The model's class may raise anything.
            error, wait = _sorted(problem, attempt)
            if begun or wait is None or attempt >= request.limits.retries:
                answered = replace(error.answered, attempts=attempt + 1, after_output=begun)
                raise ProviderError(_in_the_middle(error.fault) if begun else error.fault, error.detail, answered) from None
            logger.info("%s: attempt %d: %s; again in %.2f s", type(model).__name__, attempt + 1, error, wait)
        finally:
            await reader.close()
        await asyncio.sleep(wait)
        attempt += 1


class _Reader:
    """Reads one attempt."""

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._model, self._request = model, request
        self._waiting: deque[ModelResponseStreamEvent] = deque()
        self._came, self._taken = asyncio.Event(), asyncio.Event()
        self._response: ModelResponse | None = None
        self._calls: dict[int, int] = {}
        self._over = self._left = False
        self._read = 0
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._came.set())

    async def _run(self) -> None:
        request = self._request
        make = partial(pydantic_messages.messages, request, self._model)
        messages = await long_work.call(request.fair_key, make, request.instructions, request.messages)
        async with model_request_stream(
            self._model,
            messages,
            model_settings=pydantic_messages.settings(request),
            model_request_parameters=pydantic_messages.parameters(request),
            instrument=False,
        ) as streamed:
            try:
                async for event in streamed:
                    self._read += 1
                    if self._left:
                        continue
                    self._waiting.append(event)
                    self._came.set()
                    if len(self._waiting) >= MOST_WAITING:
                        self._taken.clear()
                        await self._taken.wait()
            except BaseException:
                # Not all of them close their resources when they are cancelled in the middle.
                with contextlib.suppress(NotImplementedError):
                    await streamed.close_stream()
                raise
            self._response = streamed.get()

    async def read(self, *, begun: bool) -> list[ProviderEvent]:
        """The events that have arrived, then the end, then nothing."""
        limits = self._request.limits
        deadline = asyncio.get_running_loop().time() + (limits.between_outputs if begun else limits.first_output)
        while not self._over:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._came.wait()
            except TimeoutError:
                words = "nothing came between two outputs" if begun else "no output came"
                raise ProviderError("timeout", words) from None
            await self._all_that_is_there()
            self._came.clear()
            out: list[ProviderEvent] = []
            while self._waiting:
                self._event(self._waiting.popleft(), out)
            self._taken.set()
            if out:
                if self._task.done():
                    self._came.set()
                return out
            if self._task.done():
                self._task.result()
                self._over = True
                return self._end()
        return []

    async def _all_that_is_there(self) -> None:
        """Let the reader continue while it finds events at once: many yield to the loop at each event."""
        seen = 0
        while seen < len(self._waiting) < MOST_WAITING:
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def close(self) -> None:
        task = self._task
        if not task.done():
            await self._settle()
            task.cancel()
            _, left = await asyncio.wait([task], timeout=SECONDS_TO_CLOSE)
            if left:
                logger.warning("%s did not close its stream within %.0f s", type(self._model).__name__, SECONDS_TO_CLOSE)
                return
        if not task.cancelled():
            task.exception()

    async def _settle(self) -> None:
        """Wait until the reader waits for the server: only then does a cancellation close the connection reliably.

        Between two events it may run library code that leaves its connection to the garbage collector.
        """
        self._left = True
        self._taken.set()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SECONDS_TO_SETTLE
        still, seen = 0, -1
        while still < STILL_ROUNDS and not self._task.done() and loop.time() < deadline:
            still, seen = (still + 1 if self._read == seen else 0), self._read
            await asyncio.sleep(0)

    def _event(self, event: ModelResponseStreamEvent, out: list[ProviderEvent]) -> None:
        match event:
            case PartDeltaEvent(index=index, delta=delta):
                match delta:
                    case TextPartDelta(content_delta=text):
                        _put(TextDelta, text, out)
                    case ThinkingPartDelta(content_delta=text):
                        _put(ThinkingDelta, text, out)
                    case ToolCallPartDelta() if index in self._calls:
                        put_call(ToolCallDelta(self._calls[index], None, None, _arguments(delta.args_delta)), out)
            case PartStartEvent(index=index, part=part):
                match part:
                    case TextPart(content=text):
                        _put(TextDelta, text, out)
                    case ThinkingPart(content=text):
                        _put(ThinkingDelta, text, out)
                    case ToolCallPart():
                        number = self._calls.setdefault(index, len(self._calls))
                        put_call(ToolCallDelta(number, part.tool_call_id, part.tool_name, _arguments(part.args)), out)

    def _end(self) -> list[ProviderEvent]:
        response = self._response
        if response is None:
            raise ProviderError("broken_stream", "the stream ended before the message")
        if response.finish_reason == "error":
            raise ProviderError("broken_stream", "finish reason error")
        used = response.usage
        out: list[ProviderEvent] = [*pydantic_messages.kept(response)]
        out.append(Usage(used.input_tokens, used.output_tokens, used.cache_read_tokens))
        match response.finish_reason:
            case "content_filter":
                out.append(Finish("refusal"))
            case "length":
                out.append(Finish("max_tokens"))
            case _:
                out.append(Finish("tool_calls" if self._calls else "stop"))
        return out


def _put(kind: type[TextDelta] | type[ThinkingDelta], text: str | None, out: list[ProviderEvent]) -> None:
    if not text:
        return
    last = out[-1] if out else None
    if isinstance(last, TextDelta | ThinkingDelta) and type(last) is kind:
        out[-1] = kind(last.text + text)
    else:
        out.append(kind(text))


def _arguments(given: object) -> str:
    if not given:
        return ""
    return given if isinstance(given, str) else exact_json.dumps(given)


def _sorted(problem: Exception, attempt: int) -> tuple[ProviderError, float | None]:
    """The classified failure and the seconds until a retry, without text of the vendor."""
    if isinstance(problem, ProviderError):
        return problem, None
    words = type(problem).__name__
    if isinstance(problem, theirs.ModelHTTPError):
        words += f" status {problem.status_code}"
    fault: ProviderFault
    wait: float | None = None
    match problem:
        case theirs.ModelContextWindowExceededError():
            fault = "context_too_long"
        case theirs.ContentFilterError():
            fault = "declined"
        case theirs.ModelAuthenticationError() | theirs.ModelNotFoundError() | theirs.UserError():
            fault = "configuration"
        case theirs.ModelQuotaExceededError():
            fault = "unavailable"
        case (
            theirs.ModelRateLimitError()
            | theirs.ModelUnavailableError()
            | theirs.ModelServerError()
            | theirs.ModelConnectionError()
        ):
            fault, wait = "unavailable", exchange.pause(problem.retry_after, attempt)
        case theirs.ModelAPIError():
            fault = "refused_request"
        case _:
            fault = "broken_stream"
    return ProviderError(fault, words, _answered(problem)), wait


def _answered(problem: Exception) -> Answered:
    status = problem.status_code if isinstance(problem, theirs.ModelHTTPError) else None
    return Answered(status, retry_after=getattr(problem, "retry_after", None))


def _in_the_middle(fault: ProviderFault) -> ProviderFault:
    return fault if fault in ("context_too_long", "declined", "timeout") else "broken_stream"
