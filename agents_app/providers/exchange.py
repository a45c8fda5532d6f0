"""The HTTP exchange of one streamed model call, for all wire formats.

It retries until the first output, applies time limits, and closes the socket if the answer is not read to its
end. A ``Call`` has the request and the reader of the answer. Nothing that is logged or raised here contains a
key, a header's value, or text of the request or the answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp
import orjson
from yarl import URL

from agents_app import metrics, tracing
from agents_app.errors import Answered, ProviderError, ProviderFault
from agents_app.providers import connections
from agents_app.providers.live_reading import LiveReading
from agents_app.providers.read_timeout import ReadTimeout
from agents_app.providers.server_errors import MalformedStream, ServerError, classified
from agents_app.providers.sse import EventSplitter, EventTooLong
from agents_app.runtime import long_work
from agents_app.runtime.interface import ModelRequest, ProviderEvent, ToolCallDelta

logger = logging.getLogger(__name__)

MAX_WAIT = 30.0
"""Seconds. A server that asks for a longer pause is not retried."""
MAX_ERROR_BYTES = 64 * 1024
_WRITTEN_AT_ONCE = 256 * 1024
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
# Time after the model has finished, for the usage and for the end of the body, which frees the connection.
FOR_USAGE = 5.0
FOR_END = 0.1

_SHORTEST_SECRET = 8
"""Shorter words of a header (``Bearer``) are not masked."""
_BOM = b"\xef\xbb\xbf"
_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Splitter(Protocol):
    """Splits bytes into the events of a format."""

    def feed(self, chunk: bytes) -> list[Any]: ...

    def finish(self) -> list[Any]: ...


class Answer(Protocol):
    """Reads one answer; see ``answer_reader.AnswerReader``, the usual base class."""

    finished: bool
    over: bool

    def read(self, events: Iterable[Any]) -> list[ProviderEvent]: ...

    def read_whole(self, document: bytes) -> list[ProviderEvent]: ...

    def check(self) -> None: ...

    def end(self) -> list[ProviderEvent] | None: ...


Refusal = Callable[[Any, int, Mapping[str, str]], ServerError]
"""Classifies a status that is not 200, given the response's JSON document (None: there is none), status and headers."""


def plainly_refused(document: Any, status: int, _: Mapping[str, str]) -> ServerError:
    if isinstance(document, list) and document:
        document = document[0]
    return classified(document.get("error") or document if isinstance(document, dict) else document, status)


@dataclass(frozen=True, slots=True)
class Call:
    """A request and the readers of its answer: a new ``answer`` and ``splitter`` for each attempt."""

    vendor: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    answer: Callable[[], Answer]
    splitter: Callable[[], Splitter] = EventSplitter
    refused: Refusal = plainly_refused
    tool_names: Mapping[str, str] = field(default_factory=dict)
    """The tools' own names, by the names that the vendor was sent."""
    as_written: bool = False
    """Send the address unchanged, character by character, because it is signed."""


async def stream(request: ModelRequest, make: Callable[[], Call]) -> AsyncGenerator[list[ProviderEvent]]:
    """The answer to the call that ``make`` builds, in lists of events that arrived together; see interface.Provider.

    ``make`` is called in a thread if the request is long: building 10 MB would block other runs.
    """
    call = await long_work.call(request.fair_key, make, request.instructions, request.messages, request.tools)
    _check_headers(call.headers)
    attempt = 0
    while True:
        measured = _Measured(_host(call, request), attempt)
        answer = _attempt(request, call, attempt, measured)
        try:
            async for batch in answer:
                measured.output()
                yield _renamed(batch, call.tool_names) if call.tool_names else batch
            measured.outcome = "ok"
            return
        except _Failed as failed:
            measured.failed(failed.error)
            error = _masked(failed.error, request, attempts=attempt + 1, host=measured.host)
            if failed.wait is None or attempt >= request.limits.retries:
                raise error from None
            logger.info("%s: attempt %d: %s; again in %.2f s", call.vendor, attempt + 1, error, failed.wait)
            wait = failed.wait
        except ProviderError as error:
            measured.failed(error)
            raise _masked(error, request, attempts=attempt + 1, after_output=True, host=measured.host) from None
        finally:
            await answer.aclose()
            measured.end()
        await asyncio.sleep(wait)
        attempt += 1
        metrics.PROVIDER_RETRIES.labels(metrics.host(measured.host)).inc()


class _Measured:
    """What the metrics and the trace have of one request."""

    def __init__(self, host: str, attempt: int) -> None:
        self.host = host
        self.span = tracing.begin(
            "POST",
            tracing.CLIENT,
            {"http.request.method": "POST", "server.address": host, "http.request.resend_count": attempt or None},
        )
        self.outcome = "cancelled"
        """The stream was closed before its end, unless it is set."""
        self._began: float | None = time.monotonic()

    def output(self) -> None:
        if self._began is not None:
            waited = time.monotonic() - self._began
            metrics.PROVIDER_FIRST_OUTPUT.labels(metrics.host(self.host)).observe(waited)
            self.span.set({"http.response.status_code": 200, "agenthost.first_output_seconds": waited})
            self._began = None

    def failed(self, error: ProviderError) -> None:
        self.outcome = error.fault
        self.span.set({"http.response.status_code": error.answered.status})
        self.span.fail(error.fault)
        if error.answered.status is not None:
            metrics.PROVIDER_STATUSES.labels(metrics.host(self.host), str(error.answered.status)).inc()

    def end(self) -> None:
        metrics.PROVIDER_REQUESTS.labels(metrics.host(self.host), self.outcome).inc()
        self.span.set({"agenthost.outcome": self.outcome})
        self.span.end()


def address(base_url: str, path: str, **query: str) -> str:
    """``path`` below a base address, keeping its query."""
    parts = urlsplit(base_url)
    added = "&".join(f"{quote(name)}={quote(value)}" for name, value in query.items())
    whole = "&".join(each for each in (parts.query, added) if each)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, whole, ""))


def headers(request: ModelRequest, key_header: str = "Authorization", key_form: str = "Bearer {}", **own: str) -> dict[str, str]:
    """The headers of a request: the usual ones, the agent's own, and the key unless the agent sets that header."""
    given = {name.lower() for name in request.headers}
    made = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    made.update({name.replace("_", "-"): value for name, value in own.items() if name.replace("_", "-").lower() not in given})
    if request.api_key and key_header.lower() not in given:
        made[key_header] = key_form.format(request.api_key.strip())
    made.update(request.headers)
    return made


def _renamed(batch: list[ProviderEvent], own: Mapping[str, str]) -> list[ProviderEvent]:
    return [
        replace(event, name=own.get(event.name, event.name)) if isinstance(event, ToolCallDelta) and event.name else event
        for event in batch
    ]


def _masked(error: ProviderError, request: ModelRequest, **known: Any) -> ProviderError:
    """The error without the request's secrets: a server may repeat a key in its error code."""
    answered = replace(error.answered, code=masked(error.answered.code, request), **known)
    return ProviderError(error.fault, masked(error.detail, request), answered)


def _host(call: Call, request: ModelRequest) -> str:
    """The host that was asked, with its port if the address names one."""
    return masked(urlsplit(call.url).netloc.rpartition("@")[2], request)


def masked(detail: str, request: ModelRequest) -> str:
    """The text without the key, the headers' values and their words: a server may repeat a key without ``Bearer``."""
    given = [value for value in (request.api_key, *request.headers.values()) if value]
    words = {word for value in given for word in value.split() if len(word) >= _SHORTEST_SECRET}
    for secret in sorted({*given, *words}, key=len, reverse=True):
        detail = detail.replace(secret, "***")
    return detail


class _Failed(Exception):
    """An attempt failed before its first output. ``wait``: seconds until the next one; None: do not retry."""

    def __init__(self, error: ProviderError, wait: float | None) -> None:
        self.error, self.wait = error, wait
        super().__init__(str(error))


async def _attempt(request: ModelRequest, call: Call, attempt: int, measured: _Measured) -> AsyncGenerator[list[ProviderEvent]]:
    """One attempt. Before the first output it fails with ``_Failed``, afterwards with ``ProviderError``."""
    loop = asyncio.get_running_loop()
    limits = request.limits
    deadline = loop.time() + limits.first_output
    response: aiohttp.ClientResponse | None = None
    timeout: ReadTimeout | None = None
    answer = call.answer()
    begun = False
    opening = b""
    try:
        async with asyncio.timeout_at(deadline):
            session = await connections.session()
            short = len(call.body) <= _WRITTEN_AT_ONCE
            passed_on = tracing.headers_for_provider(measured.host, measured.span)
            headers = {**passed_on, **call.headers} if passed_on else call.headers
            response = await session.post(
                URL(call.url, encoded=True) if call.as_written else call.url,
                data=call.body if short else _in_pieces(call.body),
                headers=headers if short else {**headers, "Content-Length": str(len(call.body))},
                # A redirect would take the key to another host.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect),
            )
            if response.status != 200:
                raise await _refused(call, response, attempt)
        timeout = ReadTimeout(response.content)
        splitter, document, blank = call.splitter(), bytearray(), True
        live = LiveReading(response.content, splitter, answer, timeout, request.at_once, limits.between_outputs)
        while not answer.over:
            timeout.start(deadline)
            # The first output decides what kind of answer it is, and is yielded.
            if begun and (read := await live.next()) is not None:
                if read:
                    yield read
                    answer.check()
                    deadline = loop.time() + limits.between_outputs
                if answer.finished:
                    deadline = min(deadline, loop.time() + FOR_USAGE)
                continue
            chunk = await _more(response.content)
            timeout.stop()
            if document or (blank and chunk.removeprefix(_BOM).lstrip().startswith((b"{", b"["))):
                # One document instead of a stream: the server does not support streaming.
                document += chunk
                if len(document) > MAX_DOCUMENT_BYTES:
                    raise EventTooLong
                batch = [] if chunk else answer.read_whole(bytes(document))
            else:
                batch = answer.read(splitter.feed(chunk) if chunk else splitter.finish())
            if blank and chunk and not (chunk.isspace() or chunk == _BOM):
                blank, opening = False, chunk.removeprefix(_BOM).lstrip()[:1]
            if batch:
                begun = True
                yield batch
                answer.check()
                deadline = loop.time() + limits.between_outputs
            if not chunk:
                break
            if answer.finished:
                deadline = min(deadline, loop.time() + FOR_USAGE)
        else:
            await _drain(response)
    except aiohttp.ConnectionTimeoutError:
        raise _Failed(ProviderError("unavailable", "connecting took too long"), _backoff(attempt)) from None
    except TimeoutError:
        if not answer.finished:
            error = ProviderError("timeout", "nothing came between two outputs" if begun else "no output came")
            raise (error if begun else _Failed(error, None)) from None
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as problem:
        if not answer.finished:
            if begun:
                raise ProviderError("broken_stream", type(problem).__name__) from None
            raise _Failed(ProviderError("unavailable", type(problem).__name__), _reconnect(problem, attempt)) from None
    except ValueError as problem:
        # An address or a header that cannot be sent.
        raise _Failed(ProviderError("configuration", type(problem).__name__), None) from None
    except aiohttp.ClientError as problem:
        # An answer that is not HTTP.
        fault = ProviderError("broken_stream", type(problem).__name__)
        raise (fault if begun else _Failed(fault, None)) from None
    except ServerError as problem:
        if begun:
            fault_kind: ProviderFault = problem.fault if problem.fault in ("context_too_long", "declined") else "broken_stream"
            raise ProviderError(fault_kind, f"error in the stream: {problem.code}", Answered(code=problem.code)) from None
        wait = _backoff(attempt) if problem.passing else None
        refusal = ProviderError(problem.fault, f"error in the stream: {problem.code}", Answered(code=problem.code))
        raise _Failed(refusal, wait) from None
    except (MalformedStream, EventTooLong) as problem:
        fault = ProviderError("broken_stream", type(problem).__name__)
        raise (fault if begun else _Failed(fault, None)) from None
    finally:
        if timeout is not None:
            timeout.close()
        if response is None or not response.content.at_eof():
            await _abort(response)
    last = answer.end()
    if last is None:
        if begun:
            raise ProviderError("broken_stream", "the stream ended before the message")
        if opening == b"<":
            raise _Failed(ProviderError("configuration", "the server answered with an HTML page"), None)
        raise _Failed(ProviderError("unavailable", "the stream ended before it began"), _backoff(attempt))
    yield last


async def _in_pieces(body: bytes) -> AsyncIterator[memoryview]:
    """The body in pieces: encrypting and writing 10 MB at once would block other runs."""
    whole = memoryview(body)
    for start in range(0, len(body), _WRITTEN_AT_ONCE):
        yield whole[start : start + _WRITTEN_AT_ONCE]
        await asyncio.sleep(0)


async def _more(content: aiohttp.StreamReader) -> bytes:
    """The bytes that have arrived; empty at the end."""
    try:
        return await content.readany()
    except (aiohttp.ClientError, ConnectionError):
        # The reader raises the error of a broken connection before it returns the data received earlier, and has
        # no public method for that data. The error is raised again by the next read.
        if left := content._read_nowait(-1):
            return left
        raise


async def _abort(response: aiohttp.ClientResponse | None) -> None:
    """Close the socket at once, without a TLS shutdown, so that the model stops.

    Without a response aiohttp has begun to close the connection itself.
    """
    if response is not None:
        connection = response.connection
        transport = None if connection is None else connection.transport
        response.close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
    # The loop closes the socket in its next iteration, before this returns.
    await asyncio.sleep(0)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Wait briefly for the end of the body, so that the connection can be used again."""
    try:
        async with asyncio.timeout(FOR_END):
            while await response.content.readany():
                pass
    except (TimeoutError, aiohttp.ClientError, ConnectionError):
        # The answer is complete already.
        return


async def _limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    out = bytearray()
    while chunk := await response.content.readany():
        out += chunk
        if len(out) > limit:
            raise EventTooLong
    return bytes(out)


async def _refused(call: Call, response: aiohttp.ClientResponse, attempt: int) -> _Failed:
    """The failure for a status that is not 200, without text of its body."""
    try:
        document = orjson.loads(await _limited(response, MAX_ERROR_BYTES))
    except (orjson.JSONDecodeError, EventTooLong, aiohttp.ClientError, ConnectionError):
        document = None
    problem = call.refused(document, response.status, response.headers)
    fault: ProviderFault = problem.fault
    if response.status < 400 or (response.status == 404 and fault == "refused_request"):
        fault = "configuration"
    detail = f"status {response.status} {problem.code}".strip()
    asked = _retry_after(response.headers)
    asked = problem.wait if asked is None else asked
    wait = pause(asked, attempt) if problem.passing else None
    return _Failed(ProviderError(fault, detail, Answered(response.status, problem.code, asked)), wait)


def pause(asked: float | None, attempt: int) -> float | None:
    """Seconds until the next attempt: ``asked`` by the server, else our own backoff; None if it asks for too many."""
    if asked is None:
        return _backoff(attempt)
    return max(asked, 0.0) if asked <= MAX_WAIT else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if not math.isnan(seconds):
            return seconds
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - datetime.now(UTC)).total_seconds()


def _backoff(attempt: int) -> float:
    # Jitter, so that calls that failed together do not retry together.
    return math.ldexp(0.25, attempt) * random.uniform(0.8, 1.2)  # noqa: S311 - not used for a secret


def _reconnect(problem: Exception, attempt: int) -> float:
    # An idle connection that the server has closed is not a failure of the server.
    if attempt == 0 and isinstance(problem, aiohttp.ServerDisconnectedError):
        return 0.0
    return _backoff(attempt)


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if _UNFIT_FOR_HEADER.search(value):
            raise ProviderError("configuration", f"the value of the header {name} cannot be sent")
