"""Any server that speaks OpenAI chat completions, streamed.

Owns the HTTP side: one attempt after another until the first output, time limits, and a socket that is
closed whenever the answer was not read to its end. What is sent is made in chat_request.py; what comes
is read in chat_stream.py. Nothing that is logged or raised here holds a key, a header's value, or
words of the request or the answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import orjson

from agents_app.errors import ProviderError, ProviderFault
from agents_app.providers import chat_request, connections
from agents_app.providers.chat_stream import ChatStream, ServerSaid, Unreadable, said
from agents_app.providers.patience import Patience
from agents_app.providers.sse import EventSplitter, EventTooLong
from agents_app.runtime.interface import ModelRequest, ProviderEvent

logger = logging.getLogger(__name__)

BASE_URL = "https://api.openai.com/v1"
MAX_WAIT = 30.0
"""Seconds. A server that wants a longer pause is not waited for."""
MAX_ERROR_BYTES = 64 * 1024
MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
# After the model has said that it is done: time for the usage, and for the end that frees the connection.
FOR_USAGE = 5.0
FOR_END = 0.1

_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class OpenAIChat:
    """The provider ``openai-chat`` (interface.Provider)."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[ProviderEvent]]:
        return _stream(request)


class _Attempt(Exception):
    """An attempt failed before its first output. ``wait``: seconds until the next, None: there is no sense in one."""

    def __init__(self, error: ProviderError, wait: float | None) -> None:
        self.error, self.wait = error, wait
        super().__init__(str(error))


async def _stream(request: ModelRequest) -> AsyncGenerator[list[ProviderEvent]]:
    url, headers, body = _url(request), _headers(request), chat_request.body(request)
    attempt = 0
    while True:
        answer = _answer(request, url, headers, body, attempt)
        try:
            async for batch in answer:
                yield batch
            return
        except _Attempt as failed:
            # With a secret in its code, the server's own word stays out as well.
            error = ProviderError(failed.error.fault, _masked(failed.error.detail, request))
            if failed.wait is None or attempt >= request.limits.retries:
                raise error from None
            logger.info("openai-chat: attempt %d: %s; again in %.2f s", attempt + 1, error, failed.wait)
            wait = failed.wait
        except ProviderError as error:
            raise ProviderError(error.fault, _masked(error.detail, request)) from None
        finally:
            await answer.aclose()
        await asyncio.sleep(wait)
        attempt += 1


async def _answer(
    request: ModelRequest, url: str, headers: Mapping[str, str], body: bytes, attempt: int
) -> AsyncGenerator[list[ProviderEvent]]:
    """One attempt. Before the first output it fails with ``_Attempt``, afterwards with ``ProviderError``."""
    loop = asyncio.get_running_loop()
    limits = request.limits
    deadline = loop.time() + limits.first_output
    response: aiohttp.ClientResponse | None = None
    patience: Patience | None = None
    stream = ChatStream()
    begun = False
    try:
        async with asyncio.timeout_at(deadline):
            session = await connections.session()
            response = await session.post(
                url,
                data=body,
                headers=headers,
                # A redirect would take the key to another host.
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect),
            )
            if response.status != 200:
                raise await _refused(response, attempt)
        patience = Patience(response.content)
        splitter, document = EventSplitter(), bytearray()
        while not stream.over:
            patience.expect(deadline)
            chunk = await _more(response.content)
            patience.came()
            if document or (not begun and chunk.lstrip().startswith(b"{")):
                # Not a stream but one document: the server knows no streaming.
                document += chunk
                if len(document) > MAX_DOCUMENT_BYTES:
                    raise EventTooLong
                batch = [] if chunk else stream.read_whole(bytes(document))
            else:
                batch = stream.read(splitter.feed(chunk) if chunk else splitter.finish())
            if batch:
                begun = True
                yield batch
                stream.check()
                deadline = loop.time() + limits.between_outputs
            if not chunk:
                break
            if stream.finished:
                deadline = min(deadline, loop.time() + FOR_USAGE)
        else:
            await _drain(response)
    except aiohttp.ConnectionTimeoutError:
        raise _Attempt(ProviderError("unavailable", "connecting took too long"), _backoff(attempt)) from None
    except TimeoutError:
        if not stream.finished:
            error = ProviderError("timeout", "nothing came between two outputs" if begun else "no output came")
            raise (error if begun else _Attempt(error, None)) from None
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as problem:
        if not stream.finished:
            if begun:
                raise ProviderError("broken_stream", type(problem).__name__) from None
            raise _Attempt(ProviderError("unavailable", type(problem).__name__), _reconnect(problem, attempt)) from None
    except ValueError as problem:
        # An address or a header that cannot be sent.
        raise _Attempt(ProviderError("configuration", type(problem).__name__), None) from None
    except aiohttp.ClientError as problem:
        # An answer that is not HTTP.
        fault = ProviderError("broken_stream", type(problem).__name__)
        raise (fault if begun else _Attempt(fault, None)) from None
    except ServerSaid as problem:
        if begun:
            fault_kind: ProviderFault = "context_too_long" if problem.fault == "context_too_long" else "broken_stream"
            raise ProviderError(fault_kind, f"error in the stream: {problem.code}") from None
        wait = _backoff(attempt) if problem.passing else None
        raise _Attempt(ProviderError(problem.fault, f"error in the stream: {problem.code}"), wait) from None
    except (Unreadable, EventTooLong) as problem:
        fault = ProviderError("broken_stream", type(problem).__name__)
        raise (fault if begun else _Attempt(fault, None)) from None
    finally:
        if patience is not None:
            patience.close()
        if response is None or not response.content.at_eof():
            await _abort(response)
    last = stream.end()
    if last is None:
        if begun:
            raise ProviderError("broken_stream", "the stream ended before the message")
        raise _Attempt(ProviderError("unavailable", "the stream ended before it began"), _backoff(attempt))
    yield last


async def _more(content: aiohttp.StreamReader) -> bytes:
    """What has arrived; empty at the end."""
    try:
        return await content.readany()
    except (aiohttp.ClientError, ConnectionError):
        # The reader tells of a broken connection before it gives out what came before the break, and has
        # no public way to get at that. The error comes again with the next read.
        if left := content._read_nowait(-1):
            return left
        raise


async def _abort(response: aiohttp.ClientResponse | None) -> None:
    """Close the socket now, not when a polite end has been agreed on: the model must stop.

    Without a response aiohttp has begun to close the connection itself.
    """
    if response is not None:
        connection = response.connection
        transport = None if connection is None else connection.transport
        response.close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
    # The loop closes the socket in its next round; the caller may rely on it.
    await asyncio.sleep(0)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Wait a moment for the end of the body, so that the connection can serve again."""
    try:
        async with asyncio.timeout(FOR_END):
            while await response.content.readany():
                pass
    except (TimeoutError, aiohttp.ClientError, ConnectionError):
        # All that mattered has come.
        return


async def _limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    out = bytearray()
    while chunk := await response.content.readany():
        out += chunk
        if len(out) > limit:
            raise EventTooLong
    return bytes(out)


async def _refused(response: aiohttp.ClientResponse, attempt: int) -> _Attempt:
    """A status that is not 200, with what little of its body is fit to be known."""
    try:
        document = orjson.loads(await _limited(response, MAX_ERROR_BYTES))
    except (orjson.JSONDecodeError, EventTooLong, aiohttp.ClientError, ConnectionError):
        document = {}
    if isinstance(document, list) and document:
        document = document[0]
    error = document.get("error", document) if isinstance(document, dict) else document
    problem = said(error, response.status)
    fault: ProviderFault = problem.fault
    if response.status < 400 or (response.status == 404 and fault == "refused_request"):
        fault = "configuration"
    detail = f"status {response.status} {problem.code}".strip()
    wait = _wait(response.headers, attempt) if problem.passing else None
    return _Attempt(ProviderError(fault, detail), wait)


def _wait(headers: Mapping[str, str], attempt: int) -> float | None:
    """What the server asks for, else our own pause; None if it asks for more than anyone waits."""
    asked = _retry_after(headers)
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
    # Not all who failed together should come back together.
    return math.ldexp(0.25, attempt) * random.uniform(0.8, 1.2)  # noqa: S311 - no secret is made of it


def _reconnect(problem: Exception, attempt: int) -> float:
    # A kept connection that the server had closed meanwhile is no sign of trouble.
    if attempt == 0 and isinstance(problem, aiohttp.ServerDisconnectedError):
        return 0.0
    return _backoff(attempt)


def _url(request: ModelRequest) -> str:
    parts = urlsplit(request.base_url or BASE_URL)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/chat/completions", parts.query, ""))


def _headers(request: ModelRequest) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if request.api_key and not any(name.lower() == "authorization" for name in request.headers):
        headers["Authorization"] = f"Bearer {request.api_key.strip()}"
    headers.update(request.headers)
    for name, value in headers.items():
        if _UNFIT_FOR_HEADER.search(value):
            raise ProviderError("configuration", f"the value of the header {name} cannot be sent")
    return headers


def _masked(detail: str, request: ModelRequest) -> str:
    for secret in (request.api_key, *request.headers.values()):
        if secret and secret in detail:
            detail = detail.replace(secret, "***")
    return detail
